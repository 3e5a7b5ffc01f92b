"""Decomposes operators so that every intermediate can be quantized: multi-output ones (splits, ``var_mean``) and
``addmm``."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from edgewright.frontend.decompose.matmul import transposed_weight
from edgewright.ir.aten.ops import OPS

aten = torch.ops.aten
_SPLITS = {overload for name in ("split", "split_with_sizes", "chunk", "unbind") for overload in OPS[name].aten}
_CONSTANT = ("get_attr",)


def simplify_operators(module: fx.GraphModule) -> fx.GraphModule:
    """Replace ``split``, ``chunk`` and ``unbind`` by slices and selects, ``var_mean`` by two operators, a product with
    a transposed constant by a linear layer, and any other ``addmm`` by a product and a sum."""
    for node in list(module.graph.nodes):
        only_items = all(u.target is operator.getitem for u in node.users)
        if str(node.target) in _SPLITS and only_items:
            _split_to_slices(module.graph, node)
        elif node.target is aten.var_mean.correction and only_items:
            _split_var_mean(module.graph, node)
        elif node.target is aten.mm.default and transposed_weight(node.args[1], _CONSTANT) is not None:
            _to_linear(module.graph, node, None)
        elif node.target is aten.addmm.default and all(node.kwargs.get(k, 1) == 1 for k in ("beta", "alpha")):
            _to_linear(module.graph, node, node.args[0]) if _is_bias(node) else _to_mm_add(module.graph, node)
    module.graph.lint()
    module.recompile()
    return module


def _split_to_slices(graph: fx.Graph, node: fx.Node) -> None:
    x = node.args[0]
    assert isinstance(x, fx.Node)
    is_unbind = "unbind" in str(node.target)
    position: Any = 1 if is_unbind else 2
    dim = node.args[position] if len(node.args) > position else node.kwargs.get("dim", 0)
    assert isinstance(dim, int)
    dim %= x.meta["val"].dim()
    sizes: Sequence[int] = [1 if is_unbind else part.shape[dim] for part in node.meta["val"]]
    if not all(isinstance(size, int) for size in sizes):
        return
    for user in list(node.users):
        index = user.args[1]
        assert isinstance(index, int)
        start = sum(sizes[:index])
        with graph.inserting_before(user):
            if is_unbind:
                new = graph.call_function(aten.select.int, (x, dim, start))
            else:
                new = graph.call_function(aten.slice.Tensor, (x, dim, start, start + sizes[index], 1))
        _replace_node(graph, user, new)
    graph.erase_node(node)


def _split_var_mean(graph: fx.Graph, node: fx.Node) -> None:
    x, dim = node.args[0], node.args[1] if len(node.args) > 1 else None
    keepdim = node.kwargs.get("keepdim", False)
    for user in list(node.users):
        with graph.inserting_before(user):
            if user.args[1] == 0:
                new = graph.call_function(aten.var.correction, (x, dim), dict(node.kwargs))
            else:
                new = graph.call_function(aten.mean.dim, (x, dim, keepdim))
        _replace_node(graph, user, new)
    graph.erase_node(node)


def _is_bias(node: fx.Node) -> bool:
    bias: Any = node.args[0]
    constant = isinstance(bias, fx.Node) and bias.op == "get_attr" and bias.meta["val"].dim() == 1
    fits = constant and bias.meta["val"].shape == node.meta["val"].shape[1:]
    return fits and transposed_weight(node.args[2], _CONSTANT) is not None


def _to_linear(graph: fx.Graph, node: fx.Node, bias: Any) -> None:
    first, second = node.args[-2:]
    with graph.inserting_before(node):
        new = graph.call_function(aten.linear.default, (first, transposed_weight(second, _CONSTANT), bias))
    _replace_node(graph, node, new)


def _to_mm_add(graph: fx.Graph, node: fx.Node) -> None:
    bias, first, second = node.args
    with graph.inserting_before(node):
        product = graph.call_function(aten.mm.default, (first, second))
        new = graph.call_function(aten.add.Tensor, (product, bias))
    product.meta = dict(node.meta)
    _replace_node(graph, node, new)


def _replace_node(graph: fx.Graph, node: fx.Node, new: fx.Node) -> None:
    new.meta = dict(node.meta)
    node.replace_all_uses_with(new)
    graph.erase_node(node)
