"""A delegate that is loaded when it is first used: specializations from the cache make most delegates unnecessary."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from edgewright.ir.graph import Graph
from edgewright.ir.numerics import Numerics
from edgewright.runtime.delegates import Array, Delegate

if TYPE_CHECKING:
    from edgewright.engine.jit.driver import CompiledGraph
    from edgewright.engine.profile import Profile


class LazyDelegate:
    """``make`` loads the delegate. ``input_count`` and ``bound_inputs``: its members, known beforehand."""

    deferred = False

    def __init__(self, make: Callable[[], Delegate], input_count: int, bound_inputs: Collection[int]) -> None:
        self._make = make
        self.input_count, self.bound_inputs = input_count, bound_inputs

    @cached_property
    def _delegate(self) -> Delegate:
        delegate = self._make()
        delegate.prepare()
        return delegate

    @property
    def how(self) -> str:
        return self._delegate.how if "_delegate" in self.__dict__ else ""

    @property
    def storage_order(self) -> bool:
        return self._delegate.storage_order

    @property
    def raw_outputs(self) -> bool:
        return self._delegate.raw_outputs

    @property
    def device_graph(self) -> Graph | None:
        return self._delegate.device_graph

    @property
    def numerics(self) -> Numerics:
        return self._delegate.numerics

    @property
    def compiled(self) -> CompiledGraph | None:
        return self._delegate.compiled

    def prepare(self) -> None:
        """It is prepared when it is loaded."""

    def execute(self, inputs: Sequence[Array]) -> Sequence[Array]:
        return self._delegate.execute(inputs)

    def execute_into(
        self, inputs: Sequence[Array], outputs: Sequence[Array | None], profile: Profile | None
    ) -> Sequence[Array]:
        return self._delegate.execute_into(inputs, outputs, profile)

    def close(self) -> None:
        if "_delegate" in self.__dict__:
            self._delegate.close()
