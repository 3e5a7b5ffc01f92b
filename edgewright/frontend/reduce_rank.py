"""Permutes of more dimensions than a backend has, with fewer: window partitions of Swin transformers have six.

A permute moves runs of dimensions that stay adjacent as if they were one, and dimensions of size 1 not at all. Between
two views, the shape in which it does so is free: ``view -> permute -> view`` becomes the same with merged dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from edgewright.frontend.rewriter import is_dynamic

aten = torch.ops.aten


def reduce_rank(module: fx.GraphModule, limit: int) -> None:
    """Merge the dimensions of permutes of a rank above ``limit`` that are between views of at most that rank."""
    permutes = [n for n in module.graph.nodes if n.target is aten.permute_copy.default and _rank(n) > limit]
    for permute in permutes:
        source, views = _source(permute), _views(permute)
        sizes, dims = merge_dims(permute.args[0].meta["val"].shape, permute.args[1])
        fits = len(sizes) <= limit and all(_rank(n) <= limit for n in (source, *views))
        if fits and views and not any(is_dynamic(n.meta["val"]) for n in (source, permute, *views)):
            _rewrite(permute, source, views, sizes, dims)
    if permutes:
        module.graph.eliminate_dead_code()
        module.recompile()


def merge_dims(shape: Sequence[int], dims: Sequence[int]) -> tuple[list[int], list[int]]:
    """The fewest dimensions in which a permute is the same movement of elements: their sizes, and their order."""
    moved = [d % len(shape) for d in dims if shape[d] != 1]
    kept = sorted(moved)
    runs: list[list[int]] = []
    for d in moved:
        follows = runs and kept.index(d) == kept.index(runs[-1][-1]) + 1
        runs[-1].append(d) if follows else runs.append([d])
    runs = runs or [[0]]  # of one element
    ordered = sorted(runs)
    sizes = [math.prod([shape[d] for d in run]) for run in ordered]
    return sizes, [ordered.index(run) for run in runs]


def _rank(node: fx.Node) -> int:
    return int(node.meta["val"].dim())


def _source(permute: fx.Node) -> fx.Node:
    """What a permute reads, before it is viewed."""
    node: Any = permute.args[0]
    while node.target is aten.view_copy.default:
        node = node.args[0]
    assert isinstance(node, fx.Node)
    return node


def _views(permute: fx.Node) -> list[fx.Node]:
    """The views that read a permute's result or a copy of it; none if another operator does."""
    views: list[fx.Node] = []
    for user in permute.users:
        readers = list(user.users) if user.target is aten.clone.default else [user]
        if any(reader.target is not aten.view_copy.default for reader in readers):
            return []
        views += readers
    return views


def _rewrite(
    permute: fx.Node, source: fx.Node, views: Sequence[fx.Node], sizes: list[int], dims: list[int]
) -> None:  # fmt: skip
    graph = permute.graph
    with graph.inserting_before(permute):
        merged = graph.call_function(aten.view_copy.default, (source, sizes))
        permuted = graph.call_function(aten.permute_copy.default, (merged, dims))
    value = source.meta["val"].reshape(sizes)
    for node, result in ((merged, value), (permuted, value.permute(dims).contiguous())):
        node.meta = {**permute.meta, "val": result}
    for view in views:
        view.args = (permuted, *view.args[1:])
