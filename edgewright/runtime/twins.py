"""Host twins at run time: what this machine runs in place of blobs that only a device can run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from edgewright.files import Source
from edgewright.ir.graph import Graph
from edgewright.ir.serialize import TWIN_KEY
from edgewright.pte.flat import Buffer


class Twins:
    """The twins of a program: inside it, given by the user, or in ``m.twin`` beside ``m.pte``.

    They are read when a delegate first asks for its own, by the SHA-256 of its blob.
    """

    def __init__(self, named: Mapping[str, Buffer], source: Source | None, limit: int) -> None:
        self._source: Source | None = named.get(TWIN_KEY, source)
        self._limit = limit
        self._graphs: dict[str, Graph] | None = None

    def find(self, digest: str) -> Graph | None:
        """The graph of the blob with this hash, or None if there is none."""
        if self._graphs is None:
            from edgewright.ir.deserialize import read_twin  # most programs have none

            self._graphs = {} if self._source is None else read_twin(self._source, self._limit)
        return self._graphs.get(digest)


def beside(source: Source) -> Source | None:
    """The twin file next to a program's, if the program comes from a path and there is one."""
    if not isinstance(source, str | os.PathLike):
        return None
    path = Path(source).with_suffix(".twin")
    return path if path.exists() else None
