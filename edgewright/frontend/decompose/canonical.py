"""Canonicalization rules: composite and convenience operators in terms of operators with kernels.

A rule is called with the rewriter and the operator's arguments, and returns the result, or NotImplemented to leave the
call to the next stage. ``RULES`` is keyed by operator overload. Rules for neural network layers are in ``layers.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from edgewright.frontend.decompose.complex_numbers import check_cast
from edgewright.frontend.rewriter import Rewriter, is_dynamic
from edgewright.frontend.tensors import dim_order_of
from edgewright.ir.aten.ops import OPS
from edgewright.ir.aten.table import OpClass
from edgewright.ir.ports import ACT, INDEX

aten = torch.ops.aten
Rule = Callable[..., Any]
RULES: dict[Any, Rule] = {}


def rule(*ops: Any) -> Callable[[Rule], Rule]:
    """Register a function as the rule of operators."""

    def register(function: Rule) -> Rule:
        for op in ops:
            RULES[op] = function
        return function

    return register


def dtype_of(node: fx.Node) -> torch.dtype:
    dtype: torch.dtype = node.meta["val"].dtype
    return dtype


def rank_of(node: fx.Node) -> int:
    return int(node.meta["val"].dim())


# --------------------------------------------------------------------------------------------------- identities


@rule(
    aten.detach.default, aten.alias.default, aten.lift_fresh.default, aten.lift_fresh_copy.default,
    aten.contiguous.default, aten.positive.default, aten.detach_.default,
)  # fmt: skip
def identity(rw: Rewriter, x: fx.Node, *args: Any, **kwargs: Any) -> Any:
    memory_format = kwargs.get("memory_format")
    if memory_format not in (None, torch.contiguous_format, torch.preserve_format):
        return rw.call(aten.clone.default, x, memory_format=memory_format)
    return x


@rule(aten.dropout.default, aten.feature_dropout.default, aten.alpha_dropout.default)
def dropout(rw: Rewriter, x: fx.Node, p: float, train: bool) -> Any:
    return NotImplemented if train and p else x


@rule(aten.native_dropout.default)
def native_dropout(rw: Rewriter, x: fx.Node, p: float, train: bool | None) -> Any:
    if train is False:
        return [x, rw.call(aten.full.default, rw.shape(x), True, dtype=torch.bool)]
    return NotImplemented


def assertion(rw: Rewriter, *args: Any, **kwargs: Any) -> Any:
    """Drop export-time assertions: the runtime checks shapes against their bounds when inputs are set."""
    return None


for _name in (
    "_assert_scalar",
    "_assert_async",
    "_assert_tensor_metadata",
    "sym_constrain_range",
    "sym_constrain_range_for_size",
):
    _packet = getattr(aten, _name)
    for _overload in _packet.overloads():
        RULES[getattr(_packet, _overload)] = assertion


# ----------------------------------------------------------------------------------------------------- casts


@rule(aten.to.dtype, aten.to.dtype_layout, aten.to.device, aten.to.other, aten._to_copy.default, aten.type_as.default)
def cast(rw: Rewriter, x: fx.Node, *args: Any, **kwargs: Any) -> Any:
    dtype = next((a for a in (*args, kwargs.get("dtype")) if isinstance(a, torch.dtype)), None)
    other = next((a for a in args if isinstance(a, fx.Node)), None)
    if other is not None:
        dtype = dtype_of(other)
    memory_format = kwargs.get("memory_format")
    if memory_format not in (None, torch.preserve_format):
        if dtype in (None, dtype_of(x)):
            return rw.call(aten.clone.default, x, memory_format=memory_format)
        x = rw.call(aten.clone.default, x, memory_format=memory_format)
    return x if dtype in (None, dtype_of(x)) else to_dtype(rw, x, dtype)


def to_dtype(rw: Rewriter, x: fx.Node, dtype: torch.dtype | None) -> Any:
    """``x`` cast to another dtype."""
    if dtype is None or dtype_of(x) == dtype:
        return x
    check_cast(rw, x, dtype)
    val = x.meta["val"]
    with val.fake_mode:
        val = torch.empty_strided(val.shape, val.stride(), dtype=dtype)
    return rw.emit(aten._to_copy.default, (x,), {"dtype": dtype}, val=val)


# ------------------------------------------------------------------------------------------- scalar operands

_BINARY = [row for row in OPS.values() if {"self", "other"} <= row.ports.keys() and row.op_class is OpClass.ELEMENTWISE]
_SCALAR_OVERLOADS = {
    getattr(aten, row.name).Tensor: getattr(aten, row.name).Scalar
    for row in _BINARY
    if {f"aten.{row.name}.Tensor", f"aten.{row.name}.Scalar"} <= {*row.aten}
}
_COMPARISONS = {
    scalar
    for scalar in _SCALAR_OVERLOADS.values()
    for row in OPS.matching(str(scalar))
    if (row.ports["self"], row.ports["out"]) == (ACT, INDEX)
}
_SCALAR_OVERLOADS[aten.div.Tensor_mode] = aten.div.Scalar_mode
_SCALAR_OVERLOADS[aten.pow.Tensor_Tensor] = aten.pow.Tensor_Scalar


def _make_binary_rule(op: Any) -> Rule:
    scalar_op = _SCALAR_OVERLOADS.get(op)

    def lower(rw: Rewriter, a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(a, fx.Node) and isinstance(b, fx.Node) and _is_tensor(a) and _is_tensor(b):
            return NotImplemented
        if scalar_op is not None and isinstance(a, fx.Node) and _is_tensor(a):
            return rw.call(scalar_op, a, b, *args, **kwargs)
        like = a if isinstance(a, fx.Node) and _is_tensor(a) else b
        result_dtype = rw.fake(op, (a, b, *args), kwargs).dtype
        dtype = _scalar_dtype(like, result_dtype)
        operands = [v if isinstance(v, fx.Node) and _is_tensor(v) else rw.scalar(v, dtype, like) for v in (a, b)]
        return rw.call(op, *operands, *args, **kwargs)

    return lower


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _scalar_dtype(like: fx.Node, result_dtype: torch.dtype) -> torch.dtype:
    return result_dtype if result_dtype != torch.bool else dtype_of(like)


for _op in (
    *_SCALAR_OVERLOADS,
    *(getattr(aten, row.name).default for row in _BINARY if f"aten.{row.name}.default" in row.aten),
):
    RULES[_op] = _make_binary_rule(_op)


def _make_scalar_rule(op: Any) -> Rule:
    """Kernels of (tensor, scalar) compute in the tensor's dtype: cast an integer tensor if the scalar is a float."""

    def lower(rw: Rewriter, a: fx.Node, b: Any, *args: Any, **kwargs: Any) -> Any:
        number = b.meta["val"] if isinstance(b, fx.Node) else b
        is_float = isinstance(number, float | torch.SymFloat)
        if is_float and not (dtype_of(a).is_floating_point or dtype_of(a).is_complex):
            return rw.call(op, to_dtype(rw, a, torch.get_default_dtype()), b, *args, **kwargs)
        return NotImplemented

    return lower


for _op in _SCALAR_OVERLOADS.values():
    if _op not in _COMPARISONS:
        RULES[_op] = _make_scalar_rule(_op)


def _make_remainder_rule(fallback: Rule, multiply: Any) -> Rule:
    """Integer remainder has the sign of the divisor in torch; kernels return the sign of the dividend."""

    def lower(rw: Rewriter, a: Any, b: Any) -> Any:
        if not (isinstance(a, fx.Node) and _is_tensor(a)):
            return fallback(rw, a, b)
        if torch.result_type(a.meta["val"], b.meta["val"] if isinstance(b, fx.Node) else b).is_floating_point:
            return fallback(rw, a, b)
        quotient = rw.call(aten.div.Tensor_mode, a, b, rounding_mode="floor")
        return rw.call(aten.sub.Tensor, a, rw.call(multiply, quotient, b))

    return lower


def _make_idempotent_rule(op: Any, otherwise: Rule | None) -> Rule:
    def lower(rw: Rewriter, a: Any, b: Any) -> Any:
        if a is b and isinstance(a, fx.Node) and _is_tensor(a) and rw.fake(op, (a, b)).dtype == dtype_of(a):
            return a
        return otherwise(rw, a, b) if otherwise is not None else NotImplemented

    return lower


for _overload in (o for row in OPS.values() if row.idempotent for o in row.aten):
    _, _name, _overload = _overload.split(".")
    _op = getattr(getattr(aten, _name), _overload)
    RULES[_op] = _make_idempotent_rule(_op, RULES.get(_op))


def selects_itself(rw: Rewriter, condition: fx.Node, a: fx.Node, b: fx.Node) -> bool:
    """True for a choice between a tensor and itself, unless the condition enlarges it."""
    if a is not b or any(is_dynamic(v.meta["val"]) for v in (condition, a)):
        return False
    return bool(rw.fake(aten.where.self, (condition, a, b)).shape == a.meta["val"].shape)


RULES[aten.remainder.Scalar] = _make_remainder_rule(RULES[aten.remainder.Scalar], aten.mul.Scalar)
RULES[aten.remainder.Tensor] = _make_remainder_rule(RULES[aten.remainder.Tensor], aten.mul.Tensor)


# ------------------------------------------------------------------------------------------------------ views


def _make_reshape_rule(op: Any) -> Rule:
    def lower(rw: Rewriter, x: fx.Node, *args: Any, **kwargs: Any) -> Any:
        val = rw.fake(op, (x, *args), kwargs)
        if is_dynamic(val):
            return NotImplemented
        return rw.call(aten.view_copy.default, x, list(val.shape), val=val)

    return lower


for _op in (
    aten.flatten.using_ints, aten.unflatten.int, aten.view_as.default, aten.reshape_as.default, aten.squeeze.default,
):  # fmt: skip
    RULES[_op] = _make_reshape_rule(_op)


@rule(aten.chunk.default)
def chunk(rw: Rewriter, x: fx.Node, chunks: int, dim: int = 0) -> Any:
    size = rw.size(x, dim)
    if not isinstance(size, int):
        return NotImplemented
    return rw.call(aten.split_copy.Tensor, x, max(-(-size // chunks), 1), dim)


# Multi-output kernels do not resize their outputs: with dynamic sizes each output is a separate call.


@rule(aten.split_copy.Tensor)
def split(rw: Rewriter, x: fx.Node, size: Any, dim: int = 0) -> Any:
    if not is_dynamic(x.meta["val"]) or not isinstance(size, int):
        return NotImplemented
    count = len(rw.fake(aten.split.Tensor, (x, size, dim)))
    return [rw.call(aten.slice_copy.Tensor, x, dim, i * size, (i + 1) * size, 1) for i in range(count)]


@rule(aten.split_with_sizes_copy.default)
def split_with_sizes(rw: Rewriter, x: fx.Node, sizes: Any, dim: int = 0) -> Any:
    if not is_dynamic(x.meta["val"]):
        return NotImplemented
    parts, start = [], 0
    for size in sizes:
        end = rw.plus(start, size)
        parts.append(rw.call(aten.slice_copy.Tensor, x, dim, start, end, 1))
        start = end
    return parts


@rule(aten.unbind_copy.int)
def unbind(rw: Rewriter, x: fx.Node, dim: int = 0) -> Any:
    if not is_dynamic(x.meta["val"]):
        return NotImplemented
    return [rw.call(aten.select_copy.int, x, dim, i) for i in range(int(x.meta["val"].shape[dim]))]


@rule(aten.cat.default)
def single_cat(rw: Rewriter, tensors: Any, dim: int = 0) -> Any:
    """A concatenation of one tensor is that tensor; the kernel takes no tensors that are all empty."""
    if len(tensors) == 1:
        return tensors[0]
    if any(is_dynamic(t.meta["val"]) or t.meta["val"].numel() for t in tensors):
        return NotImplemented
    result = rw.fake(aten.cat.default, (tensors, dim))
    return rw.call(aten.full.default, list(result.shape), 0, dtype=result.dtype)


@rule(aten.fill.Scalar, aten.fill.Tensor)
def fill(rw: Rewriter, x: fx.Node, value: Any) -> Any:
    """Only the shape of the operand counts: a tensor that depends on no other."""
    number = rw.constants.value(value) if isinstance(value, fx.Node) else value
    if number is None or is_dynamic(x.meta["val"]) or dim_order_of(x.meta["val"]) != tuple(range(rank_of(x))):
        return NotImplemented
    number = number.item() if isinstance(number, torch.Tensor) else number
    return rw.call(aten.full.default, list(x.meta["val"].shape), number, dtype=dtype_of(x))
