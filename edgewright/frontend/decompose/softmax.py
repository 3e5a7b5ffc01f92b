"""Rules for the softmax of attention, which gives nothing where every score is masked.

PyTorch decomposes it into a softmax and a choice between that and zero. Where no row can be masked as a whole it is
a plain softmax; else that of a mask without such rows, times zero in them. Which rows those are is told by the mask
alone: what computes scores stays in one piece.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgewright.frontend.decompose.canonical import dtype_of, rank_of, rule, to_dtype
from edgewright.frontend.rewriter import Rewriter

aten = torch.ops.aten
_NEVER = float("-inf")
_LARGE = 1 << 20  # elements of a mask: it would be four megabytes of the file
_MOVES = (
    "view", "_unsafe_view", "reshape", "expand", "permute", "transpose", "t", "unsqueeze", "squeeze", "clone", "slice",
    "select", "_to_copy",
)  # fmt: skip
_PRODUCTS = ("bmm", "mm", "matmul", "linear", "dequantize_per_tensor", "dequantize_per_channel", "dequantize_affine")


def _name(node: Any) -> str:
    """Of the operator that a node calls, whatever its overload and whether it copies."""
    target = getattr(node, "target", None)
    named = isinstance(target, torch._ops.OpOverload)
    return str(target).split(".")[1].removesuffix("_copy") if named else ""


@rule(aten._safe_softmax.default)
def safe_softmax(rw: Rewriter, x: fx.Node, dim: int, dtype: torch.dtype | None = None) -> Any:
    if not rank_of(x):
        return NotImplemented
    x, dim = to_dtype(rw, x, dtype), dim % rank_of(x) - rank_of(x)
    scores, mask = _parts(x, dim)
    alive, rest = (None, None) if mask is None else _without_dead_rows(rw, mask, dim)
    if rest is not None:
        x = rest if scores is None else rw.call(aten.add.Tensor, scores, rest)
    shares = rw.call(aten._softmax.default, x, dim, False)
    return shares if alive is None else rw.call(aten.mul.Tensor, shares, to_dtype(rw, alive, dtype_of(x)))


def _parts(x: fx.Node, dim: int) -> tuple[fx.Node | None, fx.Node | None]:
    """The scores, and what is added to mask them; what may be either is a mask."""
    if _is_product(x) or not dtype_of(x).is_floating_point:
        return x, None
    if x.target is aten.add.Tensor and not x.kwargs and all(isinstance(a, fx.Node) for a in x.args):
        for scores, mask in (x.args, x.args[::-1]):
            if _is_product(scores) and rank_of(mask) >= -dim and dtype_of(mask).is_floating_point:  # type: ignore[arg-type]
                return scores, mask  # type: ignore[return-value]
    return None, x


def _is_product(node: Any) -> bool:
    """True of products and integers' values, moved and scaled: of finite numbers, they are finite."""
    while isinstance(node, fx.Node) and node.op == "call_function":
        name = _name(node)
        if name in _PRODUCTS:
            return True
        if name not in _MOVES and node.target not in (aten.mul.Scalar, aten.div.Scalar):
            return False
        node = node.args[0]
    return False


def _without_dead_rows(rw: Rewriter, mask: fx.Node, dim: int) -> tuple[fx.Node | None, fx.Node | None]:
    """Which rows are not masked as a whole, and the mask with nothing in the others; None where it does as it is."""
    key = "rows that are not masked", mask, dim
    if key not in rw.made:
        value = rw.known.value(mask)
        rw.made[key] = _asked(rw, mask, dim) if value is None else _told(rw, mask, value, dim)
    made: tuple[fx.Node | None, fx.Node | None] = rw.made[key]
    return made


def _asked(rw: Rewriter, mask: fx.Node, dim: int) -> tuple[fx.Node, fx.Node]:
    """Of a mask that is known when the program runs."""
    alive = rw.call(aten.any.dim, _unmasked(rw, mask, dim), dim, True)
    return alive, rw.call(aten.where.self, alive, mask, rw.scalar(0.0, dtype_of(mask), mask))


def _told(rw: Rewriter, mask: fx.Node, value: torch.Tensor, dim: int) -> tuple[fx.Node | None, fx.Node | None]:
    """Of a mask that is known now: computed ones need not be computed again, unless they are large."""
    dead = (value == _NEVER).all(dim, keepdim=True)
    if rw.hold is None or value.numel() > _LARGE:
        return _asked(rw, mask, dim) if bool(dead.any()) else (None, None)
    if not bool(dead.any()):
        return None, rw.hold(value) if mask.op == "call_function" else None
    return rw.hold((~dead).to(value.dtype)), rw.hold(value.masked_fill(dead, 0))


def _unmasked(rw: Rewriter, mask: fx.Node, dim: int) -> Any:
    """Where a mask is not minus infinity. One that was made of truths is told by those: of quantized ones, minus
    infinity is a number."""
    if mask.target is aten.where.self:
        condition, kept, never = mask.args
        some, all_of = (rw.known.value(n) for n in (kept, never))  # type: ignore[arg-type]
        known = some is not None and all_of is not None and rank_of(condition) >= -dim  # type: ignore[arg-type]
        if known and not bool((some == _NEVER).any()) and bool((all_of == _NEVER).all()):
            return condition
    return rw.call(aten.ne.Scalar, mask, _NEVER)


# --------------------------------------------------------------------------------------------- as it is decomposed


@rule(aten.where.self)
def decomposed_softmax(rw: Rewriter, condition: fx.Node, nothing: fx.Node, shares: fx.Node) -> Any:
    """``where(all elements are minus infinity, 0, softmax)``."""
    if _name(shares) not in ("_softmax", "softmax") or not _is_zero(nothing):
        return NotImplemented
    x, dim = shares.args[:2]
    if dtype_of(x) != dtype_of(shares) or not rank_of(x):  # type: ignore[arg-type]
        return NotImplemented
    if _all_masked(condition) != (x, dim % rank_of(x)):  # type: ignore[operator,arg-type]
        return NotImplemented
    return rw.call(aten._safe_softmax.default, x, dim)


def _is_zero(node: Any) -> bool:
    if _name(node) in ("zeros", "zeros_like"):
        return True
    place = 0 if _name(node) == "scalar_tensor" else 1
    return _name(node) in ("full", "full_like", "scalar_tensor") and node.args[place] == 0


def _all_masked(node: Any) -> tuple[Any, int] | None:
    """The tensor and the dimension of which a truth says that all elements are minus infinity."""
    if _name(node) == "all":
        reduced, each = node, node.args[0]
    elif _name(node) == "logical_not" and _name(node.args[0]) == "any":  # none is another
        reduced, each = node.args[0], node.args[0].args[0]
        each = each.args[0] if _name(each) == "logical_not" else None
    else:
        return None
    if _name(each) != "eq" or each.args[1] != _NEVER or len(reduced.args) < 3 or reduced.args[2] is not True:
        return None
    dims = reduced.args[1] if isinstance(reduced.args[1], list | tuple) else [reduced.args[1]]
    x = each.args[0]
    return (x, dims[0] % rank_of(x)) if len(dims) == 1 and rank_of(x) else None
