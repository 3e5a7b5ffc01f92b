"""Functionalization of a sequence of calls, of an exported program or of a decomposition's trace."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from edgewright.frontend.aliases import (
    SAME_OR_COPY,
    AliasTracker,
    NeedsRetrace,
    ViewOp,
    functional_variant,
    item_view,
)
from edgewright.frontend.mutation import viewed_argument
from edgewright.frontend.rewriter import Rewriter, fake_mode

aten = torch.ops.aten

_ASSERTIONS = {aten._assert_async.msg, aten._assert_async.default}

# Operators that return a view of their argument, the argument itself or a copy, depending on its strides and dtype.
_VIEW_OR_COPY = {aten.reshape.default, aten.reshape_as.default, aten.flatten.using_ints, *SAME_OR_COPY}


class Functionalizer:
    """Rewrites calls in order and tracks which tensors share storage."""

    def __init__(self, rewriter: Rewriter) -> None:
        self.rewriter = rewriter
        self.aliases = AliasTracker(rewriter)

    def _read(self, tree: Any) -> Any:
        return pytree.tree_map_only(fx.Node, self.aliases.read, tree)

    def _call(self, node: fx.Node, val: Any = None) -> None:
        """Rewrite one call. ``val`` overrides the fake result in its metadata."""
        op: Any = node.target
        if op is operator.getitem and isinstance(self.aliases.read(node.args[0]), list | tuple):  # type: ignore[arg-type]
            self._item(node)
        elif not isinstance(op, torch._ops.OpOverload):
            self._symbolic(node)
        elif op._schema.is_mutable:
            self._mutation(node)
        else:
            val = node.meta.get("val") if val is None else val
            result = self.rewriter.call(op, *self._read(node.args), val=val, **self._read(node.kwargs))
            self._define(node, result)

    def _define(self, node: fx.Node, result: Any) -> None:
        """Record whether the result of a call owns its storage or is a view."""
        op: Any = node.target
        viewed = 0 if op in _VIEW_OR_COPY else viewed_argument(op)
        source = node.args[viewed] if viewed is not None and viewed < len(node.args) else None
        if (
            not isinstance(source, fx.Node)
            or viewed is None
            or (op in _VIEW_OR_COPY and not _shares_storage(node, source))
        ):
            self.aliases.define(node, result)
            return
        step = ViewOp(op, tuple(self._read(node.args[viewed + 1 :])), self._read(node.kwargs))
        if isinstance(result, fx.Node):
            self.aliases.define_view(node, source, step, result)
        else:
            self.aliases.define_views(node, source, step, result)

    def _item(self, node: fx.Node) -> None:
        """One result of a multi-output call; those of ``split`` and its variants are views."""
        source_list: Any = node.args[0]
        index: Any = node.args[1]
        result = self.aliases.read(source_list)[index]
        views = self.aliases.views(source_list)
        if views is None:
            self.aliases.define(node, result)
            return
        source, step = views
        self.aliases.define_view(node, source, item_view(step, source_list.meta["val"], index), result)

    def _symbolic(self, node: fx.Node) -> None:
        """Copy arithmetic on sizes unchanged."""
        self.aliases.define(node, self.rewriter.emit(node.target, self._read(node.args), val=node.meta["val"]))

    def _mutation(self, node: fx.Node) -> None:
        op: Any = node.target
        target = node.args[0] if node.args else None
        mutated = [a.name for a in op._schema.arguments if a.alias_info and a.alias_info.is_write]
        if len(mutated) != 1 or not isinstance(target, fx.Node) or op._schema.arguments[0].name != mutated[0]:
            if op in _ASSERTIONS:
                return
            raise NeedsRetrace(f"{op}")
        functional = None if op is aten.copy_.default else functional_variant(op)
        if functional is not None and viewed_argument(functional) is not None:
            self._inplace_view(node, target, functional)
            return
        args, kwargs = self._read(node.args), self._read(node.kwargs)
        if functional is None:
            result = self._broadcast_copy(args[0], args[1])
        else:
            result = self.rewriter.call(functional, *args, **kwargs)
            dtype = args[0].meta["val"].dtype
            if result.meta["val"].dtype != dtype:
                result = self.rewriter.call(aten._to_copy.default, result, dtype=dtype)
        self.aliases.write(target, result)
        self.aliases.define_same(node, target)

    def _inplace_view(self, node: fx.Node, target: fx.Node, functional: Any) -> None:
        """In-place views such as ``x.t_()``: the storage stays, and the tensor becomes a view of it."""
        args, kwargs = self._read(node.args), self._read(node.kwargs)
        result = self.rewriter.call(functional, *args, **kwargs)
        self.aliases.define_view(node, target, ViewOp(functional, tuple(args[1:]), kwargs), result)
        self.aliases.define_same(target, node)

    def _broadcast_copy(self, target: fx.Node, source: fx.Node) -> Any:
        """The contents of ``target`` after ``target.copy_(source)``."""
        target_val, source_val = target.meta["val"], source.meta["val"]
        if source_val.dtype != target_val.dtype:
            source = self.rewriter.call(aten._to_copy.default, source, dtype=target_val.dtype)
        if source_val.shape != target_val.shape:
            source = self.rewriter.call(aten.expand.default, source, self.rewriter.shape(target))
        return source


def _shares_storage(node: fx.Node, source: fx.Node) -> bool:
    """True if a call that may copy returns a view instead."""
    source_val = source.meta["val"]
    mode = fake_mode([source_val])
    if mode is None:
        return False
    args, kwargs = pytree.tree_map_only(fx.Node, lambda n: n.meta["val"], (node.args, node.kwargs))
    with mode:
        result = node.target(*args, **kwargs)  # type: ignore[operator]
    return bool(result.untyped_storage()._cdata == source_val.untyped_storage()._cdata)
