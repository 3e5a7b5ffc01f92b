"""Memory of a program: the arena over time, weights by owner, and the parts of the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgewright.formats import schema
from edgewright.formats.checked_int import tensor_bytes
from edgewright.formats.layer_table import MethodLayers, read_layers
from edgewright.ir.layer_names import summarize_layers
from edgewright.report.dataflow import Call, calls
from edgewright.report.file_facts import file_parts
from edgewright.report.layer_sizes import NO_LAYER, DelegateBytes, by_layer
from edgewright.report.model import Arena, Block, Memory, Weights

MAX_BLOCKS = 2_000  # tensors of an arena in a page


def memory_of(program: schema.Program, facts: Mapping[str, Any], delegates: Sequence[DelegateBytes]) -> Memory:
    """The memory of a program. ``facts``: as ``program_facts`` gives them, with the file's size. ``delegates``: their
    bytes by layer."""
    layers = read_layers(program)
    return Memory(
        file_bytes=facts["bytes"],
        parts=file_parts(facts),
        arenas=[
            arena for plan in program.execution_plan for arena in arenas(plan, layers.get(plan.name, MethodLayers()))
        ],
        weights=weights_by_owner(facts, delegates),
        planned=sum(method["planned_bytes"] for method in facts["methods"]),
    )


def arenas(plan: schema.ExecutionPlan, layers: MethodLayers) -> list[Arena]:
    """The arenas of a method, with every planned tensor and its live range. ``layers``: of its instructions."""
    instructions = calls(plan)
    first: dict[int, int] = dict.fromkeys(plan.inputs, 0)
    last: dict[int, int] = {}
    for at, call in enumerate(instructions):
        for index in call.writes:
            first.setdefault(index, at)
        for index in (*call.reads, *call.writes):
            last[index] = at
    end = max(len(instructions) - 1, 0)
    last.update(dict.fromkeys(plan.outputs, end))
    result = [Arena(plan.name, i, size, instructions=len(instructions))
              for i, size in enumerate(plan.non_const_buffer_sizes) if i and size]  # fmt: skip
    by_index = {arena.index: arena for arena in result}
    names = {i: f"input {n}" for n, i in enumerate(plan.inputs)} | {
        i: f"output {n}" for n, i in enumerate(plan.outputs)
    }
    for index, value in enumerate(plan.values):
        place = value.allocation_info if isinstance(value, schema.Tensor) else None
        if place is None or place.memory_id not in by_index or not isinstance(value, schema.Tensor):
            continue
        is_state = bool(value.data_buffer_idx)  # keeps its contents between calls
        start, stop = (0, end) if is_state else (first.get(index, last.get(index, 0)), last.get(index, end))
        name = names.get(index) or _name(instructions, index, first, is_state, layers)
        size = tensor_bytes(value.scalar_type, value.sizes)
        by_index[place.memory_id].blocks.append(Block(name, start, max(start, stop), place.offset, size))
    for arena in result:
        _summarize(arena)
    return result


def _name(instructions: list[Call], index: int, first: Mapping[int, int], is_state: bool, layers: MethodLayers) -> str:
    if is_state:
        return f"state %{index}"
    if index not in first:
        return f"%{index}"
    call = instructions[first[index]]
    is_delegate = isinstance(call.instruction, schema.DelegateCall)
    origins = (
        layers.delegate(call.instruction.delegate_index).origins  # type: ignore[union-attr]
        if is_delegate
        else [layers.instruction(call.chain, call.index)]
    )
    layer = summarize_layers(origins)
    return f"{layer}: {call.name} (%{index})" if layer else f"%{index} of {call.name}"


def _summarize(arena: Arena) -> None:
    """Live bytes and their peak, counting memory that tensors share once; the blocks of the page, the largest first."""
    changes = {
        0,
        *(b.start for b in arena.blocks),
        *(b.end + 1 for b in arena.blocks if b.end + 1 < arena.instructions),
    }
    for at in sorted(changes) if len(changes) * len(arena.blocks) <= 1 << 24 else ():
        live = sorted((b.offset, b.offset + b.bytes) for b in arena.blocks if b.start <= at <= b.end)
        used = reach = 0
        for low, high in live:
            used += max(0, high - max(low, reach))
            reach = max(reach, high)
        if not arena.live or arena.live[-1][1] != used:
            arena.live.append((at, used))
        if used > arena.peak:
            arena.peak, arena.peak_at = used, at
    arena.total = len(arena.blocks)
    arena.blocks.sort(key=lambda b: (-b.bytes, b.start))
    del arena.blocks[MAX_BLOCKS:]


def weights_by_owner(facts: Mapping[str, Any], delegates: Sequence[DelegateBytes]) -> list[Weights]:
    """Constants by module where the file names them, else by the operator that reads them; what delegates have besides
    them, too."""
    owners: dict[str, list[int]] = {}
    for tensor in facts["tensors"]:
        if tensor["bytes"]:
            owners.setdefault(_owner(tensor), []).append(tensor["bytes"])
    result = [Weights(owner, len(sizes), sum(sizes)) for owner, sizes in owners.items()]
    for name, size in by_layer(delegates).items():
        result.append(Weights(f"delegates: {name}" if name in NO_LAYER else name, 1, size))
    return sorted(result, key=lambda w: -w.bytes)


def _owner(tensor: Mapping[str, Any]) -> str:
    if tensor["name"]:
        return str(tensor["name"]).rpartition(".")[0] or str(tensor["name"])
    use = tensor["used_by"] or {}
    if not use:
        return f"constant {tensor['index']}"
    return str(use["layer"] or f"{use['operator']}, constant {tensor['index']}")
