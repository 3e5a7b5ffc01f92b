"""Which inputs need no copy: a method may read them where the caller has them.

A file plans memory for inputs, and other tensors may be planned over it: later ones, which reuse it, and views of the
input that no instruction makes, which find its bytes there. Only with the first kind may the bytes be elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from edgewright.formats import checked_int, schema
from edgewright.runtime.binding import KernelStep, Values
from edgewright.runtime.delegate_calls import DelegateStep
from edgewright.runtime.shared_state import is_shared
from edgewright.runtime.tensor import TensorSlot
from edgewright.runtime.values import TensorItems

_MOST_PAIRS = 100_000


def lend_inputs(plan: schema.ExecutionPlan, values: Values, steps: Sequence[Any]) -> None:
    """Mark the inputs that nothing writes and whose planned memory nothing else reads before writing it."""
    if not all(isinstance(s, DelegateStep) or (isinstance(s, KernelStep) and not s.kernel.raw) for s in steps):
        return  # branches, moves and views give things other names
    found = found_there(plan, values, steps)
    if len(plan.inputs) * len(found) > _MOST_PAIRS:
        return  # copying is quicker than finding out
    for index in plan.inputs:
        slot = values[index]
        if not isinstance(slot, TensorSlot) or slot.mutated or plan.inputs.count(index) > 1:
            continue
        slot.lent = not any(overlap(plan.values[index], plan.values[other]) for other in found - {index})


def found_there(plan: schema.ExecutionPlan, values: Values, steps: Sequence[Any]) -> set[int]:
    """Tensors that are read before any instruction wrote them. What methods share is read by others at any time."""
    made: set[int] = set()
    found = {index for index, value in enumerate(plan.values) if is_shared(value)}
    for step in steps:
        found.update(set(tensors(step.inputs, values)) - made)
        made.update(tensors(step.outputs, values))
    return found | (set(tensors(plan.outputs, values)) - made)


def has_state(plan: schema.ExecutionPlan, values: Values, steps: Sequence[Any]) -> bool:
    """Whether an execution may read what an earlier one wrote; with branches and moves, sometimes if none does."""
    calls = [step for step in steps if isinstance(step, DelegateStep | KernelStep)]
    changed = (i for step in calls for i in (*step.outputs, *getattr(step, "changed", ())))
    return bool(found_there(plan, values, calls) & set(tensors(changed, values)))


def tensors(indices: Iterable[int], values: Values) -> Iterable[int]:
    for index in indices:
        value = values[index]
        if isinstance(value, TensorSlot):
            yield index
        elif isinstance(value, TensorItems):
            yield from (i for i in value.indices if i is not None)


def overlap(a: schema.Value, b: schema.Value) -> bool:
    (first, start, end), (second, low, high) = _span(a), _span(b)
    return first == second and start < high and low < end


def covers(a: schema.Value, b: schema.Value) -> bool:
    (first, start, end), (second, low, high) = _span(a), _span(b)
    return first == second and start <= low and high <= end


def _span(value: schema.Value) -> tuple[int, int, int]:
    if not isinstance(value, schema.Tensor) or value.allocation_info is None:
        return -1, 0, 0
    info = value.allocation_info
    return (
        info.memory_id,
        info.offset,
        checked_int.add(info.offset, checked_int.tensor_bytes(value.scalar_type, value.sizes)),
    )
