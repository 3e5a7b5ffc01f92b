"""Views and in-place operators made functional.

Every tensor of the exported graph is a base, or a view of one through a chain of steps. A write through a view
becomes a new version of its base (``select_scatter`` and the like); a view that is read after a write is taken
afresh from the new version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from edgewright.frontend.rewriter import Rewriter

aten = torch.ops.aten


class NeedsRetrace(Exception):  # noqa: N818  (not an error: the caller falls back)
    """This graph aliases memory in a way the rewrites do not cover."""


@dataclass(eq=False)
class Base:
    """Memory: the node that now holds its contents, and how often it was written."""

    current: Any
    version: int = 0


@dataclass(frozen=True)
class Step:
    """One view operator, with its arguments after the viewed tensor, and which of its results if it gives several."""

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    index: int | None = None


@dataclass(eq=False)
class Reference:
    """A tensor: its base, the way to it, and its value at the version it was last read at."""

    base: Base
    chain: tuple[Step, ...] = ()
    value: Any = None
    version: int = 0


class Aliases:
    """Where each tensor of the exported graph lives, and what it holds now."""

    def __init__(self, rewriter: Rewriter) -> None:
        self.rewriter = rewriter
        self._references: dict[fx.Node, Reference] = {}
        self._several: dict[fx.Node, tuple[fx.Node, Step]] = {}

    def define(self, old: fx.Node, new: Any) -> None:
        """``old`` is a tensor of its own (or no tensor), with value ``new``."""
        self._references[old] = Reference(Base(new), (), new)

    def define_view(self, old: fx.Node, of: fx.Node, step: Step, new: Any) -> None:
        """``old`` is a view of another tensor."""
        reference = self._references[of]
        self._references[old] = Reference(reference.base, (*reference.chain, step), new, reference.base.version)

    def define_views(self, old: fx.Node, of: fx.Node, step: Step, new: Any) -> None:
        """``old`` is a list of views of another tensor."""
        self.define(old, new)
        self._several[old] = of, step

    def views(self, old: fx.Node) -> tuple[fx.Node, Step] | None:
        """The tensor that a list of views looks at, and through what; None if it is a list of tensors."""
        return self._several.get(old)

    def define_same(self, old: fx.Node, of: fx.Node) -> None:
        """``old`` is another name of a tensor."""
        self._references[old] = self._references[of]

    def read(self, old: fx.Node) -> Any:
        """The node that holds what ``old`` holds now."""
        reference = self._references[old]
        if not reference.chain:
            return reference.base.current
        if reference.version != reference.base.version:
            value = reference.base.current
            for step in reference.chain:
                value = self._through(step, value)
            reference.value, reference.version = value, reference.base.version
        return reference.value

    def _through(self, step: Step, value: Any) -> Any:
        result = self.rewriter.call(step.op, value, *step.args, **step.kwargs)
        return result if step.index is None else result[step.index]

    def write(self, old: fx.Node, new: Any) -> None:
        """``old`` now holds ``new``: so do its base and every view of it."""
        reference = self._references[old]
        values = [reference.base.current]
        for step in reference.chain[:-1]:
            values.append(self._through(step, values[-1]))
        for step, outer in zip(reversed(reference.chain), reversed(values), strict=False):
            inverse = INVERSES.get(step.op) if step.index is None else None
            if inverse is None:
                raise NeedsRetrace(f"a write through {step.op}")
            new = inverse(self.rewriter, outer, new, *step.args, **step.kwargs)
        reference.base.current = new
        reference.base.version += 1

    def written(self, old: fx.Node) -> Any:
        """The last value written to a placeholder's memory, or None if it never was."""
        base = self._references[old].base
        return base.current if base.version else None


Inverse = Callable[..., Any]


def _reshaped(rewriter: Rewriter, outer: Any, new: Any, *args: Any, **kwargs: Any) -> Any:
    return rewriter.call(aten.view.default, new, rewriter.shape(outer), val=outer.meta["val"])


def _same(rewriter: Rewriter, outer: Any, new: Any, *args: Any, **kwargs: Any) -> Any:
    return new


def _permuted(rewriter: Rewriter, outer: Any, new: Any, dims: list[int]) -> Any:
    rank = len(dims)
    inverse = sorted(range(rank), key=lambda i: dims[i] % rank)
    return rewriter.call(aten.permute.default, new, inverse, val=outer.meta["val"])


def _narrowed(rewriter: Rewriter, outer: Any, new: Any, dim: int, start: Any, length: Any) -> Any:
    end = rewriter.plus(start, length)
    return rewriter.call(aten.slice_scatter.default, outer, new, dim, start, end, 1, val=outer.meta["val"])


def _expanded(rewriter: Rewriter, outer: Any, new: Any, *args: Any, **kwargs: Any) -> Any:
    """Only what has no element twice may be written."""
    wide, narrow = new.meta["val"].shape, outer.meta["val"].shape
    if list(wide[len(wide) - len(narrow) :]) != list(narrow) or any(s != 1 for s in wide[: len(wide) - len(narrow)]):
        raise NeedsRetrace("a write to an expanded tensor")
    return _reshaped(rewriter, outer, new)


def _diagonal(rewriter: Rewriter, outer: Any, new: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """The diagonal of a matrix is every (columns + 1)th of its elements in a row."""
    rank = outer.meta["val"].dim()
    last = [dim1 % rank, dim2 % rank]
    order = [d for d in range(rank) if d not in last] + last
    turned = rewriter.call(aten.permute.default, outer, order)
    *batch, rows, columns = rewriter.shape(turned)
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise NeedsRetrace("a write to a diagonal of unknown size")
    start = offset if offset >= 0 else -offset * columns
    count = min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns)
    end = start + (count - 1) * (columns + 1) + 1
    flat = rewriter.call(aten.view.default, turned, [*batch, rows * columns])
    filled = rewriter.call(aten.slice_scatter.default, flat, new, rank - 2, start, end, columns + 1)
    return _permuted(rewriter, outer, rewriter.call(aten.view.default, filled, [*batch, rows, columns]), order)


def item_step(step: Step, values: Any, index: int) -> Step:
    """One of several views, as a view operator that can be written through where there is one."""
    dim = step.args[-1] if len(step.args) > (0 if step.op is aten.unbind.int else 1) else step.kwargs.get("dim", 0)
    if step.op is aten.unbind.int:
        return Step(aten.select.int, (dim, index))
    sizes = [value.shape[dim] for value in values]
    if step.op in _SPLITS and all(isinstance(size, int) for size in sizes):
        start = sum(sizes[:index])
        return Step(aten.slice.Tensor, (dim, start, start + sizes[index], 1))
    return Step(step.op, step.args, step.kwargs, index)


_SPLITS = {
    aten.split.Tensor, aten.split.sizes, aten.split_with_sizes.default, aten.chunk.default,
    aten.tensor_split.sections, aten.tensor_split.indices,
}  # fmt: skip

INVERSES: dict[Any, Inverse] = {
    aten.select.int: lambda rw, outer, new, dim, index: rw.call(
        aten.select_scatter.default, outer, new, dim, index, val=outer.meta["val"]
    ),
    aten.slice.Tensor: lambda rw, outer, new, dim=0, start=None, end=None, step=1: rw.call(
        aten.slice_scatter.default, outer, new, dim, start, end, step, val=outer.meta["val"]
    ),
    aten.transpose.int: lambda rw, outer, new, a, b: rw.call(aten.transpose.int, new, a, b, val=outer.meta["val"]),
    aten.t.default: lambda rw, outer, new: rw.call(aten.t.default, new, val=outer.meta["val"]),
    aten.permute.default: _permuted,
    aten.narrow.default: _narrowed,
    aten.expand.default: _expanded,
    aten.diagonal.default: _diagonal,
    **dict.fromkeys(
        (
            aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.flatten.using_ints,
            aten.unflatten.int, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default,
            aten.view_as.default, aten.reshape_as.default,
        ),
        _reshaped,
    ),
    **dict.fromkeys(
        (
            aten.detach.default, aten.alias.default, aten.lift_fresh.default, aten.contiguous.default, aten.to.dtype,
            aten.to.dtype_layout, aten.to.device, aten.to.other, aten.type_as.default, aten.dropout.default,
            aten.feature_dropout.default, aten.alpha_dropout.default,
        ),
        _same,
    ),
}  # fmt: skip


def viewed_argument(op: Any) -> int | None:
    """The position of the argument an operator's result is a view of, or None."""
    if not isinstance(op, torch._ops.OpOverload) or op._schema.is_mutable:
        return None
    returned = {alias for r in op._schema.returns if r.alias_info for alias in r.alias_info.before_set}
    several = any("List" in str(r.type) or "[]" in str(r.type) for r in op._schema.returns)
    for position, argument in enumerate(op._schema.arguments):
        if argument.alias_info and (several or returned & set(argument.alias_info.before_set)):
            return position
    return None


def functional_of(op: Any) -> Any:
    """The functional operator of an in-place one (``aten.add_.Tensor`` gives ``aten.add.Tensor``)."""
    namespace, _, name = op._schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None)
    if not name.endswith("_") or packet is None:
        raise NeedsRetrace(f"no functional form of {op}")
    wanted = _argument_types(op)
    for overload in (op._overloadname, *packet.overloads()):
        found = getattr(packet, overload, None)
        if found is not None and not found._schema.is_mutable and _argument_types(found) == wanted:
            return found
    raise NeedsRetrace(f"no functional form of {op}")


def _argument_types(op: Any) -> list[str]:
    return [str(argument.type) for argument in op._schema.arguments]
