"""What the instructions of a method read and write, as indices of its value table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edgewright.formats import schema
from edgewright.formats.checked_int import tensor_bytes
from edgewright.formats.operator_signatures import OPERATORS


@dataclass(frozen=True)
class Call:
    """An instruction: its position, what it is, and the tensors it reads and writes. A view that it reads is followed
    by the tensor whose memory it observes."""

    chain: int
    index: int
    instruction: schema.InstructionType
    name: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]


def calls(plan: schema.ExecutionPlan) -> list[Call]:
    """The instructions of a verified plan, in the order of the file."""
    defined = {*plan.inputs, *(i for i, value in enumerate(plan.values) if _is_stored(value))}
    result: list[Call] = []
    for c, chain in enumerate(plan.chains):
        for i, instruction in enumerate(chain.instructions):
            name, reads, writes = _operands(plan, instruction, defined)
            tensors = _tensors(plan, reads)
            viewed = [v for t in tensors if t not in defined and (v := _viewed(plan, t, result)) is not None]
            result.append(Call(c, i, instruction, name, (*tensors, *viewed), _tensors(plan, writes)))
            defined.update(result[-1].writes)
    return result


def _viewed(plan: schema.ExecutionPlan, index: int, before: Sequence[Call]) -> int | None:
    """The tensor that a view observes, one that no instruction writes: whatever was last written to its memory."""
    span = _memory(plan.values[index])
    if span is None:
        return None
    for call in reversed(before):
        for written in call.writes:
            other = _memory(plan.values[written])
            if other is not None and other[0] == span[0] and other[1] < span[2] and span[1] < other[2]:
                return written
    return None


def _memory(value: schema.Value) -> tuple[int, int, int] | None:
    """The arena of a planned tensor, and its first and last byte there."""
    if not isinstance(value, schema.Tensor) or value.allocation_info is None:
        return None
    start = value.allocation_info.offset
    return value.allocation_info.memory_id, start, start + tensor_bytes(value.scalar_type, value.sizes)


def _operands(
    plan: schema.ExecutionPlan, instruction: schema.InstructionType, defined: set[int]
) -> tuple[str, Sequence[int], Sequence[int]]:
    if isinstance(instruction, schema.KernelCall):
        key = (plan.operators or [])[instruction.op_index].key
        signature, args = OPERATORS.get(key), instruction.args
        if signature is None or len(args) != signature.num_values:
            return key, args[:-1], args[-1:]
        updated = [i for i, argument in zip(args, signature.inputs, strict=False) if argument.is_write]
        count = len(signature.inputs)
        return key, args[:count], [*updated, *(args[count : len(signature.args)] or args[-1:])]
    if isinstance(instruction, schema.DelegateCall):
        # Inputs come first: the outputs begin with the first tensor that nothing has written yet.
        args = instruction.args
        split = next((n for n, i in enumerate(args) if i not in defined), None)
        split = len(args) - 1 if split is None else split
        return plan.delegates[instruction.delegate_index].id, args[:split], args[split:]
    if isinstance(instruction, schema.MoveCall):
        return "move", [instruction.move_from], [instruction.move_to]
    if isinstance(instruction, schema.JumpFalseCall):
        return "jump if false", [instruction.cond_value_index], []
    return "free", [instruction.value_index], []


def _is_stored(value: schema.Value) -> bool:
    return isinstance(value, schema.Tensor) and bool(value.external or value.data_buffer_idx)


def _tensors(plan: schema.ExecutionPlan, indices: Sequence[int]) -> tuple[int, ...]:
    """The tensors among values, those in lists included."""
    return tuple(dict.fromkeys(_expand(plan, indices)))


def _expand(plan: schema.ExecutionPlan, indices: Sequence[int]) -> Iterator[int]:
    for index in indices:
        value = plan.values[index]
        if isinstance(value, schema.TensorList | schema.OptionalTensorList):
            yield from (i for i in value.items if i >= 0)
        elif isinstance(value, schema.Tensor):
            yield index
