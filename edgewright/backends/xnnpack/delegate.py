"""Runs XNNPACK blobs on this machine: ours and stock's, through the same verified reader."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewright.engine.runner import Runner, make_runner
from edgewright.errors import FormatError
from edgewright.formats.flatbuffer import Buffer
from edgewright.ir.graph import Graph
from edgewright.ir.numerics import XNNPACK
from edgewright.runtime.delegates import DelegateBlob

if TYPE_CHECKING:
    from edgewright.engine.jit.driver import CompiledGraph
    from edgewright.engine.jit.plan_cache import PlanSource
    from edgewright.engine.profile import EngineProfile

Array = np.ndarray[Any, Any]


class XnnpackDelegate:
    """One blob, ready to run. ``how`` says what runs it."""

    storage_order = True  # XNNPACK sees tensors as they lie in memory

    def __init__(self, given: DelegateBlob) -> None:
        self._given = given
        self._names = _Names(given.named_data)
        if not given.waits:
            self.prepare()

    def prepare(self) -> None:
        """Compile the blob, if it was not."""
        assert self._runner is not None

    @cached_property
    def _runner(self) -> Runner:
        given = self._given
        return make_runner(
            lambda: self._graph, XNNPACK, given.memory, given.threads, varies=given.varies, origin=self._origin
        )

    @property
    def how(self) -> str:
        return self._runner.how

    @property
    def compiled(self) -> CompiledGraph | None:
        """The machine code, if there is one for all calls."""
        return getattr(self._runner, "compiled", None)

    @property
    def waits(self) -> bool:
        return self._given.waits

    @property
    def device_graph(self) -> Graph:
        """What the blob says, for those that run it together with what stands beside it."""
        return self._graph

    @cached_property
    def _graph(self) -> Graph:
        from edgewright.backends.xnnpack.blob import read_blob
        from edgewright.backends.xnnpack.blob_reader import from_blob
        from edgewright.ir.core.validate import validate_graph

        try:
            graph = from_blob(read_blob(self._given.blob), self._names)
            validate_graph(graph, self._given.memory)
            return graph
        except FormatError as error:
            raise error if error.where.startswith("XNNPACK blob") else error.inside("XNNPACK blob") from None
        except (ValueError, LookupError, ArithmeticError, TypeError) as error:  # numbers that fit no tensor
            raise FormatError(f"the graph does not hold together: {error}", where="XNNPACK blob") from error

    def _origin(self) -> PlanSource:
        from edgewright.engine.jit.plan_cache import PlanSource

        return PlanSource(hashlib.sha256(self._given.blob).hexdigest(), self._given.named_data.get, self._names.used)

    @property
    def input_count(self) -> int:
        return len(self._graph.inputs) if self._given.waits else self._runner.input_count

    def execute(self, inputs: Sequence[Array]) -> list[Array]:
        return self._runner.run(inputs)

    def execute_into(
        self, inputs: Sequence[Array], outputs: Sequence[Array | None], profile: EngineProfile | None
    ) -> list[Array]:
        """The outputs: those of ``outputs`` that could be written to, new arrays for the others."""
        return self._runner.run(inputs, outputs, profile)

    def close(self) -> None:
        """Nothing is held but memory."""


class _Names(Mapping[str, Buffer]):
    """Named data, and which of it was looked up."""

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


DELEGATE = XnnpackDelegate
