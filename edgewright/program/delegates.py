"""Delegate blobs: collected from all methods, stored once each, in segments or inside the program's tables."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgewright.formats import schema
from edgewright.formats.flatbuffer import Buffer
from edgewright.formats.twin_reader import read_twin
from edgewright.formats.twin_writer import method_key, write_twin


@dataclass
class DelegatePool:
    """The blobs of a program. References count blobs until ``store`` knows where they are."""

    blobs: list[Buffer] = field(default_factory=list)
    delegates: list[schema.BackendDelegate] = field(default_factory=list)
    named: dict[str, Buffer] = field(default_factory=dict)  # data that blobs look up
    estimates: list[Mapping[str, Any]] = field(default_factory=list)  # what vendors expect of blobs
    _twins: dict[str, dict[str, bytes]] = field(default_factory=dict)  # by the blob's SHA-256 and the method
    _known: dict[bytes, int] = field(default_factory=dict)

    def add(
        self, backend: str, blob: Buffer, specs: Mapping[str, bytes], twin: bytes | None = None,
        estimates: Mapping[str, Any] | None = None, method: str = "forward",
    ) -> schema.BackendDelegate:  # fmt: skip
        """What a method says about one call of a delegate."""
        digest = hashlib.sha256(blob)
        index = self._known.setdefault(digest.digest(), len(self.blobs))
        if twin is not None:
            self._twins.setdefault(digest.hexdigest(), {})[method] = twin
        if index == len(self.blobs):
            self.blobs.append(blob)
            self.estimates += [] if estimates is None else [estimates]
        made = schema.BackendDelegate(
            id=backend,
            processed=schema.BackendDelegateDataReference(location=int(schema.DataLocation.INLINE), index=index),
            compile_specs=[schema.CompileSpec(key=key, value=value) for key, value in specs.items()],
        )
        self.delegates.append(made)
        return made

    def twin(self) -> bytes | None:
        """The host twins of all blobs in one file, or None if none needs one.

        They are named by the SHA-256 of the blob; where methods have different twins for one, by the method, too.
        """
        if not self._twins:
            return None
        found = {}
        for digest, held in sorted(self._twins.items()):
            alone = len(set(held.values())) == 1
            for method, data in sorted(held.items()):
                found[digest if alone else method_key(digest, method)] = next(iter(read_twin(data).values()))
        return write_twin(found)

    def store(self, program: schema.Program, *, extract: bool, alignment: int) -> None:
        """Put the blobs into segments of their own or, unless ``extract``, into the tables."""
        if not extract:
            program.backend_delegate_data = [schema.BackendDelegateInlineData(data=bytes(b)) for b in self.blobs]
            return
        segments = [program.add_segment(blob, alignment) for blob in self.blobs]
        for delegate in self.delegates:
            delegate.processed = schema.BackendDelegateDataReference(
                location=int(schema.DataLocation.SEGMENT), index=segments[delegate.processed.index]
            )
