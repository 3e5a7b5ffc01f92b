"""Operators with several results, each a slice: written as slices, so that each can have its own quantization."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten
_SPLITS = (aten.split.Tensor, aten.split_with_sizes.default, aten.chunk.default, aten.unbind.int)
_COPIES = (aten.split_copy.Tensor, aten.split_with_sizes_copy.default, aten.unbind_copy.int)


def slices_for_splits(module: fx.GraphModule) -> fx.GraphModule:
    """``split``, ``chunk`` and ``unbind`` of a graph become slices (and selections)."""
    for node in list(module.graph.nodes):
        if node.target in (*_SPLITS, *_COPIES) and all(u.target is operator.getitem for u in node.users):
            _rewrite(module.graph, node)
    module.graph.lint()
    module.recompile()
    return module


def _rewrite(graph: fx.Graph, node: fx.Node) -> None:
    x = node.args[0]
    assert isinstance(x, fx.Node)
    unbound = "unbind" in str(node.target)
    place: Any = 1 if unbound else 2
    dim = node.args[place] if len(node.args) > place else node.kwargs.get("dim", 0)
    assert isinstance(dim, int)
    dim %= x.meta["val"].dim()
    sizes: Sequence[int] = [1 if unbound else part.shape[dim] for part in node.meta["val"]]
    if not all(isinstance(size, int) for size in sizes):
        return
    for user in list(node.users):
        index = user.args[1]
        assert isinstance(index, int)
        start = sum(sizes[:index])
        with graph.inserting_before(user):
            if unbound:
                made = graph.call_function(aten.select.int, (x, dim, start))
            else:
                made = graph.call_function(aten.slice.Tensor, (x, dim, start, start + sizes[index], 1))
        made.meta = dict(user.meta)
        user.replace_all_uses_with(made)
        graph.erase_node(user)
    graph.erase_node(node)
