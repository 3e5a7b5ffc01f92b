"""An ENN graph as plain data: what is said to AI LiteCore, in the order in which it is said."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgewright.backends.samsung.lower import QUANTIZED
from edgewright.ir.enn.dtypes import ELEMENT_NAMES, layout_name
from edgewright.ir.enn.table import PREFIX
from edgewright.ir.graph import Array, Graph, Value

Quantization = tuple[str, list[float], list[int]]  # its name, scales and zero points
NONE: Quantization = ("", [1.0], [0])  # of real numbers on their way to integers, or from them


@dataclass
class Tensor:
    """A tensor; one number alone has a dimension of 1."""

    name: str
    dims: list[int]
    dtype: str
    layout: str
    data: Array | None = field(default=None, repr=False)
    quantization: Quantization | None = None


@dataclass
class Node:
    """An operator; tensors by their places in the list."""

    name: str
    type: str
    inputs: list[int]
    outputs: list[int]
    params: dict[str, Any]


@dataclass
class Record:
    """A whole graph."""

    tensors: list[Tensor] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)


def record(graph: Graph) -> Record:
    """A device graph as data: inputs first, then each operator's constants, then its results."""
    return _Recorder(graph).run()


class _Recorder:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.made = Record()
        self._places: dict[Value, int] = {}
        self._names: set[str] = set()
        self._converted = {
            v
            for op in graph.ops
            for v in (op.args["inputs"] if op.kind == f"{PREFIX}QUANTIZE" else op.outputs)
            if op.kind in (f"{PREFIX}QUANTIZE", f"{PREFIX}DEQUANTIZE")
        }

    def run(self) -> Record:
        made = self.made
        made.inputs = self._tensors(self.graph.inputs)
        for op in self.graph.ops:
            params = {name: value for name, value in op.args.items() if name != "inputs"}
            kind, inputs = op.kind.removeprefix(PREFIX), self._tensors(op.args["inputs"])
            outputs = self._tensors(o for o in op.outputs if o is not None)
            name = self._unique(made.tensors[outputs[0]].name + "_op")
            made.nodes.append(Node(name, kind, inputs, outputs, params))
        made.outputs = self._tensors(self.graph.outputs)
        return made

    def _tensors(self, values: Iterable[Value]) -> list[int]:
        return [self._tensor(v) for v in values]

    def _tensor(self, value: Value) -> int:
        if value not in self._places:
            self._places[value] = len(self.made.tensors)
            dims = list(value.bound) or [1]
            data = None if value.data is None else np.ascontiguousarray(value.data).reshape(dims)
            name, element = self._unique(value.name), ELEMENT_NAMES[str(value.dtype)]
            self.made.tensors.append(Tensor(name, dims, element, layout_name(dims), data, self._quantization(value)))
        return self._places[value]

    def _quantization(self, value: Value) -> Quantization | None:
        q = value.q
        if q is None:
            return NONE if value in self._converted else None
        scales = np.atleast_1d(np.asarray(q.scale, np.float32)).tolist()
        return QUANTIZED[str(q.dtype)], scales, [int(z) for z in np.atleast_1d(np.asarray(q.zero_point))]

    def _unique(self, name: str) -> str:
        name = name or "tensor"
        found, count = name, 0
        while found in self._names:
            count += 1
            found = f"{name}_{count}"
        self._names.add(found)
        return found
