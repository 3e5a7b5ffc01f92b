"""Table of the TOSA 1.0 operators that Edgewright emits: operands, attributes, and the reference of what
``int_rules.py`` does not define: floating point, convolutions, data movement.

Their kinds are ``tosa.<name>``. Tensor operands come first, in the order of the specification; constants that the
specification passes as tensors (zero points, shapes, shifts) are plain arguments here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.dialect import conv_pool
from edgewright.ir.aten.reference import special
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.signatures import Signatures, element_code

PREFIX = "tosa."


@dataclass(frozen=True)
class TosaOp:
    """One operator.

    ``tensors``: operands that are Values. ``reference``: takes arguments by name; None if ``int_rules.py`` defines the
    operator for all element types. ``zeros``: zero points, with the operand (or ``output``) whose type they
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


def _unary(name: str, function: Any = None, *attributes: str) -> TosaOp:
    reference = function and (lambda input, **rest: np.asarray(function(input, **rest)))
    return TosaOp(name, ("input",), reference, attributes=attributes)


def _binary(name: str, function: Any = None, *attributes: str) -> TosaOp:
    return TosaOp(name, ("a", "b"), function and (lambda a, b: np.asarray(function(a, b))), attributes=attributes)


def _clamp(input: Array, min_val: float, max_val: float) -> Array:
    return np.clip(input, min_val, max_val).astype(input.dtype)


def _pad(input: Array, value: Array, padding: Sequence[int]) -> Array:
    pairs = [(padding[2 * i], padding[2 * i + 1]) for i in range(input.ndim)]
    return np.pad(input, pairs, constant_values=value.ravel()[0])


def _slice(input: Array, start: Sequence[int], size: Sequence[int]) -> Array:
    return np.ascontiguousarray(input[tuple(slice(a, a + n) for a, n in zip(start, size, strict=True))])


_CONVOLUTION: dict[str, Any] = {
    "tensors": ("input", "weight", "bias"), "zeros": (("input_zp", "input"), ("weight_zp", "weight")),
}  # fmt: skip
_WINDOW = ("pad", "stride", "dilation")

TOSA: dict[str, TosaOp] = {
    op.name: op
    for op in (
        TosaOp("conv2d", reference=conv_pool.conv2d, attributes=_WINDOW, **_CONVOLUTION),
        TosaOp("conv3d", reference=conv_pool.conv3d, attributes=_WINDOW, **_CONVOLUTION),
        TosaOp("depthwise_conv2d", reference=conv_pool.depthwise_conv2d, attributes=_WINDOW, **_CONVOLUTION),
        TosaOp("transpose_conv2d", reference=conv_pool.transpose_conv2d, attributes=("out_pad", "stride"),
               **_CONVOLUTION),
        TosaOp("matmul", ("a", "b"), conv_pool.matmul, (("a_zp", "a"), ("b_zp", "b"))),
        TosaOp("max_pool2d", ("input",), attributes=("kernel", "stride", "pad")),
        TosaOp("avg_pool2d", ("input",), conv_pool.avg_pool2d, (("input_zp", "input"), ("output_zp", "output")),
               attributes=("kernel", "stride", "pad")),
        TosaOp("resize", ("input",), shapes=("scale", "offset", "border"), attributes=("mode",)),
        TosaOp("rescale", ("input", "multiplier", "shift"), None, (("input_zp", "input"), ("output_zp", "output")),
               attributes=("rounding", "per_channel"), extra=("dtype",)),
        TosaOp("table", ("input", "table")),
        _unary("clamp", _clamp, "min_val", "max_val"),
        _unary("abs", np.abs), _unary("clz"), _unary("bitwise_not"),
        _unary("logical_not"), _unary("exp", np.exp), _unary("log", np.log),
        _unary("ceil", np.ceil), _unary("floor", np.floor), _unary("sin", np.sin), _unary("cos", np.cos),
        _unary("tanh", np.tanh), _unary("erf", special.erf), _unary("reciprocal", np.reciprocal),
        _unary("rsqrt", lambda input: 1 / np.sqrt(input)), _unary("sigmoid", lambda input: 1 / (1 + np.exp(-input))),
        _unary("identity", np.array),
        TosaOp("negate", ("input",), lambda input, **zeros: -input, (("input_zp", "input"), ("output_zp", "output"))),
        TosaOp("cast", ("input",), lambda input, dtype: input.astype(dtype), extra=("dtype",)),
        _binary("add", np.add), _binary("sub", np.subtract), _binary("pow", np.power),
        _binary("maximum", np.maximum), _binary("minimum", np.minimum), _binary("intdiv"),
        TosaOp("mul", ("a", "b"), lambda a, b, shift: np.asarray(a * b), extra=("shift",)),
        _binary("arithmetic_right_shift", None, "round"),
        _binary("logical_left_shift"), _binary("logical_right_shift"),
        _binary("bitwise_and"), _binary("bitwise_or"), _binary("bitwise_xor"),
        _binary("logical_and"), _binary("logical_or"), _binary("logical_xor"),
        _binary("equal", np.equal), _binary("greater", np.greater), _binary("greater_equal", np.greater_equal),
        TosaOp("select", ("condition", "on_true", "on_false"),
               lambda condition, on_true, on_false: np.where(condition, on_true, on_false)),
        _unary("reduce_sum", None, "axis"), _unary("reduce_max", None, "axis"), _unary("reduce_min", None, "axis"),
        _unary("reduce_any", None, "axis"), _unary("reduce_all", None, "axis"), _unary("argmax", None, "axis"),
        TosaOp("concat", ("inputs",), lambda inputs, axis: np.concatenate(inputs, axis=axis), attributes=("axis",)),
        TosaOp("pad", ("input", "value"), _pad, shapes=("padding",)),
        TosaOp("reshape", ("input",), lambda input, shape: input.reshape(shape), shapes=("shape",)),
        TosaOp("slice", ("input",), _slice, shapes=("start", "size")),
        TosaOp("tile", ("input",), shapes=("multiples",)), _unary("reverse", None, "axis"),
        _unary("transpose", lambda input, perms: np.ascontiguousarray(input.transpose(perms)), "perms"),
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
_CONVOLUTION_TYPES = "i8 i8 i32 -> i32 | i16 i8 i64 -> i64 | f32 f32 f32 -> f32"
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
