"""One operator, traced alone into smaller ones, and remembered by its signature."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from edgewright.frontend.aliases import NeedsRetrace
from edgewright.frontend.custom_ops import is_own, missing_variant
from edgewright.frontend.rewriter import fake_mode, is_dynamic, is_dynamic_storage

if TYPE_CHECKING:
    from edgewright.frontend.rewriter import Rewriter

_TRACES: dict[Any, fx.Graph] = {}
_MAX_TRACES = 4096


def decompose(rewriter: Rewriter, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The result of ``op`` made of operators that are taken; raises if it cannot be."""
    if not isinstance(op, torch._ops.OpOverload):
        raise rewriter.unsupported(op, "has no lowering")
    nodes = [leaf for leaf in pytree.tree_leaves((tuple(args), kwargs)) if isinstance(leaf, fx.Node)]
    key = _signature(rewriter, op, args, kwargs)
    graph = _TRACES.get(key) if key else None
    if graph is None:
        graph = _trace(rewriter, op, args, kwargs, nodes)
        if key:
            if len(_TRACES) >= _MAX_TRACES:
                _TRACES.clear()
            _TRACES[key] = graph
    return _splice(rewriter, graph, nodes, op)


def _signature(rewriter: Rewriter, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What a trace depends on, or None if shapes or strides are symbolic."""
    parts: list[Any] = [op, rewriter.takes]
    for leaf in pytree.tree_leaves((tuple(args), tuple(kwargs.items()))):
        value = leaf.meta["val"] if isinstance(leaf, fx.Node) else leaf
        if is_dynamic(value) or (isinstance(value, torch.Tensor) and is_dynamic_storage(value)):
            return None
        if isinstance(value, torch.Tensor):
            parts.append((tuple(value.shape), value.stride(), value.dtype))
        else:
            parts.append((type(value), str(value)))
    parts.append(str(pytree.tree_structure((tuple(args), kwargs))))
    return tuple(parts)


def _trace(rewriter: Rewriter, op: Any, args: Sequence[Any], kwargs: dict[str, Any], nodes: list[fx.Node]) -> fx.Graph:
    leaves, structure = pytree.tree_flatten((tuple(args), kwargs))
    positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, fx.Node)]
    values = _distinct([node.meta["val"] for node in nodes])

    def run(*traced: Any) -> Any:
        filled = list(leaves)
        for position, value in zip(positions, traced, strict=True):
            filled[position] = value
        called_args, called_kwargs = pytree.tree_unflatten(filled, structure)
        return op(*called_args, **called_kwargs)

    table = decomposition_table(rewriter.takes)
    if op not in table and op in torch._decomp.decomposition_table:  # core to others, but not to our kernels
        table = {**table, op: torch._decomp.decomposition_table[op]}
    try:
        made = make_fx(run, table, tracing_mode="symbolic", _allow_non_fake_inputs=True)
        mode = fake_mode(values) or rewriter.mode
        if mode is None:
            return made(*values).graph
        with mode:
            return made(*values).graph
    except Exception as error:
        raise rewriter.unsupported(op, f"cannot be decomposed: {error}") from error


def _distinct(values: list[Any]) -> list[Any]:
    """The same tensor given twice as two tensors: a trace would take one for the other."""
    seen: set[int] = set()
    result = []
    for value in values:
        if isinstance(value, FakeTensor) and id(value) in seen:
            with value.fake_mode:
                value = value.detach()
        seen.add(id(value))
        result.append(value)
    return result


def _splice(rewriter: Rewriter, graph: fx.Graph, inputs: list[fx.Node], op: Any) -> Any:
    """Append a trace to the graph being built; its result."""
    from edgewright.frontend.functional import Functional

    if any(n.target is op for n in graph.nodes):
        nobody = "has no kernel in the target runtime and no decomposition into ones that do"
        raise rewriter.unsupported(op, missing_variant(op) if is_own(op) else nobody)
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    walk = Functional(rewriter)
    for placeholder, given in zip(placeholders, inputs, strict=True):
        walk.aliases.define(placeholder, given)
    mode = fake_mode([n.meta.get("val") for n in inputs]) or rewriter.mode
    for node in graph.nodes:
        if node.op == "call_function":
            walk._call(node, _in_mode(node.meta.get("val"), mode))
        elif node.op == "get_attr":
            raise rewriter.unsupported(op, "decomposes into constants of its own")
    written = [p.name for p in placeholders if walk.aliases.written(p) is not None]
    if written:
        raise NeedsRetrace(f"{op}, which writes to its arguments")
    return walk._read(graph.output_node().args[0])


def _in_mode(value: Any, mode: Any) -> Any:
    """A remembered fake value as one of the program at hand: fakes of two exports do not mix."""
    if mode is None or all(getattr(v, "fake_mode", mode) is mode for v in pytree.tree_leaves(value)):
        return value
    with mode:
        return pytree.tree_map_only(
            torch.Tensor, lambda v: torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=v.device), value
        )


@lru_cache(maxsize=8)
def decomposition_table(takes: Any) -> dict[Any, Any]:
    """torch's core decompositions, but for operators that are taken as they are."""
    table: dict[Any, Any] = dict(torch._decomp.core_aten_decompositions())
    return {op: function for op, function in table.items() if not takes(op)}
