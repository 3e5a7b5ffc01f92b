"""Delegate blobs of all methods, deduplicated, stored in segments or inline in the program's tables."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgewright.formats import schema
from edgewright.formats.flatbuffer import Buffer
from edgewright.formats.twin_reader import read_twin
from edgewright.formats.twin_writer import method_key, write_twin
from edgewright.ir.graph import Origin


@dataclass
class DelegatePool:
    """The blobs of a program. References are blob numbers until ``store`` assigns segments."""

    blobs: list[Buffer] = field(default_factory=list)
    delegates: list[schema.BackendDelegate] = field(default_factory=list)
    named_data: dict[str, Buffer] = field(default_factory=dict)  # named data of blobs
    estimates: list[Mapping[str, Any]] = field(default_factory=list)  # vendors' performance estimates
    _twins: dict[str, dict[str, bytes]] = field(default_factory=dict)  # by the blob's SHA-256 and the method
    _index_by_digest: dict[bytes, int] = field(default_factory=dict)

    def add(
        self, backend: str, blob: Buffer, specs: Mapping[str, bytes], twin: bytes | None = None,
        estimates: Mapping[str, Any] | None = None, method: str = "forward",
    ) -> schema.BackendDelegate:  # fmt: skip
        """Register a blob; returns the delegate entry of the calling method."""
        digest = hashlib.sha256(blob)
        index = self._index_by_digest.setdefault(digest.digest(), len(self.blobs))
        if twin is not None:
            self._twins.setdefault(digest.hexdigest(), {})[method] = twin
        if index == len(self.blobs):
            self.blobs.append(blob)
            self.estimates += [] if estimates is None else [estimates]
        delegate = schema.BackendDelegate(
            id=backend,
            processed=schema.BackendDelegateDataReference(location=int(schema.DataLocation.INLINE), index=index),
            compile_specs=[schema.CompileSpec(key=key, value=value) for key, value in specs.items()],
        )
        self.delegates.append(delegate)
        return delegate

    def twin(self, *, names: bool = True) -> bytes | None:
        """The host twins of all blobs in one file, or None. ``names``: with those of the user's modules.

        Keys are the SHA-256 of the blob; if methods have different twins for one blob, the method is part of the key.
        """
        if not self._twins:
            return None
        graphs = {}
        for digest, by_method in sorted(self._twins.items()):
            identical = len(set(by_method.values())) == 1
            for method, data in sorted(by_method.items()):
                graph = next(iter(read_twin(data).values()))
                for op in () if names else graph.ops:
                    op.origin = Origin()
                graphs[digest if identical else method_key(digest, method)] = graph
        return write_twin(graphs)

    def store(self, program: schema.Program, *, extract: bool, alignment: int) -> None:
        """Store the blobs in segments or, unless ``extract``, in the tables."""
        if not extract:
            program.backend_delegate_data = [schema.BackendDelegateInlineData(data=bytes(b)) for b in self.blobs]
            return
        segments = [program.add_segment(blob, alignment) for blob in self.blobs]
        for delegate in self.delegates:
            delegate.processed = schema.BackendDelegateDataReference(
                location=int(schema.DataLocation.SEGMENT), index=segments[delegate.processed.index]
            )
