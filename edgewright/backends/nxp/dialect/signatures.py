"""Type signatures of TFLite operators: per-tensor int8 activations, per-channel weights, int32 biases.

Shapes and axes are constant int32. TFLite's quantization specification requires equal input and output parameters for
data movement and min/max, a zero point of 0 for weights, and scale 1/256 with zero point -128 for softmax.
"""

from __future__ import annotations

from edgewright.errors import FormatError
from edgewright.ir.graph import Op
from edgewright.ir.signatures import Signatures

_CLASSES = {"B": "qi8", "weight": "qi8 ci8", "bias": "i32 qi32 ci32"}
_CONV = "qi8 weight#~ bias#~ -> qi8"
SIGNATURES = Signatures(_CLASSES, {
    "CONV_2D DEPTHWISE_CONV_2D": _CONV,
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
