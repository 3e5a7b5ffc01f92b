"""Executes XNNPACK blobs on the host, whether written here or by ExecuTorch; one verifying reader for both."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewright.backends.xnnpack.numerics import XNNPACK, XnnpackNumerics
from edgewright.engine.runner import Runner, make_runner
from edgewright.errors import FormatError
from edgewright.formats.flatbuffer import Buffer
from edgewright.ir.graph import Graph
from edgewright.runtime.delegates import DelegateBase, DelegateBlob

if TYPE_CHECKING:
    from edgewright.engine.jit.driver import CompiledGraph
    from edgewright.engine.jit.plan_cache import PlanSource
    from edgewright.engine.profile import Profile

Array = np.ndarray[Any, Any]


class XnnpackDelegate(DelegateBase):
    """A loaded blob. ``how`` describes the executor in use."""

    storage_order = True  # XNNPACK sees tensors in their memory order

    def __init__(self, source: DelegateBlob) -> None:
        self._source, self.deferred = source, source.deferred
        self._named_data = _TrackedData(source.named_data)
        self.bound_inputs = source.constants
        if not source.deferred:
            self.prepare()

    def prepare(self) -> None:
        """Compile the blob unless that is done already."""
        self.how = self._runner.how

    @cached_property
    def _runner(self) -> Runner:
        source = self._source
        return make_runner(
            lambda: self._graph, XNNPACK, source.memory, source.threads, dynamic=source.dynamic, origin=self._origin
        )

    @property
    def compiled(self) -> CompiledGraph | None:
        """The compiled graph, if one serves all calls."""
        return self._runner.compiled

    @property
    def numerics(self) -> XnnpackNumerics:
        return XNNPACK

    @property
    def device_graph(self) -> Graph:
        """The decoded graph, for callers that compile it together with neighboring operators."""
        return self._graph

    @cached_property
    def _graph(self) -> Graph:
        from edgewright.backends.xnnpack.blob import read_blob
        from edgewright.backends.xnnpack.blob_reader import from_blob
        from edgewright.ir.core.dialect import CORE

        try:
            graph = from_blob(read_blob(self._source.blob), self._named_data)
            self._source.layers.assign(graph.ops)
            _bind_constants(graph, self._source.constants)
            CORE.check(graph, self._source.memory)
            return graph
        except FormatError as error:
            raise error if error.where.startswith("XNNPACK blob") else error.inside("XNNPACK blob") from None
        except (ValueError, LookupError, ArithmeticError, TypeError) as error:  # inconsistent sizes
            raise FormatError(f"the graph is inconsistent: {error}", where="XNNPACK blob") from error

    def _origin(self) -> PlanSource:
        from edgewright.engine.jit.plan_cache import PlanSource

        source = self._source
        digest = hashlib.sha256(source.blob)
        for position, array in source.constants.items():
            digest.update(f"{position} {array.dtype} {array.shape}".encode())
            digest.update(array.tobytes())
        digest.update(source.layers.key().encode())
        return PlanSource(digest.hexdigest(), source.named_data.get, self._named_data.used)

    @property
    def input_count(self) -> int:
        count = len(self._graph.inputs) if self._source.deferred else self._runner.input_count
        return count + len(self._source.constants)

    def execute(self, inputs: Sequence[Array]) -> list[Array]:
        return self._runner.run(inputs)

    def execute_into(
        self, inputs: Sequence[Array], outputs: Sequence[Array | None], profile: Profile | None
    ) -> list[Array]:
        """Run, writing to ``outputs`` where possible; the result has new arrays for the others."""
        return self._runner.run(inputs, outputs, profile)


def _bind_constants(graph: Graph, constants: Mapping[int, Array]) -> None:
    """Give inputs that are constants of the program their contents, so that they are constants of the graph."""
    for position, array in constants.items():
        if position >= len(graph.inputs):
            raise FormatError("a result must not be a constant of the file", value=f"argument {position}")
        value = graph.inputs[position]
        scalar = value.bound == (1,) and array.shape == ()  # stock stores numbers with one dimension
        if value.dtype != array.dtype or (value.bound != array.shape and not scalar):
            rule = f"input {position} must be a {value.dtype} tensor of shape {list(value.bound)}"
            raise FormatError(rule, value=f"{array.dtype} {list(array.shape)}")
        value.data = array.reshape(value.bound)
    graph.inputs = [value for value in graph.inputs if value.data is None]


class _TrackedData(Mapping[str, Buffer]):
    """Named data that records which keys were looked up: they become part of the plan cache's key."""

    def __init__(self, data: Mapping[str, Buffer]) -> None:
        self._data = data
        self.used: set[str] = set()

    def __getitem__(self, name: str) -> Buffer:
        self.used.add(name)
        return self._data[name]

    def __contains__(self, name: object) -> bool:
        return name in self._data

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)
