"""Writes a TFLite device graph as a TFLite file with one subgraph, and parses TFLite files."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.nxp.dialect.table import PREFIX, TFLITE
from edgewright.backends.nxp.tables import (
    IDENTIFIER,
    OPTIONS,
    TYPES,
    FileBuffer,
    Model,
    Operator,
    OperatorCode,
    QuantizationParameters,
    SubGraph,
    Tensor,
)  # fmt: skip
from edgewright.errors import FormatError
from edgewright.formats.flatbuffer import Buffer
from edgewright.formats.flatbuffer_reader import FlatReader
from edgewright.formats.flatbuffer_writer import FlatWriter
from edgewright.ir.graph import Graph, Op, Value
from edgewright.ir.verify import verify

_VERSION = 3
_MAX_DEPRECATED_CODE = 127  # largest operator code of the deprecated int8 field


def write_tflite(graph: Graph) -> bytes:
    """Serialize a device graph, deterministically."""
    verify(graph)
    return FlatWriter().finish(_ModelBuilder(graph).model(), IDENTIFIER)


class _ModelBuilder:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.values = list(graph.values())
        self.indices = {v: i for i, v in enumerate(self.values)}
        self.buffers: dict[bytes, int] = {b"": 0}
        self.codes: dict[str, int] = {}

    def model(self) -> Model:
        graph = self.graph
        names = unique_names(self.values)
        tensors = [self._tensor(v, n) for v, n in zip(self.values, names, strict=True)]
        operators = [self._operator(op) for op in graph.ops]
        io = [[self.indices[v] for v in side] for side in (graph.inputs, graph.outputs)]
        buffers = [FileBuffer(data=raw or None) for raw in self.buffers]
        return Model(
            version=_VERSION,
            operator_codes=[_operator_code(name) for name in self.codes],
            subgraphs=[SubGraph(tensors=tensors, inputs=io[0], outputs=io[1], operators=operators)],
            description="Edgewright",
            buffers=buffers,
        )

    def _tensor(self, value: Value, name: str) -> Tensor:
        raw = b"" if value.data is None else np.ascontiguousarray(value.data).tobytes()
        index = self.buffers.setdefault(raw, len(self.buffers))
        return Tensor(
            shape=list(value.bound),
            type=TYPES[str(value.dtype)],
            buffer=index,
            name=name,
            quantization=_quantization(value),
        )

    def _operator(self, op: Op) -> Operator:
        row = TFLITE[op.kind.removeprefix(PREFIX)]
        index = self.codes.setdefault(row.name, len(self.codes))
        options = OPTIONS[row.options](**{f: op.args[f] for f in row.fields}) if row.options else None
        inputs = [self.indices[v] for v in op.args["inputs"]]
        outputs = [self.indices[v] for v in op.outputs if v is not None]
        return Operator(opcode_index=index, inputs=inputs, outputs=outputs, options_type=row.options, options=options)


def unique_names(values: list[Value]) -> list[str]:
    """Tensor names, made unique by a numeric suffix."""
    seen: dict[str, int] = {}
    names = []
    for value in values:
        count = seen[value.name] = seen.get(value.name, -1) + 1
        names.append(f"{value.name}_{count}" if count else value.name)
    return names


def _operator_code(name: str) -> OperatorCode:
    code = TFLITE[name].code
    return OperatorCode(deprecated_builtin_code=min(code, _MAX_DEPRECATED_CODE), builtin_code=code)


def _quantization(value: Value) -> QuantizationParameters | None:
    q = value.q
    if q is None:
        return None
    scales = [float(s) for s in np.atleast_1d(np.asarray(q.scale, np.float32))]
    zeros = [int(z) for z in np.broadcast_to(np.asarray(q.zero_point), len(scales))]
    return QuantizationParameters(scale=scales, zero_point=zeros, quantized_dimension=q.axis or 0)


def read_tflite(data: Buffer) -> Model:
    """Parse a TFLite file; every offset and count is bounds-checked."""
    view = memoryview(data).cast("B")
    if len(view) < 8 or bytes(view[4:8]) != IDENTIFIER:
        raise FormatError("must be a TFLite file (TFL3)", where="identifier", value=bytes(view[4:8]))
    reader = FlatReader(view)
    model: Any = reader.table(Model, reader.u32(0))
    return model  # type: ignore[no-any-return]
