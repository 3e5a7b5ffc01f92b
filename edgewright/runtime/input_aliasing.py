"""Input aliasing: which inputs a method may read in the caller's memory, without a copy.

A file plans memory for inputs, and other tensors may be planned over it: later ones, which reuse the bytes, and views
of the input that no instruction writes, which read them. An input with a tensor of the second kind must be copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edgewright.formats import checked_int, schema
from edgewright.runtime.binding import KernelStep
from edgewright.runtime.delegate_calls import DelegateStep
from edgewright.runtime.shared_state import is_shared
from edgewright.runtime.step import Step, Values
from edgewright.runtime.tensor import TensorSlot
from edgewright.runtime.values import TensorItems

_MAX_PAIRS = 100_000


def mark_aliasable_inputs(plan: schema.ExecutionPlan, values: Values, steps: Sequence[Step]) -> None:
    """Mark the inputs that nothing writes and whose planned memory nothing else reads before writing it."""
    if not all(isinstance(s, DelegateStep) or (isinstance(s, KernelStep) and not s.kernel.raw) for s in steps):
        return  # branches, moves and views create aliases
    live_in = live_in_tensors(plan, values, steps)
    if len(plan.inputs) * len(live_in) > _MAX_PAIRS:
        return  # copying is faster than this analysis
    for index in plan.inputs:
        slot = values[index]
        if not isinstance(slot, TensorSlot) or slot.mutated or plan.inputs.count(index) > 1:
            continue
        slot.aliasable = not any(overlaps(plan.values[index], plan.values[other]) for other in live_in - {index})


def live_in_tensors(plan: schema.ExecutionPlan, values: Values, steps: Sequence[Step]) -> set[int]:
    """Tensors that are read before any instruction writes them. Shared state counts: other methods may read it."""
    written: set[int] = set()
    live_in = {index for index, value in enumerate(plan.values) if is_shared(value)}
    for step in steps:
        live_in.update(set(tensor_indices(step.inputs, values)) - written)
        written.update(tensor_indices(step.outputs, values))
    return live_in | (set(tensor_indices(plan.outputs, values)) - written)


def has_state(plan: schema.ExecutionPlan, values: Values, steps: Sequence[Step]) -> bool:
    """Whether an execution may read what an earlier one wrote. Conservative with branches and moves."""
    return bool(state_tensors(plan, values, steps))


def state_tensors(plan: schema.ExecutionPlan, values: Values, steps: Sequence[Step]) -> set[int]:
    """Tensors that an execution may read as an earlier one wrote them."""
    calls = [step for step in steps if isinstance(step, DelegateStep | KernelStep)]
    changed = (i for step in calls for i in (*step.outputs, *step.mutated))
    return live_in_tensors(plan, values, calls) & set(tensor_indices(changed, values))


def tensor_indices(indices: Iterable[int], values: Values) -> Iterable[int]:
    for index in indices:
        value = values[index]
        if isinstance(value, TensorSlot):
            yield index
        elif isinstance(value, TensorItems):
            yield from (i for i in value.indices if i is not None)


def overlaps(a: schema.Value, b: schema.Value) -> bool:
    (first, start, end), (second, low, high) = memory_span(a), memory_span(b)
    return first == second and start < high and low < end


def covers(a: schema.Value, b: schema.Value) -> bool:
    (first, start, end), (second, low, high) = memory_span(a), memory_span(b)
    return first == second and start <= low and high <= end


def memory_span(value: schema.Value) -> tuple[int, int, int]:
    """The memory that a tensor is planned in, and the first byte and the byte after the last."""
    if not isinstance(value, schema.Tensor) or value.allocation_info is None:
        return -1, 0, 0
    info = value.allocation_info
    return (
        info.memory_id,
        info.offset,
        checked_int.add(info.offset, checked_int.tensor_bytes(value.scalar_type, value.sizes)),
    )
