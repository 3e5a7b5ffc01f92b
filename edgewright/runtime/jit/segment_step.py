"""The step that runs a segment, and which methods may have segments.

Apart from the builder of segments, which a method does not need whose graphs are in the cache of compiled ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from edgewright.ir.dtypes import ScalarType
from edgewright.ir.graph import Array
from edgewright.runtime.binding import load
from edgewright.runtime.delegate_calls import make_profile
from edgewright.runtime.step import Step, Values
from edgewright.runtime.tensor import TensorSlot

if TYPE_CHECKING:
    from edgewright.engine.profile import Profile, StepTime
    from edgewright.engine.runner import Runner
    from edgewright.runtime.step import SingleGraph

_MAX_INSTRUCTIONS = 20_000  # instructions: liveness is computed by scanning all of them
COMPUTE_KERNELS = {
    f"aten::{name}.out"
    for name in ("convolution", "addmm", "mm", "linear", "bmm", "native_layer_norm", "native_group_norm", "_softmax",
                 "gelu")
}  # fmt: skip


def can_analyze(steps: Sequence[Step]) -> bool:
    """Whether liveness analysis, quadratic in the number of calls, is affordable."""
    return len(steps) <= _MAX_INSTRUCTIONS


def scalar_slot() -> TensorSlot:
    """The slot of an input that is an integer of the value table."""
    return TensorSlot(ScalarType.INT64, (), ())


class SegmentStep(Step):
    """Calls compiled to one graph, which reads and writes ``input_slots`` and ``output_slots``; execution continues at
    ``end``, the instruction after them."""

    def __init__(
        self, runner: Runner, inputs: list[TensorSlot], outputs: list[TensorSlot], calls: list[Step], end: int,
        guards: Iterable[tuple[TensorSlot, int, bool]],
    ) -> None:  # fmt: skip
        self.runner, self.input_slots, self.output_slots, self.end = runner, inputs, outputs, end
        self.length = len(calls)
        self._calls, self._guards = calls, tuple(guards)
        self._shared = _sharing_memory([slot.array for slot in outputs])

    @property
    def label(self) -> str:
        return f"{len(self._calls)} calls ({self.runner.how})"

    def single_graph(self, table: Values) -> SingleGraph | None:
        graph = self.runner.compiled
        return None if graph is None or self._guards else (graph, self.input_slots, self.output_slots)

    def __call__(self, table: Values) -> int:
        return self.run(table, None) if self._guards_hold(table) else self._run_calls(table)

    def run_profiled(self, table: Values, parts: list[StepTime]) -> int:
        if not self._guards_hold(table):
            return self._run_calls(table)
        profile = make_profile()
        end = self.run(table, profile)
        parts += profile.parts
        return end

    def run(self, table: Values, profile: Profile | None) -> int:
        """Run the compiled graph. Outputs that share memory with each other, because the first is dead before the call
        that writes the second, are stored after the run in the order of their calls."""
        inputs = [load(slot, table).transpose(slot.dim_order) for slot in self.input_slots]
        targets = [
            None if slot.array is None or shared else slot.array.transpose(slot.dim_order)
            for slot, shared in zip(self.output_slots, self._shared, strict=True)
        ]
        results = self.runner.run(inputs, targets, profile)
        for slot, array, target in zip(self.output_slots, results, targets, strict=True):
            if array is not target:
                slot.store(array.transpose([slot.dim_order.index(d) for d in range(array.ndim)]))
        return self.end

    def _guards_hold(self, table: Values) -> bool:
        """Whether every index read from outside the segment is in range, and no divisor is zero."""
        return all(_in_range(load(slot, table), size, wrap) for slot, size, wrap in self._guards)

    def _run_calls(self, table: Values) -> int:
        """Run the original calls; one of them reports what is wrong."""
        for call in self._calls:
            call(table)
        return self.end


def _sharing_memory(arrays: Sequence[Array | None]) -> list[bool]:
    """For each array, whether it overlaps another one."""
    order = sorted((_byte_range(array), i) for i, array in enumerate(arrays) if array is not None)
    shared, last, end = [False] * len(arrays), -1, -1  # the array that reaches furthest so far, and where it ends
    for (first, after), index in order:
        if first < end:
            shared[index] = shared[last] = True
        if after > end:
            last, end = index, after
    return shared


def _byte_range(array: Array) -> tuple[int, int]:
    """Addresses of a tensor's memory, which has no gaps."""
    first = array.__array_interface__["data"][0]
    return first, first + array.nbytes


def _in_range(indices: Any, size: int, wrap: bool) -> bool:
    """Whether all indices fit a dimension of ``size``; for a size of 0, whether all divisors are nonzero."""
    if not size:
        return bool(indices.all())
    low, high = (int(indices.min()), int(indices.max())) if indices.size != 1 else (int(indices.item()),) * 2
    return high < size and low >= (-size if wrap else 0)
