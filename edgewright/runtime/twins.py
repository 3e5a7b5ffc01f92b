"""Host twins at run time: what this machine runs in place of blobs that only a device can run."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgewright.errors import ExecutionError, FormatError, MissingDataError
from edgewright.files import Source
from edgewright.ir.graph import Array, Graph, Value
from edgewright.ir.serialize import TWIN_KEY
from edgewright.pte.flat import Buffer

if TYPE_CHECKING:
    from edgewright.runtime.delegates import DelegateBlob


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


def fitting(inputs: Sequence[Array], values: Sequence[Value], what: str, bytes_alike: bool = False) -> list[Array]:
    """Inputs as a twin's graph takes them; with ``bytes_alike``, bytes of either sign are the integers it has."""
    if len(inputs) != len(values):
        raise ExecutionError(f"{what} delegate", f"takes {len(values)} inputs", value=len(inputs))
    for index, (array, value) in enumerate(zip(inputs, values, strict=True)):
        alike = array.dtype == value.dtype or (bytes_alike and str(array.dtype) in ("int8", "uint8"))
        if not alike or array.size != math.prod(value.bound):
            rule = f"must be {list(value.bound)} of {value.dtype}"
            found = f"{list(array.shape)} of {array.dtype}"
            raise ExecutionError(f"input {index} of the {what} delegate", rule, value=found)
    pairs = zip(inputs, values, strict=True)
    return [np.ascontiguousarray(a).view(v.dtype).reshape(v.bound) for a, v in pairs]


def graph_inside(given: DelegateBlob, what: str) -> Graph:
    """The graph of a blob that was made for this machine only: a twin in the blob's place."""
    from edgewright.ir.deserialize import read_twin

    graphs = list(read_twin(bytes(given.blob), given.memory).values())
    if len(graphs) != 1:
        raise FormatError("must hold one graph", where=f"{what} blob", value=len(graphs))
    return graphs[0]


def twin_of(given: DelegateBlob, what: str, why: str, instead: str = "") -> Graph:
    """The host twin of a blob, or an error that says ``why`` it is needed and what can be done ``instead``."""
    import hashlib

    digest = hashlib.sha256(given.blob).hexdigest()
    graph = given.twin(digest)
    if graph is None:
        rule = f"has no host twin, which is needed here: {why}"
        remedy = (
            "Keep m.twin beside m.pte, give load_program(..., twin=...), or compile with ExecutorchBackendConfig("
            f"host_twin='embed').{instead}"
        )
        raise MissingDataError(f"{what} blob {digest[:12]}", rule, remedy=remedy)
    return graph
