"""Tensors of rank 0 as vectors of one element: QNN has no scalars, so its operators do not define them.

The translation to core sees the graph without scalars; a graph's own inputs and outputs keep their shapes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edgewright.backends.qualcomm.dialect.table import PREFIX
from edgewright.ir.graph import Graph, Op, Value


def as_vector(value: Value) -> Value:
    """A value of rank 1 with the element of a scalar; others are returned unchanged."""
    if value.bound:
        return value
    data = None if value.data is None else value.data.reshape(1)
    return replace(value, shape=(1,), dim_order=(0,), data=data)


def _remap(op: Op, vectors: dict[Value, Value]) -> Op:
    inputs = [vectors[v] for v in op.args["inputs"]]
    outputs = [None if v is None else vectors[v] for v in op.outputs]
    return Op(op.kind, {**op.args, "inputs": inputs}, outputs, op.origin)


def without_scalars(graph: Graph) -> tuple[Graph, dict[Value, Value]]:
    """The graph with vectors instead of scalars, and the vector of each value. Reductions to one element keep their
    dimensions, which a reshape removes."""
    vectors = {value: as_vector(value) for value in graph.values()}
    ops: list[Op] = []
    for op in graph.ops:
        ops += _keep_dims(_remap(op, vectors))
    inputs, outputs = ([vectors[v] for v in values] for values in (graph.inputs, graph.outputs))
    return Graph(graph.name, inputs, outputs, ops), vectors


def _keep_dims(op: Op) -> list[Op]:
    x, out = op.args["inputs"][0], op.outputs[0]
    axes = op.args.get("axes", [op.args["axis"]] if "axis" in op.args else ())
    if op.args.get("keep_dims", True) or out is None or set(axes) != set(range(len(x.bound))):
        return [op]
    args: dict[str, Any] = {**op.args, "keep_dims": True}
    if len(x.bound) == 1:
        return [Op(op.kind, args, op.outputs, op.origin)]
    rank = len(x.bound)
    kept = replace(out, name=f"{out.name}_kept", shape=(1,) * rank, dim_order=tuple(range(rank)))
    return [Op(op.kind, args, [kept], op.origin), Op(f"{PREFIX}Reshape", {"inputs": [kept]}, [out], op.origin)]


def restore_scalars(graph: Graph, translated: Graph, vectors: dict[Value, Value]) -> Graph:
    """The translation of a graph without scalars, with the inputs and outputs of the graph itself."""
    first = [_view(v, vectors[v]) for v in graph.inputs if vectors[v] is not v]
    given = {*graph.inputs, *(v for v in graph.outputs if v.data is not None)}
    last = [_view(vectors[v], v) for v in dict.fromkeys(graph.outputs) if vectors[v] is not v and v not in given]
    return Graph(graph.name, graph.inputs, graph.outputs, [*first, *translated.ops, *last])


def _view(source: Value, out: Value) -> Op:
    return Op("core.view", {"self": source, "size": list(out.bound)}, [out])
