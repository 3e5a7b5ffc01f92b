"""The step that runs a segment of one set of shapes, made by the builder or of what an earlier process has kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgewright.runtime.infer_shapes import RuntimeInt
from edgewright.runtime.jit.segment_step import SegmentStep, scalar_slot
from edgewright.runtime.step import Step, Values
from edgewright.runtime.tensor import Array, Shape, TensorSlot

if TYPE_CHECKING:
    from edgewright.engine.jit.driver import CompiledGraph
    from edgewright.engine.profile import Profile


class SpecializedSegmentStep(SegmentStep):
    """A segment for one set of shapes. Outputs that are views alias the engine's result. ``scalars``: inputs that are
    numbers of the value table, by their index."""

    def __init__(
        self, compiled: CompiledGraph, inputs: list[TensorSlot], outputs: list[tuple[TensorSlot, Shape, bool]],
        calls: list[Step], end: int, guards: Sequence[tuple[TensorSlot, int, bool]], numbers: dict[int, Any],
    ) -> None:  # fmt: skip
        super().__init__(_SpecializedRunner(compiled), inputs, [slot for slot, *_ in outputs], calls, end, guards)
        self.compiled = compiled
        self._result_slots, self._numbers = outputs, numbers
        # A method has caches for each layer: what stays the same of slots is not asked in every call.
        self._stored_inputs = [(slot, _permutation(slot)) for slot in inputs]
        self._stored_results = [(slot, shape, view, _permutation(slot)) for slot, shape, view in outputs]
        self.scalars: dict[int, TensorSlot] = {}

    def describe(self, values: Values) -> dict[str, Any]:
        """What ``restore`` makes this step of, with a compiled graph: slots are described by their indices."""
        index: dict[TensorSlot, list[Any]] = {
            slot: [i] for i, slot in enumerate(values) if isinstance(slot, TensorSlot)
        }
        index |= {slot: [i, "scalar"] for i, slot in self.scalars.items()}
        numbers = {
            i: [number.index, number.offset] if isinstance(number, RuntimeInt) else number
            for i, number in self._numbers.items()
        }
        return {
            "start": self.end - self.length, "end": self.end, "inputs": [index[slot] for slot in self.input_slots],
            "outputs": [[index[slot], shape, view] for slot, shape, view in self._result_slots],
            "guards": [[index[slot], size, wrap] for slot, size, wrap in self._guards], "numbers": numbers,
        }  # fmt: skip

    def _guards_hold(self, table: Values) -> bool:
        for index, slot in self.scalars.items():
            slot.store(table[index])
        return super()._guards_hold(table)

    def run(self, table: Values, profile: Profile | None) -> int:
        for index, number in self._numbers.items():
            table[index] = table[number.index] + number.offset if isinstance(number, RuntimeInt) else number
        inputs = [_in_memory_order(slot.array, order) for slot, order in self._stored_inputs]
        targets = []
        for slot, shape, view, order in self._stored_results:
            if not view and (slot.array is None or slot.array.shape != shape):
                slot.resize(shape)
            targets.append(None if view or slot.array is None else _in_memory_order(slot.array, order))
        results = self.runner.run(inputs, targets, profile)
        if results is targets:
            return self.end
        for (slot, _, view), array, target in zip(self._result_slots, results, targets, strict=True):
            if array is target:
                continue
            logical = array.transpose([slot.dim_order.index(d) for d in range(array.ndim)])
            if view:
                slot.alias(logical)
            else:
                slot.store(logical)
        return self.end


def restore(
    compiled: CompiledGraph, binding: Mapping[str, Any], values: Values, chain: Sequence[Step]
) -> SpecializedSegmentStep:
    """The step that ``describe`` has described."""
    scalars: dict[int, TensorSlot] = {}

    def slot(described: Sequence[Any]) -> TensorSlot:
        if len(described) > 1:
            return scalars.setdefault(described[0], scalar_slot())
        found: TensorSlot = values[described[0]]
        return found

    inputs = [slot(d) for d in binding["inputs"]]
    outputs = [(slot(d), tuple(shape), view) for d, shape, view in binding["outputs"]]
    guards = [(slot(d), size, wrap) for d, size, wrap in binding["guards"]]
    numbers = {int(i): RuntimeInt(*n) if isinstance(n, list) else n for i, n in binding["numbers"].items()}
    start, end = binding["start"], binding["end"]
    step = SpecializedSegmentStep(compiled, inputs, outputs, list(chain[start:end]), end, guards, numbers)
    step.scalars = scalars
    return step


def _permutation(slot: TensorSlot) -> tuple[int, ...] | None:
    """The order of a tensor's dimensions in memory; None if it is their own."""
    return None if slot.dim_order == tuple(range(len(slot.dim_order))) else slot.dim_order


def _in_memory_order(array: Array | None, order: tuple[int, ...] | None) -> Array:
    """The same array object for the same tensor, if its dimensions are in memory order."""
    assert array is not None
    return array if order is None else array.transpose(order)


class _SpecializedRunner:
    """A compiled graph behind the interface of a segment's runner. ``compiled``: it serves one set of shapes only."""

    compiled = None

    def __init__(self, compiled: CompiledGraph) -> None:
        from edgewright.engine.isa import host_isa
        from edgewright.engine.jit.bound_arrays import BoundArrays

        self._bound_arrays = BoundArrays(compiled)
        self.compiled_graph, self.input_count = compiled, len(compiled.plan.inputs)
        plural = "s" if compiled.threads > 1 else ""
        self.how = f"engine, {host_isa().name}, {compiled.threads} thread{plural}, for these sizes"

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any] | None = None, profile: Any = None) -> list[Any]:
        """The results: the list ``outputs`` itself, if all of them are in it."""
        from edgewright.engine.runner import usable_outputs

        if profile is None and outputs is not None and self._bound_arrays.run(inputs, outputs):
            return outputs if isinstance(outputs, list) else list(outputs)
        targets = None if outputs is None else usable_outputs(outputs, self.compiled_graph.plan.outputs)
        return self.compiled_graph.run(inputs, targets, profile)
