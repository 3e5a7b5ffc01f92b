"""Element types of core operators that files may contain.

Floats are float32 or float16. int8 and uint8 activations are quantized per tensor; data movement and max pooling keep
their parameters. int8 weights are symmetric, per tensor or per output channel; biases are int32 in the scale of the
accumulator. Only linear layers and convolutions read dynamically quantized activations (``di8``).
"""

from __future__ import annotations

from edgewright.errors import FormatError
from edgewright.ir.graph import Op, Value
from edgewright.ir.signatures import Signatures

_CLASSES = {
    "F": "f32 f16",
    "float": "f32 f16",
    "B": "qi8 qu8",
    "byte": "qi8 qu8",
    "M": "f32 f16 bf16 i8 u8 i16 u16 i32 u32 i64 bool qi8 qu8 qi32",
    "weight": "qi8 ci8",
    "rows": "qi8 ci8 bi8",
    "bias": "qi32 ci32",
}
_FUNCTIONS = """sigmoid tanh exp log sqrt abs neg floor ceil sin cos square gelu gelu_tanh rsqrt hardswish leaky_relu
                elu softmax"""
_FILTERED = "float! float float? -> float | B! weight#~ bias#~? -> B"
_DYNAMIC = "di8 rows#~ float#? -> float"
SIGNATURES = Signatures(_CLASSES, {
    "add sub mul div maximum minimum": "F F -> F | B B -> B",
    _FUNCTIONS: "F -> F | B -> B",
    "round_to_fp16 round_to_bf16": "f32 -> f32",
    "prelu": "F F -> F",
    "clamp": "F -> F | B -> B",
    "clone permute view slice": "M= -> M=",
    "pad": "F -> F | B= -> B=",
    "cat": "M=* -> M=",
    "convert": "float -> float | float -> byte | byte -> float | byte -> byte | float -> di8",
    "linear conv2d": f"{_FILTERED} | float! rows# float#? -> float | {_DYNAMIC}",
    "depthwise_conv2d conv_transpose2d": f"{_FILTERED} | {_DYNAMIC}",
    "bmm": "F F -> F",
    "max_pool2d": "F -> F | B= -> B=",
    "avg_pool2d global_avg_pool2d upsample_bilinear2d": "F -> F | B -> B",
})  # fmt: skip
OPERANDS = {
    **dict.fromkeys(("add", "sub", "mul", "div", "maximum", "minimum", "bmm"), ("self", "other")),
    **dict.fromkeys(("linear", "conv2d", "depthwise_conv2d", "conv_transpose2d"), ("input", "weight", "bias")),
    "prelu": ("self", "weight"), "cat": ("tensors",), "upsample_bilinear2d": ("input",),
}  # fmt: skip
_CHANNELS = {"linear": 0, "conv2d": 0, "depthwise_conv2d": 3, "conv_transpose2d": 0}  # dimension of weights


def check_types(op: Op) -> None:
    """Raise ``FormatError`` unless an operator's element types are those of its row."""
    operands: list[tuple[str, Value | None]] = []
    for name in OPERANDS.get(op.name, ("self",)):
        argument = op.args.get(name)
        if isinstance(argument, list | tuple):
            operands += [(f"{name}[{i}]", value) for i, value in enumerate(argument)]
        else:
            operands.append((name, argument))
    SIGNATURES.check(op.name, operands, op)
    if op.name in _CHANNELS:
        _check_axis(op.args["weight"], 1 if op.args.get("transposed") else _CHANNELS[op.name])


def _check_axis(weight: Value, axis: int) -> None:
    """Scales are for output channels, and so are those of biases."""
    if weight.q is not None and weight.q.axis not in (None, axis):
        raise FormatError(f"must have a scale for each slice of dimension {axis}", where="weight", value=weight.q.axis)
