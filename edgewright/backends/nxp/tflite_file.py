"""Device graphs as TFLite files: 8-bit, channels last, one subgraph."""

from __future__ import annotations

from typing import Any

import numpy as np

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
from edgewright.ir.graph import Graph, Op, Value, verify
from edgewright.ir.tflite.table import PREFIX, TFLITE

_VERSION = 3
_NARROW = 127  # the largest code that the field of old files holds


def write_tflite(graph: Graph) -> bytes:
    """The file of a device graph; the same graph gives the same bytes."""
    verify(graph)
    return FlatWriter().finish(_Records(graph).model(), IDENTIFIER)


class _Records:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.values = list(graph.values())
        self.places = {v: i for i, v in enumerate(self.values)}
        self.buffers: dict[bytes, int] = {b"": 0}
        self.codes: dict[str, int] = {}

    def model(self) -> Model:
        graph = self.graph
        names = unique_names(self.values)
        tensors = [self._tensor(v, n) for v, n in zip(self.values, names, strict=True)]
        operators = [self._operator(op) for op in graph.ops]
        ends = [[self.places[v] for v in side] for side in (graph.inputs, graph.outputs)]
        held = [FileBuffer(data=raw or None) for raw in self.buffers]
        return Model(
            version=_VERSION,
            operator_codes=[_code(name) for name in self.codes],
            subgraphs=[SubGraph(tensors=tensors, inputs=ends[0], outputs=ends[1], operators=operators)],
            description="Edgewright",
            buffers=held,
        )

    def _tensor(self, value: Value, name: str) -> Tensor:
        raw = b"" if value.data is None else np.ascontiguousarray(value.data).tobytes()
        place = self.buffers.setdefault(raw, len(self.buffers))
        return Tensor(
            shape=list(value.bound),
            type=TYPES[str(value.dtype)],
            buffer=place,
            name=name,
            quantization=_quantized(value),
        )

    def _operator(self, op: Op) -> Operator:
        row = TFLITE[op.kind.removeprefix(PREFIX)]
        index = self.codes.setdefault(row.name, len(self.codes))
        options = OPTIONS[row.options](**{f: op.args[f] for f in row.fields}) if row.options else None
        inputs = [self.places[v] for v in op.args["inputs"]]
        outputs = [self.places[v] for v in op.outputs if v is not None]
        return Operator(opcode_index=index, inputs=inputs, outputs=outputs, options_type=row.options, options=options)


def unique_names(values: list[Value]) -> list[str]:
    """Names of tensors, told apart by a number where they are the same."""
    seen: dict[str, int] = {}
    made = []
    for value in values:
        count = seen[value.name] = seen.get(value.name, -1) + 1
        made.append(f"{value.name}_{count}" if count else value.name)
    return made


def _code(name: str) -> OperatorCode:
    code = TFLITE[name].code
    return OperatorCode(deprecated_builtin_code=min(code, _NARROW), builtin_code=code)


def _quantized(value: Value) -> QuantizationParameters | None:
    q = value.q
    if q is None:
        return None
    scales = [float(s) for s in np.atleast_1d(np.asarray(q.scale, np.float32))]
    zeros = [int(z) for z in np.broadcast_to(np.asarray(q.zero_point), len(scales))]
    return QuantizationParameters(scale=scales, zero_point=zeros, quantized_dimension=q.axis or 0)


def read_tflite(data: Buffer) -> Model:
    """The records of a TFLite file, every offset and count checked."""
    view = memoryview(data).cast("B")
    if len(view) < 8 or bytes(view[4:8]) != IDENTIFIER:
        raise FormatError("must be a TFLite file (TFL3)", where="identifier", value=bytes(view[4:8]))
    reader = FlatReader(view)
    made: Any = reader.table(Model, reader.u32(0))
    return made  # type: ignore[no-any-return]
