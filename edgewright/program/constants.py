"""Constants: each distinct content is stored once, whatever method or name it came with."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np

from edgewright.formats.container import Chunks
from edgewright.formats.ptd import PtdEntry, TensorLayout
from edgewright.ir.dtypes import to_scalar_type
from edgewright.ir.graph import Array, Value


def stored_bytes(value: Value) -> memoryview:
    """A constant's bytes in its dim order: a view of the weights where their layout allows."""
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
    _known: dict[bytes, int] = field(default_factory=dict)

    def add(self, value: Value) -> int:
        """The index of a constant's data, stored if it is new."""
        data = stored_bytes(value)
        digest = hashlib.sha256(data).digest()
        if digest not in self._known:
            self._known[digest] = len(self.offsets)
            self.offsets.append(self.chunks.add(data, self.alignment))
        return self._known[digest]

    def add_external(self, value: Value, tag: str) -> None:
        """Keep a constant for the data file named ``tag``, under its own name."""
        layout = TensorLayout(
            scalar_type=int(to_scalar_type(value.dtype)), sizes=value.bound, dim_order=value.dim_order
        )
        self.external.setdefault(tag, {})[value.qualified_name] = PtdEntry(stored_bytes(value), layout)
