"""Device graphs made by hand, and small programs that hold nothing but one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.backends.xnnpack.blob import write_blob
from edgewright.backends.xnnpack.blob_writer import to_blob
from edgewright.formats import schema
from edgewright.formats.pte_writer import program_chunks
from edgewright.ir.graph import Graph, Op, QParams, Value
from tests.support.build import PlanBuilder

INT8 = np.dtype(np.int8)


def q8(scale: float, zero: int) -> QParams:
    return QParams(float(np.float32(scale)), zero, INT8, -128, 127)


def qc(scales: Any, axis: int, dtype: Any = np.int8) -> QParams:
    kind = np.dtype(dtype)
    info = np.iinfo(kind)
    listed = tuple(np.asarray(scales, np.float32).tolist())
    return QParams(listed, 0, kind, int(info.min), int(info.max), axis)


def value(shape: Sequence[int], dtype: Any = np.float32, q: QParams | None = None, data: Any = None) -> Value:
    kind = np.dtype(dtype) if q is None else q.dtype
    return Value("v", kind, tuple(shape), tuple(range(len(shape))), None if data is None else np.asarray(data), q=q)


def constant(data: Any, q: QParams | None = None) -> Value:
    array = np.asarray(data)
    return value(array.shape, array.dtype, q, array)


def single(kind: str, inputs: Sequence[Value], outputs: Sequence[Value], **args: Any) -> Graph:
    """A graph of one node; ``inputs`` are those that are no constants."""
    return Graph("one", list(inputs), list(outputs), [Op(f"core.{kind}", args, list(outputs))])


def program(graph: Graph) -> bytes:
    """A program whose one method runs a device graph."""
    blob, named = to_blob(graph)
    builder = PlanBuilder()
    args = [builder.input(v.dtype, v.bound) for v in graph.inputs]
    builder.outputs = [builder.tensor(v.dtype, v.bound) for v in graph.outputs]
    builder.arena += 64
    builder.instructions.append(schema.DelegateCall(delegate_index=0, args=[*args, *builder.outputs]))
    reference = schema.BackendDelegateDataReference(location=int(schema.DataLocation.INLINE), index=0)
    builder.delegates.append(schema.BackendDelegate(id="XnnpackBackend", processed=reference, compile_specs=[]))
    made = builder.program()
    made.backend_delegate_data = [schema.BackendDelegateInlineData(data=write_blob(blob))]
    made.named_data = [
        schema.NamedData(key=key, segment_index=made.add_segment(data, 16)) for key, data in named.items()
    ] or None
    return b"".join(bytes(c) for c in program_chunks(made, 128))
