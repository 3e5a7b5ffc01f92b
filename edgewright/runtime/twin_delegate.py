"""Host twins: graphs that this machine runs in place of blobs that only a device can run."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from edgewright.errors import ExecutionError, FormatError, MissingTwinError
from edgewright.files import Source, open_source
from edgewright.formats.flatbuffer import Buffer
from edgewright.formats.twin_writer import TWIN_KEY, method_key
from edgewright.ir.graph import Array, Graph, GraphError
from edgewright.runtime.delegates import DelegateBase, DelegateBlob

if TYPE_CHECKING:
    from edgewright.engine.jit.plan_cache import PlanSource
    from edgewright.engine.plan import TensorSpec
    from edgewright.engine.profile import Profile
    from edgewright.engine.runner import GraphRunner
    from edgewright.ir.dialect import Dialect
    from edgewright.ir.numerics import Numerics


@dataclass(frozen=True, eq=False)
class HostTwin:
    """The graph of a blob, read on first use: a cached plan runs without it.

    ``digest`` covers all bytes that ``read`` reads; if it is empty, plans are not cached.
    """

    digest: str
    read: Callable[[], Graph]

    @cached_property
    def graph(self) -> Graph:
        return self.read()

    def runner(
        self, dialect: Dialect, memory: int, threads: int | None, numerics: Numerics | None = None
    ) -> GraphRunner:
        """The graph's runner, with the dialect's numerics or others. The graph is checked whenever it is read."""
        from edgewright.engine.runner import make_runner

        @cache
        def checked_graph() -> Graph:
            dialect.check(self.graph, memory)
            return self.graph

        def make_origin() -> PlanSource:
            from edgewright.engine.jit.plan_cache import PlanSource, source_fingerprint

            sources = source_fingerprint("ir", dialect.folder())
            return PlanSource(f"twin {self.digest} {sources}", lambda name: None, ())

        return make_runner(
            checked_graph, numerics or dialect.numerics, memory, threads, origin=make_origin if self.digest else None
        )


class Twins:
    """The host twins of a program: embedded, passed by the user, or in ``m.twin`` next to ``m.pte``.

    They are read when a delegate first looks up its own, by the SHA-256 of its blob, and by its method where a blob
    serves several.
    """

    def __init__(self, named_data: Mapping[str, Buffer], source: Source | None, limit: int) -> None:
        self._source: Source | None = named_data.get(TWIN_KEY, source)
        self._limit = limit
        self._graphs: dict[str, Graph] | None = None

    def find(self, digest: str) -> Graph | None:
        """The twin of the blob with this hash, or None."""
        if self._graphs is None:
            from edgewright.formats.twin_reader import read_twin  # most programs have none

            self._graphs = {} if self._source is None else read_twin(self._source, self._limit)
        return self._graphs.get(digest)

    @cached_property
    def digest(self) -> str:
        """Digest of everything that twins are read from; empty if there is nothing."""
        if self._source is None:
            return ""
        from edgewright.engine.jit.cache import cache_key

        self._source, _ = open_source(self._source, "twin")
        return cache_key(self._source, str(self._limit))


def find_twin_file(source: Source) -> Source | None:
    """The twin file next to a program's file, if there is one."""
    if not isinstance(source, str | os.PathLike):
        return None
    path = Path(source).with_suffix(".twin")
    return path if path.exists() else None


def fit_inputs(
    inputs: Sequence[Array], tensors: Sequence[TensorSpec], backend: str, bytes_alike: bool = False
) -> list[Array]:
    """Inputs in the dtypes and shapes of the twin's graph; with ``bytes_alike``, int8 and uint8 are interchangeable."""
    if len(inputs) != len(tensors):
        raise ExecutionError(f"{backend} delegate", f"takes {len(tensors)} inputs", value=len(inputs))
    for index, (array, tensor) in enumerate(zip(inputs, tensors, strict=True)):
        same_dtype = array.dtype == tensor.dtype or (bytes_alike and str(array.dtype) in ("int8", "uint8"))
        if not same_dtype or array.size != math.prod(tensor.shape):
            rule = f"must be {list(tensor.shape)} of {tensor.dtype}"
            actual = f"{list(array.shape)} of {array.dtype}"
            raise ExecutionError(f"input {index} of the {backend} delegate", rule, value=actual)
    pairs = zip(inputs, tensors, strict=True)
    return [np.ascontiguousarray(a).view(t.dtype).reshape(t.shape) for a, t in pairs]


def embedded_twin(blob: DelegateBlob, backend: str) -> HostTwin:
    """The graph of a blob compiled for the host only: a twin in place of the device's blob."""
    from edgewright.engine.jit.cache import cache_key

    def read() -> Graph:
        from edgewright.formats.twin_reader import read_twin

        graphs = list(read_twin(bytes(blob.blob), blob.memory).values())
        if len(graphs) != 1:
            raise FormatError("must hold one graph", where=f"{backend} blob", value=len(graphs))
        return graphs[0]

    return HostTwin(cache_key("inside", backend, memoryview(blob.blob).cast("B"), str(blob.memory)), read)


def find_twin(blob: DelegateBlob, backend: str, reason: str, alternative: str = "") -> HostTwin:
    """The host twin of a blob. If there is none, the error has the ``reason`` why it is needed, and an alternative."""
    import hashlib

    digest = hashlib.sha256(blob.blob).hexdigest()

    def read() -> Graph:
        graph = blob.twin(digest)
        graph = blob.twin(method_key(digest, blob.method)) if graph is None else graph
        if graph is None:
            raise _missing_twin(f"{backend} blob {digest[:12]}", bool(blob.twins_digest()), reason, alternative)
        return graph

    twins_digest = blob.twins_digest()
    return HostTwin(f"{method_key(digest, blob.method)} {twins_digest}" if twins_digest else "", read)


def _missing_twin(subject: str, found: bool, reason: str, alternative: str) -> MissingTwinError:
    """``found``: there is a twin, of another program."""
    rule = (
        "is not in the host twin that was found, which is another program's; its own"
        if found
        else "has no host twin, which"
    )
    remedy = (
        "Keep m.twin beside m.pte: save() and write_to_file() write both, and program.buffer is the program alone. Or"
        f" pass load_program(..., twin=...), or compile with ExecutorchBackendConfig(host_twin='embed').{alternative}"
    )
    error = MissingTwinError(subject, f"{rule} is needed here: {reason}", remedy=remedy)
    error.alternative = alternative
    return error


class TwinDelegate(DelegateBase):
    """A delegate that runs a core graph in place of its blob. ``how`` describes the runner."""

    storage_order = True  # tensors are in memory order
    device: ClassVar[str]
    bytes_alike: ClassVar[bool] = False  # int8 and uint8 are interchangeable

    def runs(self, runner: GraphRunner) -> None:
        """Set the runner of the graph."""
        self._runner, self.how = runner, runner.how
        self._inputs, self._outputs = runner.io

    @property
    def input_count(self) -> int:
        return len(self._inputs)

    def execute(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs for ``inputs``, in memory order."""
        return self.execute_into(inputs, [None] * len(self._outputs), None)

    def execute_into(
        self, inputs: Sequence[Array], outputs: Sequence[Array | None], profile: Profile | None
    ) -> list[Array]:
        """Like ``execute``, into those of ``outputs`` that can be written; new arrays for the others."""
        arrays = fit_inputs(inputs, self._inputs, self.device, self.bytes_alike)
        try:
            return self._runner.run(arrays, outputs, profile)
        except (ValueError, IndexError, TypeError, GraphError) as error:
            rule = f"the host twin's graph does not run: {error}"[:200]
            raise ExecutionError(f"{self.device} delegate", rule) from error
