"""Rows of the Ethos-U whose samples have steps in numpy, by the types they are held in, and why."""

from __future__ import annotations

LEFT = {
    "no kernel yet": {
        "conv2d": "int8 int16",
        "conv3d": "int8 int16",
        "mm": "int8",
        "max_pool1d": "int16",
        "max_pool2d": "int16",
        "avg_pool1d": "int8 int16",
        "avg_pool2d": "int8 int16",
        "upsample_nearest2d": "int8 int16",
        "upsample_bilinear2d": "int8 int16",
        "resize_bilinear2d": "int8 int16",
        "cumsum": "int8 int16",
        "argmax": "int8 int16",
        "bitwise_left_shift": "int8 int16",
        "embedding": "int8 int16",
        "index_select": "int8 int16",
        "gather": "int8 int16",
        "index": "int8 int16",
        "index_put": "int8 int16",
        "reciprocal": "int16",
        "slice": "int16",
        "flip": "int8 int16",
        "roll": "int8 int16",
        "pad_by_mode": "int8 int16",
        "reflection_pad": "int8 int16",
        "replication_pad": "int8 int16",
        "pad": "int8 int16",
        "expand": "int8 int16",
        "repeat": "int8 int16",
        "as_strided": "int8 int16",
        "diagonal": "int8 int16",
    },
}
