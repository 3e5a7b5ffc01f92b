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
from edgewright.ir.tflite import conv, elementwise, fixed_point_math, move

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
        TfliteOp("ADD", 0, 2, elementwise.summed(1), 11),
        TfliteOp("AVERAGE_POOL_2D", 1, 1, conv.average_pool_2d, 5, _POOL),
        TfliteOp("CONCATENATION", 2, 0, move.concatenation, 10, ("axis",)),
        TfliteOp("CONV_2D", 3, 3, conv.twice(conv.conv_2d), 1, _DILATED),
        TfliteOp("DEPTHWISE_CONV_2D", 4, 3, conv.twice(conv.depthwise_conv_2d), 2, (*_DILATED, "depth_multiplier")),
        TfliteOp("FULLY_CONNECTED", 9, 3, conv.once(conv.fully_connected), 8, ("keep_num_dims",)),
        TfliteOp("LOGISTIC", 14, 1, elementwise.by_table(_sigmoid)),
        TfliteOp("MAX_POOL_2D", 17, 1, conv.max_pool_2d, 5, _POOL),
        TfliteOp("MUL", 18, 2, elementwise.mul, 21),
        TfliteOp("RELU", 19, 1, elementwise.relu(*elementwise.RELUS["RELU"])),
        TfliteOp("RELU_N1_TO_1", 20, 1, elementwise.relu(*elementwise.RELUS["RELU_N1_TO_1"])),
        TfliteOp("RELU6", 21, 1, elementwise.relu(*elementwise.RELUS["RELU6"])),
        TfliteOp("RESHAPE", 22, 2, move.reshape, 17, ("new_shape",)),
        TfliteOp("RESIZE_BILINEAR", 23, 2, conv.resize_bilinear, 15, _RESIZED),
        TfliteOp("SOFTMAX", 25, 1, fixed_point_math.softmax, 9, ("beta",)),
        TfliteOp("TANH", 28, 1, elementwise.by_table(_tanh)),
        TfliteOp("TRANSPOSE", 39, 2, move.transpose, 26),
        TfliteOp("MEAN", 40, 2, fixed_point_math.mean, 27, _REDUCED),
        TfliteOp("SUB", 41, 2, elementwise.summed(-1), 28),
        TfliteOp("EXP", 47, 1, elementwise.by_table(np.exp), 33),
        TfliteOp("PRELU", 54, 2, elementwise.prelu),
        TfliteOp("MAXIMUM", 55, 2, elementwise.extreme(np.maximum), 39),
        TfliteOp("MINIMUM", 57, 2, elementwise.extreme(np.minimum), 39),
        TfliteOp("PADV2", 60, 3, move.pad_v2, 43),
        TfliteOp("SLICE", 65, 3, move.slice_, 48),
        TfliteOp("TRANSPOSE_CONV", 67, 4, conv.twice(conv.transpose_conv), 49, _STEP),
        TfliteOp("LOG", 73, 1, elementwise.by_table(_log)),
        TfliteOp("SUM", 74, 2, fixed_point_math.sums, 27, _REDUCED),
        TfliteOp("RSQRT", 76, 1, elementwise.rsqrt),
        TfliteOp("REDUCE_MAX", 82, 2, move.extreme(np.max), 27, _REDUCED),
        TfliteOp("REDUCE_MIN", 89, 2, move.extreme(np.min), 27, _REDUCED),
        TfliteOp("RESIZE_NEAREST_NEIGHBOR", 97, 2, conv.resize_nearest_neighbor, 74, _RESIZED),
        TfliteOp("LEAKY_RELU", 98, 1, elementwise.leaky_relu, 75, ("alpha",)),
        TfliteOp("MIRROR_PAD", 100, 2, move.mirror_pad, 77, ("mode",)),
        TfliteOp("ABS", 101, 1, elementwise.absolute, 78),
        TfliteOp("HARD_SWISH", 117, 1, elementwise.hard_swish, 91),
        TfliteOp("BATCH_MATMUL", 126, 2, conv.PAIRS, 101),
        TfliteOp("RELU_0_TO_1", 152, 1, elementwise.relu(*elementwise.RELUS["RELU_0_TO_1"])),
    )
}
