"""Delegate calls with their arguments bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgewright.errors import FormatError
from edgewright.runtime.binding import load, slots
from edgewright.runtime.delegates import Delegate, ResultSpec, invoke_into
from edgewright.runtime.step import Step, Values
from edgewright.runtime.tensor import TensorSlot

if TYPE_CHECKING:
    from edgewright.engine.profile import Profile, StepTime
    from edgewright.runtime.step import SingleGraph


class DelegateStep(Step):
    """A delegate and the values it reads and writes. ``backend``: its id in the file."""

    def __init__(
        self, delegate: Delegate, backend: str, args: Sequence[int], values: Values, replaced: set[int]
    ) -> None:
        count = delegate.input_count
        if not 0 <= count <= len(args):
            raise FormatError(f"the delegate takes {count} inputs", value=f"{len(args)} arguments")
        self.delegate, self.outputs = delegate, list(args[count:])
        self.inputs = [index for at, index in enumerate(args[:count]) if at not in delegate.bound_inputs]
        self._backend = backend
        for index in self.outputs:
            if index not in replaced:
                slots(index, values)
        for index in self.inputs:
            if not isinstance(values[index], TensorSlot):
                raise FormatError("a delegate's inputs are tensors", value=type(values[index]).__name__)

    @property
    def label(self) -> str:
        how = self.delegate.how
        return f"{self._backend} ({how})" if how else self._backend

    def single_graph(self, table: Values) -> SingleGraph | None:
        graph = self.delegate.compiled
        if graph is None:
            return None
        return graph, [table[i] for i in self.inputs], [table[i] for i in self.outputs]

    def __call__(self, table: Values) -> None:
        self._run(table, None)

    def run_profiled(self, table: Values, parts: list[StepTime]) -> None:
        profile = make_profile()
        self._run(table, profile)
        parts += profile.parts

    def _run(self, table: Values, profile: Profile | None) -> None:
        inputs = [load(table[i], table) for i in self.inputs]
        outputs = [slot for i in self.outputs for slot in slots(i, table)]
        results = [ResultSpec(slot.dtype, slot.bound, slot.dim_order) for slot in outputs]
        orders = [table[i].dim_order for i in self.inputs]
        arrays = invoke_into(self.delegate, inputs, orders, results, [slot.array for slot in outputs], profile)
        for slot, array in zip(outputs, arrays, strict=True):
            if array is not None:
                slot.store(array)


def make_profile() -> Profile:
    from edgewright.engine.profile import Profile  # only if profiling

    return Profile()
