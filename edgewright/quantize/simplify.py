"""Operators written as simpler ones, so that every result can be quantized: those with several results (splits, and a
variance with its mean), and a product with a sum."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from edgewright.frontend.decompose.matmul import transposed_weight

aten = torch.ops.aten
_SPLITS = (aten.split.Tensor, aten.split_with_sizes.default, aten.chunk.default, aten.unbind.int)
_CONSTANT = ("get_attr",)  # of a module
_COPIES = (aten.split_copy.Tensor, aten.split_with_sizes_copy.default, aten.unbind_copy.int)


def simpler(module: fx.GraphModule) -> fx.GraphModule:
    """``split``, ``chunk`` and ``unbind`` of a graph become slices (and selections), ``var_mean`` two operators, a
    product with a turned constant a linear layer, and another ``addmm`` a product and a sum."""
    for node in list(module.graph.nodes):
        several = all(u.target is operator.getitem for u in node.users)
        if node.target in (*_SPLITS, *_COPIES) and several:
            _sliced(module.graph, node)
        elif node.target is aten.var_mean.correction and several:
            _moments(module.graph, node)
        elif node.target is aten.mm.default and transposed_weight(node.args[1], _CONSTANT) is not None:
            _linear(module.graph, node, None)
        elif node.target is aten.addmm.default and all(node.kwargs.get(k, 1) == 1 for k in ("beta", "alpha")):
            _linear(module.graph, node, node.args[0]) if _is_bias(node) else _product(module.graph, node)
    module.graph.lint()
    module.recompile()
    return module


def _sliced(graph: fx.Graph, node: fx.Node) -> None:
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
        _instead(graph, user, made)
    graph.erase_node(node)


def _moments(graph: fx.Graph, node: fx.Node) -> None:
    x, dim = node.args[0], node.args[1] if len(node.args) > 1 else None
    keep = node.kwargs.get("keepdim", False)
    for user in list(node.users):
        with graph.inserting_before(user):
            if user.args[1] == 0:
                made = graph.call_function(aten.var.correction, (x, dim), dict(node.kwargs))
            else:
                made = graph.call_function(aten.mean.dim, (x, dim, keep))
        _instead(graph, user, made)
    graph.erase_node(node)


def _is_bias(node: fx.Node) -> bool:
    bias: Any = node.args[0]
    constant = isinstance(bias, fx.Node) and bias.op == "get_attr" and bias.meta["val"].dim() == 1
    fits = constant and bias.meta["val"].shape == node.meta["val"].shape[1:]
    return fits and transposed_weight(node.args[2], _CONSTANT) is not None


def _linear(graph: fx.Graph, node: fx.Node, bias: Any) -> None:
    first, second = node.args[-2:]
    with graph.inserting_before(node):
        made = graph.call_function(aten.linear.default, (first, transposed_weight(second, _CONSTANT), bias))
    _instead(graph, node, made)


def _product(graph: fx.Graph, node: fx.Node) -> None:
    bias, first, second = node.args
    with graph.inserting_before(node):
        product = graph.call_function(aten.mm.default, (first, second))
        made = graph.call_function(aten.add.Tensor, (product, bias))
    product.meta = dict(node.meta)
    _instead(graph, node, made)


def _instead(graph: fx.Graph, node: fx.Node, made: fx.Node) -> None:
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)
