"""Rows of Neutron whose samples have steps in numpy, by the types they are held in, and why."""

from __future__ import annotations

LEFT = {
    "no kernel yet": {
        "upsample_nearest2d": "int8",
        "upsample_bilinear2d": "int8",
        "sum": "int8",
        "pad_by_mode": "int8",
        "reflection_pad": "int8",
    },
}
