"""Operator table of the TFLite dialect: code and options of every operator that is emitted, and the
reference of those that neither ``to_core.py`` translates nor ``int_rules.py`` defines.

In a device graph an operator is called ``tflite.<NAME>``; its arguments are ``inputs``, in the order of the file format
(shapes and axes are constant tensors), and the fields of its options table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.backends.nxp.dialect import elementwise
from edgewright.errors import FormatError
from edgewright.ir.graph import Array, Op
from edgewright.ir.signatures import Signatures

PREFIX = "tflite."
VALID = 1
Reference = Callable[[Op, Sequence[Array]], Array]


@dataclass(frozen=True)
class TfliteOp:
    """``code``: the ``BuiltinOperator`` value. ``options``: the ``BuiltinOptions`` union value (0: none), and its
    ``fields``. ``operands``: number of inputs (0: variadic). ``reference``: of an operator that is
    neither translated to core nor defined by ``int_rules.py``."""

    name: str
    code: int
    operands: int
    reference: Reference | None = None
    options: int = 0
    fields: tuple[str, ...] = ()


_STRIDES = ("padding", "stride_h", "stride_w")
_CONV = (*_STRIDES, "dilation_h", "dilation_w")
_POOL = (*_STRIDES, "filter_h", "filter_w")
_REDUCE = ("keep_dims",)
_RESIZE = ("align_corners", "half_pixel_centers")


def _sigmoid(x: Any) -> Any:
    return (1 / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32)


def _tanh(x: Any) -> Any:
    return np.tanh(x.astype(np.float64)).astype(np.float32)


def _log(x: Any) -> Any:
    return np.where(x > 0, np.log(x), np.float32(-np.inf))


TFLITE: dict[str, TfliteOp] = {
    row.name: row
    for row in (
        TfliteOp("ADD", 0, 2, None, 11),
        TfliteOp("AVERAGE_POOL_2D", 1, 1, None, 5, _POOL),
        TfliteOp("CONCATENATION", 2, 0, None, 10, ("axis",)),
        TfliteOp("CONV_2D", 3, 3, None, 1, _CONV),
        TfliteOp("DEPTHWISE_CONV_2D", 4, 3, None, 2, (*_CONV, "depth_multiplier")),
        TfliteOp("FULLY_CONNECTED", 9, 3, None, 8, ("keep_num_dims",)),
        TfliteOp("LOGISTIC", 14, 1, elementwise.lookup(_sigmoid)),
        TfliteOp("MAX_POOL_2D", 17, 1, None, 5, _POOL),
        TfliteOp("MUL", 18, 2, None, 21),
        TfliteOp("RELU", 19, 1),
        TfliteOp("RELU_N1_TO_1", 20, 1),
        TfliteOp("RELU6", 21, 1),
        TfliteOp("RESHAPE", 22, 2, None, 17, ("new_shape",)),
        TfliteOp("RESIZE_BILINEAR", 23, 2, None, 15, _RESIZE),
        TfliteOp("SOFTMAX", 25, 1, None, 9, ("beta",)),
        TfliteOp("TANH", 28, 1, elementwise.lookup(_tanh)),
        TfliteOp("TRANSPOSE", 39, 2, None, 26),
        TfliteOp("MEAN", 40, 2, None, 27, _REDUCE),
        TfliteOp("SUB", 41, 2, None, 28),
        TfliteOp("EXP", 47, 1, elementwise.lookup(np.exp), 33),
        TfliteOp("PRELU", 54, 2),
        TfliteOp("MAXIMUM", 55, 2, None, 39),
        TfliteOp("MINIMUM", 57, 2, None, 39),
        TfliteOp("PADV2", 60, 3, None, 43),
        TfliteOp("SLICE", 65, 3, None, 48),
        TfliteOp("TRANSPOSE_CONV", 67, 4, None, 49, _STRIDES),
        TfliteOp("LOG", 73, 1, elementwise.lookup(_log)),
        TfliteOp("SUM", 74, 2, None, 27, _REDUCE),
        TfliteOp("RSQRT", 76, 1, elementwise.rsqrt),
        TfliteOp("REDUCE_MAX", 82, 2, None, 27, _REDUCE),
        TfliteOp("REDUCE_MIN", 89, 2, None, 27, _REDUCE),
        TfliteOp("RESIZE_NEAREST_NEIGHBOR", 97, 2, None, 74, _RESIZE),
        TfliteOp("LEAKY_RELU", 98, 1, elementwise.leaky_relu, 75, ("alpha",)),
        TfliteOp("MIRROR_PAD", 100, 2, None, 77, ("mode",)),
        TfliteOp("ABS", 101, 1, elementwise.absolute, 78),
        TfliteOp("HARD_SWISH", 117, 1, elementwise.hard_swish, 91),
        TfliteOp("BATCH_MATMUL", 126, 2, None, 101),
        TfliteOp("RELU_0_TO_1", 152, 1),
    )
}


# ------------------------------------------------------------------------------------------------------- element types

# Per-tensor int8 activations, per-channel weights, int32 biases; shapes and axes are constant int32. TFLite's
# quantization specification requires equal input and output parameters for data movement and min/max, a zero point of 0
# for weights, and scale 1/256 with zero point -128 for softmax.
_CLASSES = {"B": "qi8", "weight": "qi8 ci8", "bias": "i32 qi32 ci32"}
_CONV_TYPES = "qi8 weight#~ bias#~ -> qi8"
SIGNATURES = Signatures(_CLASSES, {
    "CONV_2D DEPTHWISE_CONV_2D": _CONV_TYPES,
    "TRANSPOSE_CONV": "i32# weight#~ qi8 bias#~ -> qi8",
    "FULLY_CONNECTED": "qi8 qi8#~ bias#~ -> qi8",
    "BATCH_MATMUL ADD SUB MUL": "qi8 qi8 -> qi8",
    "PRELU": "qi8 qi8 -> qi8",
    "MAXIMUM MINIMUM": "B= B= -> B=",
    "ABS EXP HARD_SWISH LEAKY_RELU LOG LOGISTIC RELU RELU6 RELU_N1_TO_1 RELU_0_TO_1 RSQRT SOFTMAX TANH": "qi8 -> qi8",
    "AVERAGE_POOL_2D MAX_POOL_2D": "B= -> B=",
    "CONCATENATION": "B=* -> B=",
    "MEAN SUM": "qi8 i32# -> qi8",
    "MIRROR_PAD REDUCE_MAX REDUCE_MIN RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR TRANSPOSE": "B= i32# -> B=",
    "SLICE": "B= i32# i32# -> B=",
    "PADV2": "B= i32# B=# -> B=",
})  # fmt: skip
_CHANNEL_AXES = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "TRANSPOSE_CONV": 0}  # of channels, in weights
_SOFTMAX_QPARAMS = (1 / 256, -128)  # scale and zero point of softmax


def check_types(op: Op, name: str) -> None:
    """Raise ``FormatError`` unless an operator's element types and scales match its signature."""
    inputs = [(f"inputs[{i}]", value) for i, value in enumerate(op.args["inputs"])]
    SIGNATURES.check(name, inputs, op)
    out = op.outputs[0]
    assert out is not None and out.q is not None
    if (out.q.qmin, out.q.qmax) != (-128, 127):
        raise FormatError("must use all of int8", where="result", value=(out.q.qmin, out.q.qmax))
    if name in _CHANNEL_AXES:
        axis = op.args["inputs"][1].q.axis
        if axis not in (None, _CHANNEL_AXES[name]):
            rule = f"must have a scale for each slice of dimension {_CHANNEL_AXES[name]}"
            raise FormatError(rule, where="inputs[1]", value=axis)
    if name == "SOFTMAX" and (out.q.scale, out.q.zero_point) != _SOFTMAX_QPARAMS:
        qparams = (out.q.scale, out.q.zero_point)
        raise FormatError("must have a scale of 1/256 and a zero point of -128", where="result", value=qparams)
