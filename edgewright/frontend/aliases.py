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
    """One view operator, with its arguments after the viewed tensor."""

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)


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

    def define(self, old: fx.Node, new: Any) -> None:
        """``old`` is a tensor of its own (or no tensor), with value ``new``."""
        self._references[old] = Reference(Base(new), (), new)

    def define_view(self, old: fx.Node, of: fx.Node, step: Step, new: Any) -> None:
        """``old`` is a view of another tensor."""
        reference = self._references[of]
        self._references[old] = Reference(reference.base, (*reference.chain, step), new, reference.base.version)

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
                value = self.rewriter.call(step.op, value, *step.args, **step.kwargs)
            reference.value, reference.version = value, reference.base.version
        return reference.value

    def write(self, old: fx.Node, new: Any) -> None:
        """``old`` now holds ``new``: so do its base and every view of it."""
        reference = self._references[old]
        values = [reference.base.current]
        for step in reference.chain[:-1]:
            values.append(self.rewriter.call(step.op, values[-1], *step.args, **step.kwargs))
        for step, outer in zip(reversed(reference.chain), reversed(values), strict=False):
            inverse = INVERSES.get(step.op)
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
    **dict.fromkeys(
        (
            aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.flatten.using_ints,
            aten.unflatten.int, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default,
            aten.view_as.default,
        ),
        _reshaped,
    ),
    **dict.fromkeys((aten.detach.default, aten.alias.default, aten.contiguous.default), _same),
}  # fmt: skip


def viewed_argument(op: Any) -> int | None:
    """The position of the argument an operator's result is a view of, or None."""
    if not isinstance(op, torch._ops.OpOverload) or op._schema.is_mutable:
        return None
    returned = {alias for r in op._schema.returns if r.alias_info for alias in r.alias_info.before_set}
    for position, argument in enumerate(op._schema.arguments):
        if argument.alias_info and returned & set(argument.alias_info.before_set):
            return position
    return None


def functional_of(op: Any) -> Any:
    """The functional operator of an in-place one (``aten.add_.Tensor`` gives ``aten.add.Tensor``)."""
    namespace, _, name = op._schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None)
    found = getattr(packet, op._overloadname, None)
    if not name.endswith("_") or found is None or found._schema.is_mutable:
        raise NeedsRetrace(f"no functional form of {op}")
    return found
