"""In-place results: a result takes over the memory of an operand that dies at the same instruction.

Sound only if the kernel tolerates aliasing, which a runtime does not promise: ``IN_PLACE`` has the kernels of
ExecuTorch that read an element before they write the same position of the result. Both tensors must have the same
static shape, dtype and dim order; the operand's live range must end, and the result's start, at this instruction. This
is register coalescing (Muchnick, "Advanced Compiler Design and Implementation", chapter 16) with blocks for registers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgewright.formats import schema
from edgewright.formats.operator_signatures import OPERATORS, Kind, Signature
from edgewright.ir.aten.ops import OPS
from edgewright.ir.aten.table import OpClass
from edgewright.program.memory import Allocation, Block

# Kernels whose last read of an element of these operands precedes the write of the result's element at the same
# position: a test runs each of them in the stock runtime with operand and result in the same memory.
IN_PLACE: dict[str, tuple[str, ...]] = {
    **{
        key: tuple(a.name for a in signature.inputs if a.kind is Kind.TENSOR)
        for key, signature in OPERATORS.items()
        if OpClass.ELEMENTWISE in OPS.classes(signature.functional)
    },
    "aten::native_layer_norm.out": ("input",),
    "aten::_native_batch_norm_legit_no_training.out": ("input",),
}


@dataclass(frozen=True)
class MethodCalls:
    """The instructions of a method, with allocations by value index."""

    values: Sequence[Any]
    instructions: Sequence[Any]
    operators: Sequence[str]
    allocations: Mapping[int, Allocation]


def merge_in_place(calls: MethodCalls, fixed: Collection[Block]) -> None:
    """Merge blocks: a result takes over the block of an operand whose last use is its instruction.

    ``fixed`` are blocks that must not be merged: those of state.
    """
    users: dict[Block, list[Allocation]] = {}
    for allocation in calls.allocations.values():
        users.setdefault(allocation.block, []).append(allocation)
    for at, call in enumerate(calls.instructions):
        key = calls.operators[call.op_index] if isinstance(call, schema.KernelCall) else ""
        if key not in IN_PLACE:
            continue
        out = call.args[len(OPERATORS[key].inputs)]
        for source in _candidates(OPERATORS[key], call):
            if _can_reuse(calls, out, source, at) and calls.allocations[source].block not in fixed:
                _merge_blocks(users, calls.allocations[source].block, calls.allocations[out].block)
                break


def _candidates(signature: Signature, call: schema.KernelCall) -> list[int]:
    names = IN_PLACE[signature.key]
    pairs = zip(signature.inputs, call.args, strict=False)
    return [index for argument, index in pairs if argument.kind is Kind.TENSOR and argument.name in names]


def _can_reuse(calls: MethodCalls, out: int, source: int, at: int) -> bool:
    """True if the result has the operand's type, its live range starts here, and the operand's ends here."""
    result, operand = calls.allocations.get(out), calls.allocations.get(source)
    if result is None or operand is None or result.block is operand.block or not (result.planned and operand.planned):
        return False
    a, b = calls.values[out], calls.values[source]
    return (
        result.block.start == at == operand.block.end
        and result.block.size == operand.block.size
        and a.shape_dynamism == b.shape_dynamism == schema.Dynamism.STATIC
        and (a.scalar_type, tuple(a.sizes), tuple(a.dim_order)) == (b.scalar_type, tuple(b.sizes), tuple(b.dim_order))
    )


def _merge_blocks(users: dict[Block, list[Allocation]], merged: Block, removed: Block) -> None:
    merged.end = removed.end
    for allocation in users.pop(removed):
        allocation.block = merged
        users[merged].append(allocation)
