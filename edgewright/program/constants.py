"""Constant pool: each distinct content is stored once, across methods and names."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np

from edgewright.formats.container import Chunks
from edgewright.formats.ptd import PtdEntry, TensorLayout
from edgewright.ir.dtypes import to_scalar_type
from edgewright.ir.graph import Array, Value


def constant_bytes(value: Value) -> memoryview:
    """A constant's bytes in its dim order: a view of the weights if their layout permits."""
    assert value.data is not None
    data: Array = value.data.transpose(value.dim_order) if value.data.ndim else value.data
    if not data.size:
        return memoryview(b"")
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8).data


@dataclass
class ConstantPool:
    """Collects the constants of all methods."""

    alignment: int = 16
    chunks: Chunks = field(default_factory=Chunks)
    offsets: list[int] = field(default_factory=lambda: [0])
    external: dict[str, dict[str, PtdEntry]] = field(default_factory=dict)  # by file tag, then by name
    _index_by_digest: dict[bytes, int] = field(default_factory=dict)

    def add(self, value: Value) -> int:
        """The index of a constant's data, stored if it is new."""
        data = constant_bytes(value)
        digest = hashlib.sha256(data).digest()
        if digest not in self._index_by_digest:
            self._index_by_digest[digest] = len(self.offsets)
            self.offsets.append(self.chunks.add(data, self.alignment))
        return self._index_by_digest[digest]

    def find(self, digest: bytes) -> int | None:
        """Where the data with this SHA-256 starts, or None."""
        index = self._index_by_digest.get(digest)
        return None if index is None else self.offsets[index]

    def add_external(self, value: Value, tag: str) -> None:
        """Add a constant to the data file ``tag``, under its own name."""
        layout = TensorLayout(
            scalar_type=int(to_scalar_type(value.dtype)), sizes=value.bound, dim_order=value.dim_order
        )
        self.external.setdefault(tag, {})[value.qualified_name] = PtdEntry(constant_bytes(value), layout)
