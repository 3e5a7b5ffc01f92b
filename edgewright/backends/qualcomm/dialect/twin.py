"""Conversion of a QNN device graph to a host twin, with all parameters explicit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.dialect.conv import block_scales, integer_weights
from edgewright.backends.qualcomm.dialect.table import PREFIX, QNN
from edgewright.ir.graph import Graph, Op, QParams, Value


def unsupported_ops(device: Graph) -> list[str]:
    """Operators of a device graph that the table lacks."""
    return sorted({op.kind for op in device.ops} - set(QNN))


def to_twin(device: Graph) -> Graph:
    """Convert a device graph whose operators are all in the table."""
    ops = [Op(f"{PREFIX}{op.kind}", _arguments(op), list(op.outputs), op.origin) for op in device.ops]
    return Graph(device.name, list(device.inputs), list(device.outputs), ops)


def expand_blocks(graphs: Sequence[Graph]) -> list[Graph]:
    """The graphs with blockwise weights as 8-bit weights with a scale for each channel: the same numbers, since a
    block's scale is a multiple of its channel's. The weights of a large model have too many blocks for a twin's header.
    """
    expanded: dict[Value, Value] = {}
    for graph in graphs:
        for value in graph.values():
            if value.q is not None and value.q.block is not None and value not in expanded:
                expanded[value] = _expand(value, value.q)
    return [_with_values(graph, expanded) for graph in graphs]


def _expand(value: Value, q: QParams) -> Value:
    assert value.data is not None
    units, _ = block_scales(q, value.bound[-1])
    data = integer_weights(value, value.data)[0].astype(np.int8)
    channels = replace(q, scale=tuple(units.tolist()), zero_point=(0,) * units.size, qmin=-128, qmax=127, block=None)
    return replace(value, data=data, q=channels)


def _with_values(graph: Graph, others: Mapping[Value, Value]) -> Graph:
    ops = [
        Op(op.kind, {**op.args, "inputs": [others.get(v, v) for v in op.args["inputs"]]}, list(op.outputs), op.origin)
        for op in graph.ops
    ]
    return Graph(graph.name, list(graph.inputs), list(graph.outputs), ops)


def _arguments(op: Op) -> dict[str, Any]:
    params: Mapping[str, Any] = op.args["params"]
    defaults = {name: number.default for name, number in QNN[op.kind].params.items() if number.default is not None}
    return {
        "inputs": list(op.args["inputs"]),
        **defaults,
        **{name: _to_python(value) for name, value in params.items()},
    }


def _to_python(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
