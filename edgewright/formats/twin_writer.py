"""Writer of host twins: device graphs in a file, for backends whose blobs run only on a device.

::

    "EWTWIN"  u16 version  u64 bytes of header | header, JSON | zeros to 16 | constants, each at a multiple of 16

The header lists constants (SHA-256, offset, size; equal constants are stored once) and graphs by key. A graph lists its
values in order of first appearance and refers to them by index. Operator arguments are JSON: a value is
``{"value": i}``, and types that JSON lacks are objects (``{"float": "inf"}``, ``{"tuple": [...]}``). Integers are
little-endian. The reader is ``edgewright.formats.twin_reader``.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from edgewright.ir.dtypes import ScalarType, to_numpy
from edgewright.ir.graph import Array, Dim, Graph, GraphError, Op, QParams, Size, Value
from edgewright.ir.verify import verify

MAGIC = b"EWTWIN"
VERSION = 1
TWIN_KEY = "edgewright.twin"  # named-data key of twins embedded in a program
HEAD = struct.Struct("<6sHQ")
ALIGNMENT = 16
PLAIN = [s for s in ScalarType if s < ScalarType.QINT8 and s != ScalarType.COMPLEX32] + [
    s for s in ScalarType if s == ScalarType.BFLOAT16 or s >= ScalarType.FLOAT8_E5M2
]
DTYPES = {str(to_numpy(s)): to_numpy(s) for s in PLAIN}


def method_key(digest: str, method: str) -> str:
    """Key of a method's twin if methods share a blob."""
    return f"{digest} {method}"


def write_twin(graphs: Mapping[str, Graph]) -> bytes:
    """Serialize graphs by key."""
    pool = _Pool()
    described = {key: _Writer(graph, pool).run() for key, graph in graphs.items()}
    header = json.dumps({"constants": pool.entries, "graphs": described}, separators=(",", ":"), allow_nan=False)
    raw = header.encode()
    start = HEAD.size + len(raw)
    return b"".join([HEAD.pack(MAGIC, VERSION, len(raw)), raw, bytes(-start % ALIGNMENT), *pool.chunks])


class _Pool:
    """Constants, deduplicated by content."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.chunks: list[bytes] = []
        self._index_of: dict[str, int] = {}
        self._end = 0

    def add(self, data: Array) -> int:
        raw = np.ascontiguousarray(data).tobytes()
        digest = hashlib.sha256(raw).hexdigest()
        index = self._index_of.setdefault(digest, len(self.entries))
        if index == len(self.entries):
            self.entries.append({"sha256": digest, "offset": self._end, "size": len(raw)})
            self.chunks += [raw, bytes(-len(raw) % ALIGNMENT)]
            self._end += len(raw) + -len(raw) % ALIGNMENT
        return index


class _Writer:
    def __init__(self, graph: Graph, pool: _Pool) -> None:
        verify(graph)
        self.graph = graph
        self.pool = pool
        self.indices = {value: i for i, value in enumerate(graph.values())}

    def run(self) -> dict[str, Any]:
        graph = self.graph
        if graph.updates or graph.weights:
            raise GraphError(graph.name, "has state, which a device graph cannot have")
        return {
            "name": graph.name,
            "values": [self._value(v) for v in graph.values()],
            "inputs": [self.indices[v] for v in graph.inputs],
            "outputs": [self.indices[v] for v in graph.outputs],
            "ops": [self._op(op) for op in graph.ops],
        }

    def _value(self, value: Value) -> dict[str, Any]:
        if value.dtype is None or str(value.dtype) not in DTYPES or value.state:
            raise GraphError(value.name, "must be a tensor of a plain type, without state")
        entry: dict[str, Any] = {
            "name": value.name, "dtype": str(value.dtype), "shape": [_size(s) for s in value.shape],
            "order": list(value.dim_order),
        }  # fmt: skip
        if value.q is not None:
            entry["q"] = _parameters(value.q)
        if value.data is not None:
            if value.data.dtype != value.dtype or value.data.shape != value.shape:
                raise GraphError(value.name, "must hold data of its own type and shape", value=value.data.dtype)
            entry["constant"] = self.pool.add(value.data)
        return entry

    def _op(self, op: Op) -> dict[str, Any]:
        if op.graphs:
            raise GraphError(op.kind, "has branches, which a device graph cannot have")
        outputs = [None if o is None else self.indices[o] for o in op.outputs]
        args = {name: self._argument(op, value) for name, value in op.args.items()}
        return {"kind": op.kind, "args": args, "outputs": outputs, "node": op.origin.node, "module": op.origin.module}

    def _argument(self, op: Op, item: Any) -> Any:
        if isinstance(item, Value):
            return {"value": self.indices[item]}
        if isinstance(item, list):
            return [self._argument(op, i) for i in item]
        if isinstance(item, tuple):
            return {"tuple": [self._argument(op, i) for i in item]}
        if isinstance(item, np.generic):
            item = item.item()
        if isinstance(item, float) and not math.isfinite(item):
            return {"float": str(item)}
        if item is None or isinstance(item, bool | int | float | str):
            return item
        if isinstance(item, Dim):
            return {"dim": _size(item)}
        raise GraphError(op.kind, "has an argument that a file cannot hold", value=item)


def _size(size: Size) -> Any:
    return {"expr": size.expr, "min": size.min, "max": size.max} if isinstance(size, Dim) else int(size)


def _parameters(q: QParams) -> dict[str, Any]:
    listed = {name: list(v) if isinstance(v, tuple) else v for name, v in _fields(q)}
    return {**listed, "dtype": str(q.dtype)}


def _fields(q: QParams) -> Iterator[tuple[str, Any]]:
    for name in ("scale", "zero_point", "qmin", "qmax", "axis", "block", "dynamic"):
        value = getattr(q, name)
        if value is not None:
            yield name, value
