"""Alias analysis for functionalization: which tensors share storage, and how writes reach them.

Every tensor of the exported graph owns a storage or is a view of one through a chain of view operators. A write
through a view becomes a new version of its storage (``select_scatter``, ``slice_scatter``); a view that is read
after a write is recomputed from the new version.
"""

# Functionalization turns a graph with views and in-place operators into one in which every node is a pure function.
# Each storage holds the node of its current contents and a version counter. A view records the operators that lead
# from the storage to it, outermost first, and the version at which its own node was computed.
#   read:  if the version is stale, replay the chain on the storage's current node.
#   write: replay the chain up to the last view, then apply the inverse of each view operator from the inside out:
#          w = select(slice(s)); w <- new  becomes  s' = slice_scatter(s, select_scatter(slice(s), new)).
# PyTorch's own functionalization uses the same scheme (aten/src/ATen/FunctionalStorageImpl.h and
# FunctionalInverses.cpp); it needs a full retrace, which loses node names and metadata, so it is only the fallback.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from edgewright.frontend.rewriter import Rewriter

aten = torch.ops.aten


class NeedsRetrace(Exception):  # noqa: N818  (not an error: the caller falls back)
    """The graph contains an alias pattern that the rewrites do not cover; the caller retraces it."""


@dataclass(eq=False)
class AliasedStorage:
    """A storage: the node that holds its current contents, and the number of writes so far."""

    current: Any
    version: int = 0


@dataclass(frozen=True)
class ViewOp:
    """One view operator: its arguments after the source tensor, and the result's index if it returns a list."""

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    index: int | None = None


@dataclass(eq=False)
class TensorAlias:
    """A tensor: its storage, the view operators that lead to it, and its node at the version of the last read."""

    storage: AliasedStorage
    view_ops: tuple[ViewOp, ...] = ()
    value: Any = None
    version: int = 0


class AliasTracker:
    """Maps each node of the exported graph to its storage and its current value."""

    def __init__(self, rewriter: Rewriter) -> None:
        self.rewriter = rewriter
        self._references: dict[fx.Node, TensorAlias] = {}
        self._view_lists: dict[fx.Node, tuple[fx.Node, ViewOp]] = {}

    def define(self, old: fx.Node, new: Any) -> None:
        """Record ``old`` as a tensor with its own storage (or not a tensor), with value ``new``."""
        self._references[old] = TensorAlias(AliasedStorage(new), (), new)

    def define_view(self, old: fx.Node, of: fx.Node, view: ViewOp, new: Any) -> None:
        """Record ``old`` as a view of another tensor."""
        reference = self._references[of]
        self._references[old] = TensorAlias(
            reference.storage, (*reference.view_ops, view), new, reference.storage.version
        )

    def define_views(self, old: fx.Node, of: fx.Node, view: ViewOp, new: Any) -> None:
        """Record ``old`` as a list of views of another tensor."""
        self.define(old, new)
        self._view_lists[old] = of, view

    def views(self, old: fx.Node) -> tuple[fx.Node, ViewOp] | None:
        """The source tensor of a list of views and the view operator; None if ``old`` is a list of tensors."""
        return self._view_lists.get(old)

    def define_same(self, old: fx.Node, of: fx.Node) -> None:
        """Record ``old`` as the same tensor as ``of``."""
        self._references[old] = self._references[of]

    def read(self, old: fx.Node) -> Any:
        """The node that holds the current contents of ``old``."""
        reference = self._references[old]
        if not reference.view_ops:
            return reference.storage.current
        if reference.version != reference.storage.version:
            value = reference.storage.current
            for view in reference.view_ops:
                value = self._apply(view, value)
            reference.value, reference.version = value, reference.storage.version
        return reference.value

    def _apply(self, view: ViewOp, value: Any) -> Any:
        result = self.rewriter.call(view.op, value, *view.args, **view.kwargs)
        return result if view.index is None else result[view.index]

    def write(self, old: fx.Node, new: Any) -> None:
        """Write ``new`` to ``old``: its storage gets a new version, so that every view sees the write."""
        reference = self._references[old]
        values = [reference.storage.current]
        for view in reference.view_ops[:-1]:
            values.append(self._apply(view, values[-1]))
        for view, outer in zip(reversed(reference.view_ops), reversed(values), strict=False):
            inverse = VIEW_INVERSES.get(view.op) if view.index is None else None
            if inverse is None:
                raise NeedsRetrace(f"a write through {view.op}")
            new = inverse(self.rewriter, outer, new, *view.args, **view.kwargs)
        reference.storage.current = new
        reference.storage.version += 1

    def final_write(self, old: fx.Node) -> Any:
        """The last value written to a placeholder's storage, or None if nothing writes to it."""
        base = self._references[old].storage
        return base.current if base.version else None


ViewInverse = Callable[..., Any]


def _unreshape(rewriter: Rewriter, outer: Any, new: Any, *args: Any, **kwargs: Any) -> Any:
    return rewriter.call(aten.view.default, new, rewriter.shape(outer), val=outer.meta["val"])


def _identity(rewriter: Rewriter, outer: Any, new: Any, *args: Any, **kwargs: Any) -> Any:
    return new


def _unpermute(rewriter: Rewriter, outer: Any, new: Any, dims: list[int]) -> Any:
    rank = len(dims)
    inverse = sorted(range(rank), key=lambda i: dims[i] % rank)
    return rewriter.call(aten.permute.default, new, inverse, val=outer.meta["val"])


def _unnarrow(rewriter: Rewriter, outer: Any, new: Any, dim: int, start: Any, length: Any) -> Any:
    end = rewriter.plus(start, length)
    return rewriter.call(aten.slice_scatter.default, outer, new, dim, start, end, 1, val=outer.meta["val"])


def _unexpand(rewriter: Rewriter, outer: Any, new: Any, *args: Any, **kwargs: Any) -> Any:
    """Expanded tensors are writable only if no element appears twice."""
    expanded, original = new.meta["val"].shape, outer.meta["val"].shape
    if list(expanded[len(expanded) - len(original) :]) != list(original) or any(
        s != 1 for s in expanded[: len(expanded) - len(original)]
    ):
        raise NeedsRetrace("a write to an expanded tensor")
    return _unreshape(rewriter, outer, new)


def _diagonal_scatter(rewriter: Rewriter, outer: Any, new: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Scatter into every (columns + 1)th element of the flattened matrix."""
    rank = outer.meta["val"].dim()
    last = [dim1 % rank, dim2 % rank]
    order = [d for d in range(rank) if d not in last] + last
    permuted = rewriter.call(aten.permute.default, outer, order)
    *batch, rows, columns = rewriter.shape(permuted)
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise NeedsRetrace("a write to a diagonal of unknown size")
    start = offset if offset >= 0 else -offset * columns
    count = min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns)
    end = start + (count - 1) * (columns + 1) + 1
    flat = rewriter.call(aten.view.default, permuted, [*batch, rows * columns])
    scattered = rewriter.call(aten.slice_scatter.default, flat, new, rank - 2, start, end, columns + 1)
    return _unpermute(rewriter, outer, rewriter.call(aten.view.default, scattered, [*batch, rows, columns]), order)


def item_view(view: ViewOp, values: Any, index: int) -> ViewOp:
    """One result of a multi-output view, as a single-output view operator that has an inverse where one exists."""
    dim = view.args[-1] if len(view.args) > (0 if view.op is aten.unbind.int else 1) else view.kwargs.get("dim", 0)
    if view.op is aten.unbind.int:
        return ViewOp(aten.select.int, (dim, index))
    sizes = [value.shape[dim] for value in values]
    if view.op in _SPLIT_OPS and all(isinstance(size, int) for size in sizes):
        start = sum(sizes[:index])
        return ViewOp(aten.slice.Tensor, (dim, start, start + sizes[index], 1))
    return ViewOp(view.op, view.args, view.kwargs, index)


_SPLIT_OPS = {
    aten.split.Tensor, aten.split.sizes, aten.split_with_sizes.default, aten.chunk.default,
    aten.tensor_split.sections, aten.tensor_split.indices,
}  # fmt: skip

# Operators that return their argument itself or a copy, depending on its strides and dtype.
SAME_OR_COPY = (
    aten.contiguous.default, aten.to.dtype, aten.to.dtype_layout, aten.to.device, aten.to.other, aten.type_as.default,
    aten.dropout.default, aten.feature_dropout.default, aten.alpha_dropout.default,
)  # fmt: skip
VIEW_INVERSES: dict[Any, ViewInverse] = {
    aten.select.int: lambda rw, outer, new, dim, index: rw.call(
        aten.select_scatter.default, outer, new, dim, index, val=outer.meta["val"]
    ),
    aten.slice.Tensor: lambda rw, outer, new, dim=0, start=None, end=None, step=1: rw.call(
        aten.slice_scatter.default, outer, new, dim, start, end, step, val=outer.meta["val"]
    ),
    aten.transpose.int: lambda rw, outer, new, a, b: rw.call(aten.transpose.int, new, a, b, val=outer.meta["val"]),
    aten.t.default: lambda rw, outer, new: rw.call(aten.t.default, new, val=outer.meta["val"]),
    aten.permute.default: _unpermute,
    aten.narrow.default: _unnarrow,
    aten.expand.default: _unexpand,
    aten.diagonal.default: _diagonal_scatter,
    **dict.fromkeys(
        (
            aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.flatten.using_ints,
            aten.unflatten.int, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default,
            aten.view_as.default, aten.reshape_as.default,
        ),
        _unreshape,
    ),
    **dict.fromkeys((aten.detach.default, aten.alias.default, aten.lift_fresh.default, *SAME_OR_COPY), _identity),
}  # fmt: skip


def functional_variant(op: Any) -> Any:
    """The functional variant of an in-place operator (``aten.add_.Tensor`` gives ``aten.add.Tensor``)."""
    namespace, _, name = op._schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None)
    if not name.endswith("_") or packet is None:
        raise NeedsRetrace(f"no functional form of {op}")
    types = _schema_types(op)
    for overload in (op._overloadname, *packet.overloads()):
        candidate = getattr(packet, overload, None)
        if candidate is not None and not candidate._schema.is_mutable and _schema_types(candidate) == types:
            return candidate
    raise NeedsRetrace(f"no functional form of {op}")


def _schema_types(op: Any) -> list[str]:
    return [str(argument.type) for argument in op._schema.arguments]
