"""Storage of a method's tensors: which tensors share a block, its live range, and its offset.

Planning has four steps. The emitter assigns each tensor a block, shared with its source for views. ``finish`` computes
live ranges over the linear instruction list, extended over loops; lets results take over the block of a dying operand
(``inplace.py``); and assigns offsets (``memory.py``). State of all methods may be placed in a separate arena at fixed
offsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from edgewright.formats import schema
from edgewright.ir.graph import Graph, Value
from edgewright.program.inplace import MethodCalls, merge_in_place
from edgewright.program.memory import Allocation, Block, MemoryPlanningPass, plan_arena

if TYPE_CHECKING:
    from edgewright.program.shared_state import SharedLayout


class StoragePlan:
    """The blocks of one method's tensors."""

    def __init__(self, graph: Graph, planning: MemoryPlanningPass, layout: SharedLayout | None = None) -> None:
        self.planning = planning
        self.layout = layout
        self.inputs = {v for v in graph.inputs if isinstance(v, Value)}
        self.outputs = {v for v in graph.outputs if isinstance(v, Value)}
        self.updated = {target for target, _ in graph.updates}
        self.loops: list[tuple[int, int]] = []  # first and last instruction of each loop
        self.overread = 0  # bytes that may be read past the end of a tensor
        self._allocations: dict[Value, Allocation] = {}
        self._values: dict[int, Value] = {}  # by plan index
        self._states: dict[str, Block] = {}

    def allocate(self, value: Value) -> None:
        """Assign a new block to a tensor."""
        self._allocations[value] = Allocation(Block(value.nbytes, 0, 0), self._planned(value))
        if value.state:
            self._states[value.qualified_name] = self._allocations[value].block

    def share(self, value: Value, other: Value, *, planned: bool = True) -> None:
        """Assign a tensor the block of another."""
        allocation = self._allocations[other]
        self._allocations[value] = Allocation(allocation.block, planned and allocation.planned)

    def is_allocated(self, value: Value) -> bool:
        return value in self._allocations

    def planned(self, value: Value) -> bool:
        """True if a tensor's memory is in an arena."""
        return self._allocations[value].planned

    def share_block(self, a: Value, b: Value) -> bool:
        """True if two tensors share a block."""
        return (
            self.is_allocated(a) and self.is_allocated(b) and self._allocations[a].block is self._allocations[b].block
        )

    def bind(self, value: Value, index: int) -> None:
        """Record the index of ``value`` in the plan."""
        self._values[index] = value

    def _planned(self, value: Value) -> bool:
        if value.state:
            return self.planning.alloc_mutable_buffers
        if value in self.inputs:
            return self.planning.alloc_graph_input
        return self.planning.alloc_graph_output if value in self.outputs else True

    def may_share(self, source: Value, out: Value) -> bool:
        """True if ``out`` may alias ``source``."""
        if source.state or source in self.updated:
            return False
        if out not in self.outputs:
            return True
        if source.constant or not self.planning.alloc_graph_output:
            return False
        return self.planning.alloc_graph_input or source not in self.inputs

    def finish(self, instructions: list[Any], values: list[Any], operators: list[str]) -> list[int]:
        """Plan the arenas and store each tensor's allocation in its value; returns the sizes of the arenas."""
        self._compute_live_ranges(instructions, values)
        allocations = {i: self._allocations[v] for i, v in self._values.items() if self.is_allocated(v)}
        merge_in_place(MethodCalls(values, instructions, operators, allocations), set(self._states.values()))
        planned = {i: allocation for i, allocation in allocations.items() if allocation.planned}
        state_blocks = self._place_states(self.layout) if self.layout is not None else set()
        blocks = _deduplicate(p.block for p in planned.values() if p.block not in state_blocks)
        sizes = [0, plan_arena(blocks, self.planning.alignment)]
        if self.layout is not None and self.layout.size:
            sizes.append(self.layout.size)
        sizes = [size + self.overread if size else 0 for size in sizes]
        for index, allocation in planned.items():
            values[index].allocation_info = schema.AllocationDetails(
                memory_id=2 if allocation.block in state_blocks else 1,
                memory_offset_low=allocation.block.offset & 0xFFFFFFFF,
                memory_offset_high=allocation.block.offset >> 32,
            )
        return sizes

    def _place_states(self, layout: SharedLayout) -> set[Block]:
        """Place state in its own arena, at the same offsets in every method."""
        for name, block in self._states.items():
            block.offset = layout.offsets[name]
        return set(self._states.values())

    def _compute_live_ranges(self, instructions: list[Any], values: list[Any]) -> None:
        """Compute live ranges in instruction indices.

        A block lives from the first to the last instruction that accesses it; inputs from before the first, outputs to
        the end, state throughout. A value defined before a loop and read in it must survive every iteration, so its
        range extends to the end of the loop; one that is written in the loop and read after it is live from the loop's
        start.
        """
        last = len(instructions)
        accesses: dict[Block, list[int]] = {}
        for at, instruction in enumerate(instructions):
            for index in accessed_values(instruction, values):
                if index in self._values and self.is_allocated(self._values[index]):
                    accesses.setdefault(self._allocations[self._values[index]].block, []).append(at)
        for value in filter(self.is_allocated, self._values.values()):
            access = accesses.setdefault(self._allocations[value].block, [])
            access += [-1] * (value in self.inputs) + [last] * (value in self.outputs)
        for block in self._states.values():
            accesses[block] = [-1, last]
        for block in _deduplicate(allocation.block for allocation in self._allocations.values()):
            access = accesses.get(block) or [0]
            block.start, block.end = min(access), max(access)
            for first, final in self.loops:
                if block.start < first <= block.end <= final:
                    block.end = final
                elif first <= block.start <= final < block.end:  # filled by the loop, one slice per iteration
                    block.start = first


def accessed_values(instruction: Any, values: list[Any]) -> list[int]:
    """All values that an instruction reads or writes, including members of lists."""
    if isinstance(instruction, schema.KernelCall | schema.DelegateCall):
        direct = list(instruction.args)
    elif isinstance(instruction, schema.MoveCall):
        direct = [instruction.move_from, instruction.move_to]
    elif isinstance(instruction, schema.JumpFalseCall):
        direct = [instruction.cond_value_index]
    else:
        direct = []
    for index in tuple(direct):
        if isinstance(values[index], schema.TensorList | schema.OptionalTensorList):
            direct += [i for i in values[index].items if i >= 0]
    return direct


def _deduplicate(blocks: Iterable[Block]) -> list[Block]:
    return list(dict.fromkeys(blocks))
