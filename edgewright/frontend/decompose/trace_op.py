"""Decomposition by tracing: one operator, traced on its own into smaller ones and cached by its signature."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from edgewright.frontend.aliases import NeedsRetrace
from edgewright.frontend.custom_ops import is_custom_op, missing_out_variant
from edgewright.frontend.rewriter import NO_KERNEL, fake_mode, is_dynamic, is_dynamic_storage

if TYPE_CHECKING:
    from edgewright.frontend.rewriter import Rewriter

# ExportedProgram.run_decompositions retraces the entire program, which is slow for large networks and renames every
# node. Here make_fx traces a single operator on its fake inputs with torch's core ATen decompositions, except those of
# operators with a kernel. The trace is spliced into the graph being built through the same functionalizer and the same
# rules as exported nodes, so that a decomposition may itself contain views, in-place and composite operators. A trace
# depends only on shapes, strides, dtypes and non-tensor arguments: the cache is keyed by these, and repeated layers hit
# it. Traces with symbolic shapes are not cached, because their symbols belong to one program.
_TRACES: dict[Any, fx.Graph] = {}
_MAX_TRACES = 4096
# Sizes that traces assumed, by the shape environment of the program. An environment evaluates a guard only once, and
# keeps what followed from it, so later traces in it would not assume anything again.
_ASSUMED: WeakKeyDictionary[Any, list[str]] = WeakKeyDictionary()


def decompose(rewriter: Rewriter, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The result of ``op`` in terms of supported operators; raises if it cannot be decomposed."""
    if not isinstance(op, torch._ops.OpOverload):
        raise rewriter.unsupported(op, "has no lowering")
    nodes = [leaf for leaf in pytree.tree_leaves((tuple(args), kwargs)) if isinstance(leaf, fx.Node)]
    key = _trace_key(rewriter, op, args, kwargs)
    graph = _TRACES.get(key) if key else None
    if graph is None:
        graph = _trace(rewriter, op, args, kwargs, nodes)
        if key:
            if len(_TRACES) >= _MAX_TRACES:
                _TRACES.clear()
            _TRACES[key] = graph
    return _splice(rewriter, graph, nodes, op)


def _trace_key(rewriter: Rewriter, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The cache key of a trace, or None if shapes or strides are symbolic."""
    parts: list[Any] = [op, rewriter.is_supported]
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
    values = _deduplicate([node.meta["val"] for node in nodes])

    def run(*traced: Any) -> Any:
        substituted = list(leaves)
        for position, value in zip(positions, traced, strict=True):
            substituted[position] = value
        called_args, called_kwargs = pytree.tree_unflatten(substituted, structure)
        return op(*called_args, **called_kwargs)

    table = decomposition_table(rewriter.is_supported)
    if op not in table and op in torch._decomp.decomposition_table:  # core ATen, but without a kernel
        table = {**table, op: torch._decomp.decomposition_table[op]}
    mode = fake_mode(values) or rewriter.mode
    environment = getattr(mode, "shape_env", None)
    _reject_assumptions(rewriter, op, _ASSUMED.get(environment, []) if environment is not None else [])
    guards = getattr(environment, "guards", [])
    known = len(guards)
    try:
        tracer = make_fx(run, table, tracing_mode="symbolic", _allow_non_fake_inputs=True)
        with mode or nullcontext():
            graph: fx.Graph = tracer(*values).graph
    except Exception as error:
        raise rewriter.unsupported(op, f"cannot be decomposed: {error}") from error
    assumed = [str(guard.expr) for guard in guards[known:] if getattr(guard.expr, "rel_op", "") == "=="]
    if assumed:
        _ASSUMED[environment] = assumed
    _reject_assumptions(rewriter, op, assumed)
    return graph


def _reject_assumptions(rewriter: Rewriter, op: Any, assumed: Sequence[str]) -> None:
    """Raise if a trace holds for the example's sizes only: its result would be wrong for others."""
    if assumed:
        raise rewriter.unsupported(op, f"is decomposed for one size only: {' and '.join(assumed)}")


def _deduplicate(values: list[Any]) -> list[Any]:
    """Replace repeated tensors by distinct ones: a trace would merge their placeholders."""
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
    """Append a trace to the graph being built and return its result."""
    from edgewright.frontend.functional import Functionalizer

    if any(n.target is op for n in graph.nodes):
        raise rewriter.unsupported(op, missing_out_variant(op) if is_custom_op(op) else NO_KERNEL)
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    functionalizer = Functionalizer(rewriter)
    for placeholder, value in zip(placeholders, inputs, strict=True):
        functionalizer.aliases.define(placeholder, value)
    mode = fake_mode([n.meta.get("val") for n in inputs]) or rewriter.mode
    for node in graph.nodes:
        if node.op == "call_function":
            functionalizer._call(node, _in_mode(node.meta.get("val"), mode))
        elif node.op == "get_attr":
            raise rewriter.unsupported(op, "decomposes into new constants")
    mutated = [p.name for p in placeholders if functionalizer.aliases.final_write(p) is not None]
    if mutated:
        raise NeedsRetrace(f"{op}, which writes to its arguments")
    return functionalizer._read(graph.output_node().args[0])


def _in_mode(value: Any, mode: Any) -> Any:
    """Recreate a cached fake value in this program's fake mode: values of two modes cannot be mixed."""
    if mode is None or all(getattr(v, "fake_mode", mode) is mode for v in pytree.tree_leaves(value)):
        return value
    with mode:
        return pytree.tree_map_only(
            torch.Tensor, lambda v: torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=v.device), value
        )


@lru_cache(maxsize=8)
def decomposition_table(is_supported: Any) -> dict[Any, Any]:
    """torch's core ATen decompositions, except those of supported operators."""
    table: dict[Any, Any] = dict(torch._decomp.core_aten_decompositions())
    return {op: function for op, function in table.items() if not is_supported(op)}
