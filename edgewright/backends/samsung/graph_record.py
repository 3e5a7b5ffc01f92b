"""An ENN graph as plain, picklable data, in the order in which AI LiteCore's interface receives it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgewright.backends.samsung.dialect.table import ELEMENT_NAMES, PREFIX, layout_name
from edgewright.backends.samsung.lower import QUANT_DTYPES
from edgewright.ir.graph import Array, Graph, Value

Quantization = tuple[str, list[float], list[int]]  # type name, scales, zero points
IDENTITY_QUANTIZATION: Quantization = ("", [1.0], [0])  # of float operands of QUANTIZE and DEQUANTIZE


@dataclass
class TensorRecord:
    """A tensor; a scalar has shape ``[1]``."""

    name: str
    dims: list[int]
    dtype: str
    layout: str
    data: Array | None = field(default=None, repr=False)
    quantization: Quantization | None = None


@dataclass
class NodeRecord:
    """An operator; tensors by index."""

    name: str
    type: str
    inputs: list[int]
    outputs: list[int]
    params: dict[str, Any]


@dataclass
class GraphRecord:
    """A complete graph."""

    tensors: list[TensorRecord] = field(default_factory=list)
    nodes: list[NodeRecord] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)


def record_graph(graph: Graph) -> GraphRecord:
    """Convert a device graph: tensors are numbered inputs first, then per operator its constants and outputs."""
    return _RecordBuilder(graph).run()


class _RecordBuilder:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.record = GraphRecord()
        self._indices: dict[Value, int] = {}
        self._names: set[str] = set()
        self._converted = {
            v
            for op in graph.ops
            for v in (op.args["inputs"] if op.kind == f"{PREFIX}QUANTIZE" else op.outputs)
            if op.kind in (f"{PREFIX}QUANTIZE", f"{PREFIX}DEQUANTIZE")
        }

    def run(self) -> GraphRecord:
        record = self.record
        record.inputs = self._tensors(self.graph.inputs)
        for op in self.graph.ops:
            params = {name: value for name, value in op.args.items() if name != "inputs"}
            kind, inputs = op.kind.removeprefix(PREFIX), self._tensors(op.args["inputs"])
            outputs = self._tensors(o for o in op.outputs if o is not None)
            name = self._unique(record.tensors[outputs[0]].name + "_op")
            record.nodes.append(NodeRecord(name, kind, inputs, outputs, params))
        record.outputs = self._tensors(self.graph.outputs)
        return record

    def _tensors(self, values: Iterable[Value]) -> list[int]:
        return [self._tensor(v) for v in values]

    def _tensor(self, value: Value) -> int:
        if value not in self._indices:
            self._indices[value] = len(self.record.tensors)
            dims = list(value.bound) or [1]
            data = None if value.data is None else np.ascontiguousarray(value.data).reshape(dims)
            name, element = self._unique(value.name), ELEMENT_NAMES[str(value.dtype)]
            self.record.tensors.append(
                TensorRecord(name, dims, element, layout_name(dims), data, self._quantization(value))
            )
        return self._indices[value]

    def _quantization(self, value: Value) -> Quantization | None:
        q = value.q
        if q is None:
            return IDENTITY_QUANTIZATION if value in self._converted else None
        scales = np.atleast_1d(np.asarray(q.scale, np.float32)).tolist()
        return QUANT_DTYPES[str(q.dtype)], scales, [int(z) for z in np.atleast_1d(np.asarray(q.zero_point))]

    def _unique(self, name: str) -> str:
        name = name or "tensor"
        candidate, count = name, 0
        while candidate in self._names:
            count += 1
            candidate = f"{name}_{count}"
        self._names.add(candidate)
        return candidate
