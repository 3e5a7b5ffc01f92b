"""Delegate calls with their arguments bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgewright.errors import FormatError
from edgewright.runtime.binding import Values, load, slots
from edgewright.runtime.delegates import Delegate, ResultSpec, invoke, invoke_into
from edgewright.runtime.tensor import Array, TensorSlot

if TYPE_CHECKING:
    from edgewright.engine.profile import Profile, StepTime


class DelegateStep:
    """A delegate and the values it reads and writes."""

    def __init__(self, delegate: Delegate, args: Sequence[int], values: Values, replaced: set[int]) -> None:
        count = delegate.input_count
        if not 0 <= count <= len(args):
            raise FormatError(f"the delegate takes {count} inputs", value=f"{len(args)} arguments")
        self.delegate, self.inputs, self.outputs = delegate, list(args[:count]), list(args[count:])
        self._into = hasattr(delegate, "execute_into")
        for index in self.outputs:
            if index not in replaced:
                slots(index, values)
        for index in self.inputs:
            if not isinstance(values[index], TensorSlot):
                raise FormatError("a delegate's inputs are tensors", value=type(values[index]).__name__)

    def __call__(self, table: Values) -> None:
        self.run_profiled(table, None)

    def run_profiled(self, table: Values, parts: list[StepTime] | None) -> None:
        """Run; the times of the delegate's steps are appended to ``parts``."""
        inputs = [load(table[i], table) for i in self.inputs]
        outputs = [slot for i in self.outputs for slot in slots(i, table)]
        results = [ResultSpec(slot.dtype, slot.bound, slot.dim_order) for slot in outputs]
        orders = [table[i].dim_order for i in self.inputs]
        if not self._into:
            arrays: Sequence[Array | None] = invoke(self.delegate, inputs, orders, results)
        else:
            profile = None if parts is None else make_profile()
            targets = [slot.array for slot in outputs]
            arrays = invoke_into(self.delegate, inputs, orders, results, targets, profile)
            if parts is not None and profile is not None:
                parts += profile.parts
        for slot, array in zip(outputs, arrays, strict=True):
            if array is not None:
                slot.store(array)


def make_profile() -> Profile:
    from edgewright.engine.profile import Profile  # only if profiling

    return Profile()
