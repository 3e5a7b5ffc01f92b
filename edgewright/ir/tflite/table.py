"""The operators of TFLite that Edgewright emits: number, options and meaning, each said once.

In a device graph they are called ``tflite.<NAME>``, with all operands as ``inputs``, in the file's order (shapes and
axes are constant tensors there), and the fields of their options as further arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.ir.graph import Array, Op
from edgewright.ir.tflite import curves, elements, moves, products

PREFIX = "tflite."
VALID = 1
Reference = Callable[[Op, Sequence[Array]], Array]


@dataclass(frozen=True)
class TfliteOp:
    """``code``: of the operator. ``options``: number of its options in the file's union (0: none), and their
    ``fields``. ``operands``: how many there are (0: any)."""

    name: str
    code: int
    operands: int
    reference: Reference
    options: int = 0
    fields: tuple[str, ...] = ()


_STEP = ("padding", "stride_h", "stride_w")
_DILATED = (*_STEP, "dilation_h", "dilation_w")
_POOL = (*_STEP, "filter_h", "filter_w")
_REDUCED = ("keep_dims",)
_RESIZED = ("align_corners", "half_pixel_centers")


def _sigmoid(x: Any) -> Any:
    return (1 / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32)


def _tanh(x: Any) -> Any:
    return np.tanh(x.astype(np.float64)).astype(np.float32)


def _log(x: Any) -> Any:
    return np.where(x > 0, np.log(x), np.float32(-np.inf))


TFLITE: dict[str, TfliteOp] = {
    row.name: row
    for row in (
        TfliteOp("ADD", 0, 2, elements.summed(1), 11),
        TfliteOp("AVERAGE_POOL_2D", 1, 1, products.average_pool_2d, 5, _POOL),
        TfliteOp("CONCATENATION", 2, 0, moves.concatenation, 10, ("axis",)),
        TfliteOp("CONV_2D", 3, 3, products.twice(products.conv_2d), 1, _DILATED),
        TfliteOp(
            "DEPTHWISE_CONV_2D", 4, 3, products.twice(products.depthwise_conv_2d), 2, (*_DILATED, "depth_multiplier")
        ),
        TfliteOp("FULLY_CONNECTED", 9, 3, products.once(products.fully_connected), 8, ("keep_num_dims",)),
        TfliteOp("LOGISTIC", 14, 1, elements.by_table(_sigmoid)),
        TfliteOp("MAX_POOL_2D", 17, 1, products.max_pool_2d, 5, _POOL),
        TfliteOp("MUL", 18, 2, elements.mul, 21),
        TfliteOp("RELU", 19, 1, elements.relu(*elements.RELUS["RELU"])),
        TfliteOp("RELU_N1_TO_1", 20, 1, elements.relu(*elements.RELUS["RELU_N1_TO_1"])),
        TfliteOp("RELU6", 21, 1, elements.relu(*elements.RELUS["RELU6"])),
        TfliteOp("RESHAPE", 22, 2, moves.reshape, 17, ("new_shape",)),
        TfliteOp("RESIZE_BILINEAR", 23, 2, products.resize_bilinear, 15, _RESIZED),
        TfliteOp("SOFTMAX", 25, 1, curves.softmax, 9, ("beta",)),
        TfliteOp("TANH", 28, 1, elements.by_table(_tanh)),
        TfliteOp("TRANSPOSE", 39, 2, moves.transpose, 26),
        TfliteOp("MEAN", 40, 2, curves.mean, 27, _REDUCED),
        TfliteOp("SUB", 41, 2, elements.summed(-1), 28),
        TfliteOp("EXP", 47, 1, elements.by_table(np.exp), 33),
        TfliteOp("PRELU", 54, 2, elements.prelu),
        TfliteOp("MAXIMUM", 55, 2, elements.extreme(np.maximum), 39),
        TfliteOp("MINIMUM", 57, 2, elements.extreme(np.minimum), 39),
        TfliteOp("PADV2", 60, 3, moves.pad_v2, 43),
        TfliteOp("SLICE", 65, 3, moves.slice_, 48),
        TfliteOp("TRANSPOSE_CONV", 67, 4, products.twice(products.transpose_conv), 49, _STEP),
        TfliteOp("LOG", 73, 1, elements.by_table(_log)),
        TfliteOp("SUM", 74, 2, curves.sums, 27, _REDUCED),
        TfliteOp("RSQRT", 76, 1, elements.rsqrt),
        TfliteOp("REDUCE_MAX", 82, 2, moves.extreme(np.max), 27, _REDUCED),
        TfliteOp("REDUCE_MIN", 89, 2, moves.extreme(np.min), 27, _REDUCED),
        TfliteOp("RESIZE_NEAREST_NEIGHBOR", 97, 2, products.resize_nearest_neighbor, 74, _RESIZED),
        TfliteOp("LEAKY_RELU", 98, 1, elements.leaky_relu, 75, ("alpha",)),
        TfliteOp("MIRROR_PAD", 100, 2, moves.mirror_pad, 77, ("mode",)),
        TfliteOp("ABS", 101, 1, elements.absolute, 78),
        TfliteOp("HARD_SWISH", 117, 1, elements.hard_swish, 91),
        TfliteOp("BATCH_MATMUL", 126, 2, products.PAIRS, 101),
        TfliteOp("RELU_0_TO_1", 152, 1, elements.relu(*elements.RELUS["RELU_0_TO_1"])),
    )
}
