"""Element types of TOSA operators, as in the tables of the specification (1.0).

``i64`` stands for the specification's 48-bit integers. The only float type is ``f32``, as in host twins. Quantization
parameters are not part of TOSA; those of a graph's inputs and outputs are metadata for callers.
"""

from __future__ import annotations

from edgewright.backends.ethos_u.dialect.table import PREFIX, TOSA
from edgewright.ir.graph import Op, Value
from edgewright.ir.signatures import Signatures, element_code

_CLASSES = {
    "A": "i8 i16 f32",
    "B": "bool i8 i16 i32 f32",  # data movement
    "I": "i8 i16 i32",
    "N": "i32 f32",
    "R": "i8 i16 i32 f32",
    "any": "bool i8 i16 i32 f32",
    "given": "i8 i16 i32 u8 u16",
    "made": "i8 i16 i32 u8 u16",
}
_CONVOLUTION = "i8 i8 i32 -> i32 | i16 i8 i64 -> i64 | f32 f32 f32 -> f32"
SIGNATURES = Signatures(_CLASSES, {
    "conv2d conv3d depthwise_conv2d transpose_conv2d": _CONVOLUTION,
    "matmul": "i8 i8 -> i32 | i16 i16 -> i64 | f32 f32 -> f32",
    "max_pool2d avg_pool2d clamp": "A -> A",
    "argmax": "A -> i32",
    "resize.nearest": "A -> A",
    "resize.bilinear": "i8 -> i32 | i16 -> i64 | f32 -> f32",
    "rescale": "given i32# i8# -> made | given i16# i8# -> made | i64 i16# i8# -> made",
    "table": "i8 i8# -> i8 | i16 i16# -> i32",
    "abs": "N -> N",
    "clz": "i32 -> i32",
    "bitwise_not": "I -> I",
    "logical_not": "bool -> bool",
    "exp log ceil floor sin cos tanh erf reciprocal rsqrt sigmoid": "f32 -> f32",
    "identity reshape reverse slice tile transpose": "B -> B",
    "negate reduce_max reduce_min": "R -> R",
    "cast": "any -> any",
    "add sub maximum minimum": "N N -> N",
    "mul": "I I -> i32 | f32 f32 -> f32",
    "pow": "f32 f32 -> f32",
    "intdiv": "i32 i32 -> i32",
    "arithmetic_right_shift logical_left_shift logical_right_shift bitwise_and bitwise_or bitwise_xor": "I I -> I",
    "logical_and logical_or logical_xor": "bool bool -> bool",
    "equal greater greater_equal": "N N -> bool",
    "select": "bool B B -> B",
    "reduce_sum": "N -> N",
    "reduce_any reduce_all": "bool -> bool",
    "concat": "B* -> B",
    "pad": "B B# -> B",
    "gather": "R i32 -> R",
    "scatter": "R i32 R -> R",
}, element_code)  # fmt: skip


def check_types(op: Op) -> None:
    """Raise ``FormatError`` unless the element types of an operator are valid."""
    name = op.kind.removeprefix(PREFIX)
    operands: list[tuple[str, Value | None]] = []
    for argument in TOSA[name].tensors:
        operand = op.args[argument]
        if isinstance(operand, list | tuple):
            operands += [(f"{argument}[{i}]", value) for i, value in enumerate(operand)]
        else:
            operands.append((argument, operand))
    SIGNATURES.check(f"resize.{op.args['mode']}" if name == "resize" else name, operands, op)
