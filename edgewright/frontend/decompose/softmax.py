"""Softmax of masked scores: constant masks are added, and ``_safe_softmax``, whose fully masked rows are zero.

PyTorch decomposes it into a softmax and a ``where`` between that and zero. If no row can be fully masked it is a plain
softmax; otherwise the mask is replaced by 0 in fully masked rows, and these rows of the result are multiplied by zero.
Which rows those are depends on the mask alone, so that the pattern that computes the scores stays intact for fusion.

Scores in which a constant condition selects what is masked (``masked_fill``, ``where``) become a sum with a constant,
which every backend has.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgewright.frontend.decompose.canonical import dtype_of, rank_of, rule, selects_itself, to_dtype
from edgewright.frontend.rewriter import Rewriter
from edgewright.ir.aten.ops import OPS
from edgewright.ir.aten.table import OpClass

aten = torch.ops.aten
_MASKED = float("-inf")
_SOFTMAX = ("softmax", "_softmax", "_safe_softmax", "log_softmax", "_log_softmax")
_MAX_FILL = -1e9  # numbers up to this mask a score, whatever it is
_MAX_MASK = 1 << 20  # elements of a mask: four megabytes of the file


def _op_name(node: Any) -> str:
    """The name of the operator that a node calls, without overload and ``_copy`` suffix."""
    target = getattr(node, "target", None)
    named = isinstance(target, torch._ops.OpOverload)
    return str(target).split(".")[1].removesuffix("_copy") if named else ""


@rule(aten._safe_softmax.default)
def safe_softmax(rw: Rewriter, x: fx.Node, dim: int, dtype: torch.dtype | None = None) -> Any:
    if not rank_of(x):
        return NotImplemented
    x, dim = to_dtype(rw, x, dtype), dim % rank_of(x) - rank_of(x)
    scores, mask = _split_mask(x, dim)
    live_rows, finite_mask = (None, None) if mask is None else _without_masked_rows(rw, mask, dim)
    if finite_mask is not None:
        x = finite_mask if scores is None else rw.call(aten.add.Tensor, scores, finite_mask)
    weights = rw.call(aten._softmax.default, x, dim, False)
    return weights if live_rows is None else rw.call(aten.mul.Tensor, weights, to_dtype(rw, live_rows, dtype_of(x)))


def _split_mask(x: fx.Node, dim: int) -> tuple[fx.Node | None, fx.Node | None]:
    """The scores and the additive mask; a tensor that may be either is treated as a mask."""
    if _is_product(x) or not dtype_of(x).is_floating_point:
        return x, None
    if x.target is aten.add.Tensor and not x.kwargs and all(isinstance(a, fx.Node) for a in x.args):
        for scores, mask in (x.args, x.args[::-1]):
            if _is_product(scores) and rank_of(mask) >= -dim and dtype_of(mask).is_floating_point:  # type: ignore[arg-type]
                return scores, mask  # type: ignore[return-value]
    return None, x


def _is_product(node: Any) -> bool:
    """True for matrix products and dequantized values, possibly reshaped and scaled: finite if their inputs are."""
    while isinstance(node, fx.Node) and node.op == "call_function":
        if OpClass.PRODUCT in OPS.classes(node.target) or _op_name(node).startswith("dequantize"):
            return True
        if not OPS.passes_on(node.target) and node.target not in (aten.mul.Scalar, aten.div.Scalar):
            return False
        node = node.args[0]
    return False


def _without_masked_rows(rw: Rewriter, mask: fx.Node, dim: int) -> tuple[fx.Node | None, fx.Node | None]:
    """Which rows are not fully masked, and the mask with zeros in the fully masked ones; None where none is needed."""
    key = "rows that are not masked", mask, dim
    if key not in rw.rule_cache:
        value = rw.constants.value(mask)
        rw.rule_cache[key] = _runtime_mask(rw, mask, dim) if value is None else _constant_mask(rw, mask, value, dim)
    result: tuple[fx.Node | None, fx.Node | None] = rw.rule_cache[key]
    return result


def _runtime_mask(rw: Rewriter, mask: fx.Node, dim: int) -> tuple[fx.Node, fx.Node]:
    """For a mask that is computed at run time."""
    live_rows = rw.call(aten.any.dim, _unmasked_elements(rw, mask, dim), dim, True)
    return live_rows, rw.call(aten.where.self, live_rows, mask, rw.scalar(0.0, dtype_of(mask), mask))


def _constant_mask(rw: Rewriter, mask: fx.Node, value: torch.Tensor, dim: int) -> tuple[fx.Node | None, fx.Node | None]:
    """For a constant mask: it replaces the computation of the mask unless it is large."""
    fully_masked = (value == _MASKED).all(dim, keepdim=True)
    if rw.add_constant is None or value.numel() > _MAX_MASK:
        return _runtime_mask(rw, mask, dim) if bool(fully_masked.any()) else (None, None)
    if not bool(fully_masked.any()):
        return None, rw.add_constant(value) if mask.op == "call_function" else None
    return rw.add_constant((~fully_masked).to(value.dtype)), rw.add_constant(value.masked_fill(fully_masked, 0))


def _unmasked_elements(rw: Rewriter, mask: fx.Node, dim: int) -> Any:
    """Where a mask is not minus infinity. A mask selected by a bool condition uses that condition: after quantization
    minus infinity becomes a finite number."""
    if mask.target is aten.where.self:
        condition, unmasked, masked = mask.args
        unmasked_value, masked_value = (rw.constants.value(n) for n in (unmasked, masked))  # type: ignore[arg-type]
        is_constant = unmasked_value is not None and masked_value is not None and rank_of(condition) >= -dim  # type: ignore[arg-type]
        if is_constant and not bool((unmasked_value == _MASKED).any()) and bool((masked_value == _MASKED).all()):
            return condition
    return rw.call(aten.ne.Scalar, mask, _MASKED)


# ------------------------------------------------------------------------------------------- PyTorch's decomposition


def _decomposed_softmax(rw: Rewriter, condition: fx.Node, zero: fx.Node, weights: fx.Node) -> Any:
    """Recover the operator from ``where(all elements are minus infinity, 0, softmax)``."""
    if _op_name(weights) not in ("_softmax", "softmax") or not _is_zero(rw, zero):
        return NotImplemented
    x, dim = weights.args[:2]
    if dtype_of(x) != dtype_of(weights) or not rank_of(x):  # type: ignore[arg-type]
        return NotImplemented
    if _all_masked(condition) != (x, dim % rank_of(x)):  # type: ignore[operator,arg-type]
        return NotImplemented
    return rw.call(aten._safe_softmax.default, x, dim)


def _is_zero(rw: Rewriter, node: Any) -> bool:
    if node.op == "get_attr":  # folded before quantization
        value = rw.constants.value(node)
        return value is not None and not bool(value.any())
    if _op_name(node) in ("zeros", "zeros_like"):
        return True
    position = 0 if _op_name(node) == "scalar_tensor" else 1
    return _op_name(node) in ("full", "full_like", "scalar_tensor") and node.args[position] == 0


def _all_masked(node: Any) -> tuple[Any, int] | None:
    """The tensor and the dimension for which a bool node computes that all elements are minus infinity."""
    if _op_name(node) == "all":
        reduced, comparison = node, node.args[0]
    elif _op_name(node) == "logical_not" and _op_name(node.args[0]) == "any":  # no element differs
        reduced, comparison = node.args[0], node.args[0].args[0]
        comparison = comparison.args[0] if _op_name(comparison) == "logical_not" else None
    else:
        return None
    if (
        _op_name(comparison) != "eq"
        or comparison.args[1] != _MASKED
        or len(reduced.args) < 3
        or reduced.args[2] is not True
    ):
        return None
    dims = reduced.args[1] if isinstance(reduced.args[1], list | tuple) else [reduced.args[1]]
    x = comparison.args[0]
    return (x, dims[0] % rank_of(x)) if len(dims) == 1 and rank_of(x) else None


# ------------------------------------------------------------------------------- masks selected by a constant condition


@rule(aten.where.self)
def where(rw: Rewriter, condition: fx.Node, selected: fx.Node, other: fx.Node) -> Any:
    if selects_itself(rw, condition, selected, other):
        return selected
    result = _decomposed_softmax(rw, condition, selected, other)
    masked, fill = rw.constants.value(condition), rw.constants.value(other)
    if result is not NotImplemented or masked is None or fill is None:
        return result
    return _add_mask(rw, selected, ~masked, fill)


@rule(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(rw: Rewriter, x: fx.Node, mask: fx.Node, value: Any) -> Any:
    masked, fill = rw.constants.value(mask), rw.constants.value(value) if isinstance(value, fx.Node) else value
    if masked is None or not isinstance(fill, int | float | torch.Tensor):
        return NotImplemented
    return _add_mask(rw, x, masked, torch.as_tensor(fill))


def _add_mask(rw: Rewriter, scores: fx.Node, masked: torch.Tensor, fill: torch.Tensor) -> Any:
    """Scores with a constant added where they are masked, if only softmaxes read the result."""
    readers = [] if rw.origin is None or _op_name(rw.origin) not in ("where", "masked_fill") else [*rw.origin.users]
    if not readers or any(_op_name(reader) not in _SOFTMAX for reader in readers) or rw.add_constant is None:
        return NotImplemented
    if not _is_product(scores) or masked.numel() > _MAX_MASK or fill.numel() != 1 or float(fill) > _MAX_FILL:
        return NotImplemented
    if any(_masks_row(masked, reader) for reader in readers):
        return NotImplemented  # its weights are equal, and those of a sum are not
    table = torch.zeros(masked.shape, dtype=dtype_of(scores)).masked_fill(masked, float(fill))
    return rw.call(aten.add.Tensor, scores, rw.add_constant(table))


def _masks_row(masked: torch.Tensor, softmax: fx.Node) -> bool:
    """True if a row of a softmax is masked entirely."""
    rank, dim = rank_of(softmax), softmax.args[1]
    assert isinstance(dim, int)
    position = dim % rank - rank if rank else 0
    return bool((masked.all(position) if masked.dim() >= -position > 0 else masked).any())
