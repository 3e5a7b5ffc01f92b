"""Table of the TOSA 1.0 operators that Edgewright emits: operands, attributes, and the reference of the few that
neither ``to_core.py`` translates nor ``int_rules.py`` defines.

Their kinds are ``tosa.<name>``. Tensor operands come first, in the order of the specification; constants that the
specification passes as tensors (zero points, shapes, shifts) are plain arguments here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.signatures import Signatures, element_code

PREFIX = "tosa."


@dataclass(frozen=True)
class TosaOp:
    """One operator.

    ``tensors``: operands that are Values. ``reference``: of what is neither translated nor defined, by argument names.
    ``zeros``: zero points, with the operand (or ``output``) whose type they
    have. ``shapes``: lists of integers that the specification passes as operands. ``attributes``: attributes of the
    operator. ``extra``: arguments that determine the result type, or that the serializer handles itself.
    """

    name: str
    tensors: tuple[str, ...]
    reference: Callable[..., Any] | None = None
    zeros: tuple[tuple[str, str], ...] = ()
    shapes: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()

    @property
    def operands(self) -> tuple[str, ...]:
        """Everything the specification passes as a tensor, in its order."""
        zeros = tuple(name for name, _ in self.zeros)
        if self.name == "pad":  # its shape operand is between two tensors
            return ("input", "padding", "value")
        return (*self.tensors, *zeros, *self.shapes, *(("shift",) if self.name == "mul" else ()))


def _unary(name: str, *attributes: str) -> TosaOp:
    return TosaOp(name, ("input",), attributes=attributes)


def _binary(name: str, *attributes: str) -> TosaOp:
    return TosaOp(name, ("a", "b"), attributes=attributes)


def _accumulate(a: Array, b: Array, a_zp: int, b_zp: int) -> Array:
    """A matrix product of integers, exact in float64: accumulators have 48 bits at most."""
    return (a.astype(np.float64) - a_zp) @ (b.astype(np.float64) - b_zp)


def _pad(input: Array, value: Array, padding: Sequence[int]) -> Array:
    """With an integer that the core operator, whose padding is in float32, does not have."""
    pairs = [(padding[2 * i], padding[2 * i + 1]) for i in range(input.ndim)]
    return np.pad(input, pairs, constant_values=value.ravel()[0])


_CONVOLUTION: dict[str, Any] = {
    "tensors": ("input", "weight", "bias"), "zeros": (("input_zp", "input"), ("weight_zp", "weight")),
}  # fmt: skip
_WINDOW = ("pad", "stride", "dilation")

FLOAT_FUNCTIONS = tuple("exp log ceil floor sin cos tanh erf reciprocal rsqrt sigmoid".split())  # noqa: SIM905

TOSA: dict[str, TosaOp] = {
    op.name: op
    for op in (
        TosaOp("conv2d", attributes=_WINDOW, **_CONVOLUTION),
        TosaOp("conv3d", attributes=_WINDOW, **_CONVOLUTION),
        TosaOp("depthwise_conv2d", attributes=_WINDOW, **_CONVOLUTION),
        TosaOp("transpose_conv2d", attributes=("out_pad", "stride"), **_CONVOLUTION),
        TosaOp("matmul", ("a", "b"), _accumulate, (("a_zp", "a"), ("b_zp", "b"))),
        TosaOp("max_pool2d", ("input",), attributes=("kernel", "stride", "pad")),
        TosaOp("avg_pool2d", ("input",), None, (("input_zp", "input"), ("output_zp", "output")),
               attributes=("kernel", "stride", "pad")),
        TosaOp("resize", ("input",), shapes=("scale", "offset", "border"), attributes=("mode",)),
        TosaOp("rescale", ("input", "multiplier", "shift"), None, (("input_zp", "input"), ("output_zp", "output")),
               attributes=("rounding", "per_channel"), extra=("dtype",)),
        TosaOp("table", ("input", "table")),
        _unary("clamp", "min_val", "max_val"),
        *map(_unary, ("abs", "clz", "bitwise_not", "logical_not", *FLOAT_FUNCTIONS, "identity")),
        TosaOp("negate", ("input",), None, (("input_zp", "input"), ("output_zp", "output"))),
        TosaOp("cast", ("input",), lambda input, dtype: input.astype(dtype), extra=("dtype",)),
        *map(_binary, ("add", "sub", "pow", "maximum", "minimum", "intdiv")),
        TosaOp("mul", ("a", "b"), extra=("shift",)),
        _binary("arithmetic_right_shift", "round"),
        *map(_binary, ("logical_left_shift", "logical_right_shift", "bitwise_and", "bitwise_or", "bitwise_xor",
                       "logical_and", "logical_or", "logical_xor", "equal", "greater", "greater_equal")),
        TosaOp("select", ("condition", "on_true", "on_false")),
        *(_unary(name, "axis") for name in ("reduce_sum", "reduce_max", "reduce_min", "reduce_any", "reduce_all",
                                            "argmax", "reverse")),
        TosaOp("concat", ("inputs",), attributes=("axis",)),
        TosaOp("pad", ("input", "value"), _pad, shapes=("padding",)),
        TosaOp("reshape", ("input",), shapes=("shape",)),
        TosaOp("slice", ("input",), shapes=("start", "size")),
        TosaOp("tile", ("input",), shapes=("multiples",)),
        _unary("transpose", "perms"),
        TosaOp("gather", ("values", "indices")), TosaOp("scatter", ("values", "indices", "input")),
    )
}  # fmt: skip


# ------------------------------------------------------------------------------------------------------- element types

# As in the tables of the specification (1.0). ``i64`` stands for its 48-bit integers. The only float type is ``f32``,
# as in host twins. Quantization parameters are not part of TOSA; those of a graph's inputs and outputs are metadata for
# callers.
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
_CONVOLUTION_TYPES = "i8 i8# i32# -> i32 | i16 i8# i64# -> i64 | f32 f32# f32# -> f32"
SIGNATURES = Signatures(_CLASSES, {
    "conv2d conv3d depthwise_conv2d transpose_conv2d": _CONVOLUTION_TYPES,
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
    " ".join(FLOAT_FUNCTIONS): "f32 -> f32",
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
