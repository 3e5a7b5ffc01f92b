"""Definitions of dialects' integer operators that core operators do not express.

``Dialect.to_core`` translates to core operators what they can express. Of the operators that it leaves, the engine
compiles those that have

* an *elementwise rule* (``elementwise_rule``): the exact integer arithmetic of one element. Operators with rules are
  fused into trees that are one loop. If a tree reads a single tensor of 8 or 16 bits, a table of all its values may
  replace the arithmetic; ``tabulate`` registers operators that only a table can compute;
* or a *description* (``describes``): a function that returns one of the dataclasses below, such as ``IntReduction``.

All others run in numpy, as a step between compiled ones. So does an operator whose rule or description raises
``IntRangeError``: it may exceed 64 bits, its sizes are inconsistent, or there is no exact integer form.

A dialect's reference may run the same definitions in numpy (``ir/int_reference.py``) if tests compare it with the
vendor's own software. A dialect that has no such judge should write its reference independently.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, Union

import numpy as np

from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.int_arithmetic import Float, IntRangeError, RangedInt
from edgewright.ir.numerics import Numerics

Args = list[RangedInt]
Emit = Callable[[Any, Op, Args], RangedInt]  # the first argument is an IntArithmetic
Operands = Callable[[Op], list[Value]]
E = TypeVar("E", bound=Emit)


def result_of(op: Op) -> Value:
    """The first result of an operator."""
    out = op.outputs[0]
    assert out is not None
    return out


def dtype_range(value: Value) -> tuple[int, int]:
    """The smallest and largest value of a tensor's integer type."""
    if value.dtype is None or value.dtype.kind not in "biu":
        raise IntRangeError("float operand")
    if value.dtype.kind == "b":
        return 0, 1
    info: Any = np.iinfo(value.dtype)
    return int(info.min), int(info.max)


# --------------------------------------------------------------------------------------------------------- elementwise


@dataclass(frozen=True)
class ElementwiseRule:
    """``emit``: the arithmetic, or None if only a table can compute the operator. ``operands``: the tensors that are
    read element by element. ``fuses``: whether it may be part of a tree that no table computes."""

    emit: Emit | None
    operands: Operands
    fuses: bool


ELEMENTWISE: dict[str, ElementwiseRule] = {}


def input_list(op: Op) -> list[Value]:
    """The operands of dialects whose operators have one list of them."""
    return list(op.args["inputs"])


def elementwise_rule(*kinds: str, operands: Operands = input_list, fuses: bool = True) -> Callable[[E], E]:
    """Register a rule for operators of these kinds."""

    def register(emit: E) -> E:
        ELEMENTWISE.update(dict.fromkeys(kinds, ElementwiseRule(emit, operands, fuses)))
        return emit

    return register


def tabulate(*kinds: str, operands: Operands = input_list) -> None:
    """Register elementwise operators that only a table over all input values can compute."""
    for kind in kinds:
        ELEMENTWISE.setdefault(kind, ElementwiseRule(None, operands, False))


def elementwise_operands(op: Op) -> list[Value]:
    """The tensors that an operator with a rule reads element by element."""
    return ELEMENTWISE[op.kind].operands(op)


# -------------------------------------------------------------------------------------------------------- descriptions


ReduceEpilogue = Callable[[Any, RangedInt, Args], RangedInt]  # an IntArithmetic, the reduced value, extras


@dataclass(frozen=True)
class IntReduction:
    """A reduction of ``data`` over image windows or over ``axes``; ``finish`` requantizes the sum, maximum or minimum,
    unless it is the result itself.

    ``extras``: int32 constants per result, which ``finish`` gets.
    """

    data: Value
    kind: str  # sum, max or min
    finish: ReduceEpilogue | None = None
    axes: tuple[int, ...] = ()
    keepdims: bool = True
    window: tuple[int, ...] | None = None
    stride: tuple[int, ...] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)  # above, below, left, right
    zero: float = 0  # value of padding
    extras: tuple[Value, ...] = ()

    @property
    def count(self) -> int:
        """Elements per result."""
        return math.prod(self.window or (self.data.bound[a] for a in self.axes))


def reduce_axes(data: Value, axes: Sequence[int], keepdims: bool, out: Value) -> tuple[int, ...]:
    """The dimensions of a reduction, in order; raises unless the result has the matching shape."""
    rank = len(data.bound)
    reduced = tuple(sorted({int(a) % max(rank, 1) for a in axes}))
    shape = tuple(1 if d in reduced else n for d, n in enumerate(data.bound) if keepdims or d not in reduced)
    if shape != out.bound or not reduced or 0 in data.bound or any(int(a) >= rank for a in axes):
        raise IntRangeError("output shape mismatch")
    return reduced


def check_windows(
    data: Value, out: Value, window: Sequence[int], stride: Sequence[int], pads: Sequence[int] = (0, 0, 0, 0)
) -> None:
    """Raise unless windows over NHWC images give the result's shape and none lies in the padding alone."""
    if len(data.bound) != 4 or len(out.bound) != 4 or min(*window, *stride, *out.bound) < 1 or min(pads) < 0:
        raise IntRangeError("not an image")
    if (data.bound[0], data.bound[3]) != (out.bound[0], out.bound[3]):
        raise IntRangeError("batch or channels differ")
    for axis, (k, s) in enumerate(zip(window, stride, strict=True)):
        n, (before, after) = data.bound[1 + axis], pads[2 * axis : 2 * axis + 2]
        padded = n + before + after
        if max(before, after) >= k or (padded - k) // s + 1 != out.bound[1 + axis] or k > padded:
            raise IntRangeError("window does not match the output shape")


@dataclass(frozen=True)
class ResizeAxis:
    """For each result along a dimension the indices of two elements and their weights, both ``[2, results]``."""

    indices: Array
    weights: Array

    @classmethod
    def of(cls, indices: Array, weights: Array) -> ResizeAxis:
        """Build an axis; if both indices are equal the first gets the total weight."""
        merged = np.stack((weights.sum(axis=0), np.zeros_like(weights[1])))
        return cls(indices, np.where(indices[0] == indices[1], merged, weights))

    @classmethod
    def between(cls, low: Array, high: Array, upper_weight: Array, total_weight: int) -> ResizeAxis:
        """An axis of two neighbors whose weights add up to ``total_weight``."""
        return cls.of(np.stack((low, high)), np.stack((total_weight - upper_weight, upper_weight)))

    @property
    def weight_bound(self) -> int:
        """The largest sum of absolute weights."""
        return int(np.abs(self.weights).sum(axis=0).max(initial=0))


@dataclass(frozen=True)
class BilinearResize:
    """A bilinear resize of NHWC images: rows, columns, and the rounding of the weighted sum."""

    data: Value
    axes: tuple[ResizeAxis, ResizeAxis]  # rows, columns
    finish: Callable[[Any, RangedInt], RangedInt] | None = None  # of an IntArithmetic
    divisor: int = 1  # of float32 results


@dataclass(frozen=True)
class IndexGather:
    """Elements of ``data`` at indices known at compile time: the source index of each result along each dimension."""

    data: Value
    indices: Sequence[Array]


@dataclass(frozen=True)
class ArgMaxReduction:
    """int32 indices of the largest elements along ``axis``; ties go to the first."""

    data: Value
    axis: int


@dataclass(frozen=True)
class BatchedGather:
    """Rows of ``[batch, size, channels]`` values at ``[batch, count]`` int32 indices."""

    values: Value
    indices: Value


@dataclass(frozen=True)
class BatchedScatter:
    """``values`` with the rows at ``indices`` replaced; the inverse of ``BatchedGather``."""

    values: Value
    rows: Value
    indices: Value


@dataclass(frozen=True)
class AccumulatorConv:
    """A convolution of unpadded NHWC images to int32 accumulators.

    ``weights``: rows, columns, input channels (none if ``depthwise``), output channels, without zero point.
    """

    data: Value
    weights: Array
    bias: Array
    zero: int
    stride: tuple[int, int]
    dilation: tuple[int, int]
    depthwise: bool


@dataclass(frozen=True)
class FixedPointSoftmax:
    """int8 softmax along the last dimension by tables: ``exps`` of all 256 differences to the maximum (Q0.31), and
    ``summands``, the same in the format of the sum (``ir/fixed_point.py``)."""

    data: Value
    exps: Array
    summands: Array


@dataclass(frozen=True)
class FloatConversion:
    """A conversion between float32 and integers with one scale; one of the two functions."""

    data: Value
    dequantize: Callable[[Any, RangedInt], Float] | None = None
    quantize: Callable[[Any, Float], RangedInt] | None = None


Description = Union[
    IntReduction, BilinearResize, IndexGather, ArgMaxReduction, BatchedGather, BatchedScatter, AccumulatorConv,
    FixedPointSoftmax, FloatConversion,
]  # fmt: skip
Describe = Callable[[Op, Numerics], Description]
D = TypeVar("D", bound=Describe)
DESCRIPTIONS: dict[str, Describe] = {}
_INVALID = (IntRangeError, ValueError, LookupError, ArithmeticError)


def describes(*kinds: str) -> Callable[[D], D]:
    """Register the function that describes operators of these kinds."""

    def register(function: D) -> D:
        DESCRIPTIONS.update(dict.fromkeys(kinds, function))
        return function

    return register


def is_defined(kind: str) -> bool:
    """Whether operators of a kind have a rule or a description."""
    rule = ELEMENTWISE.get(kind)
    return kind in DESCRIPTIONS or (rule is not None and rule.emit is not None)


def describe(op: Op, numerics: Numerics) -> Description | None:
    """The description of an operator, or None if it has none."""
    function = DESCRIPTIONS.get(op.kind)
    try:
        return None if function is None else function(op, numerics)
    except _INVALID:
        return None
