"""Where the tensors of a method live: who shares a block, how long, and at which offset."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgewright.formats import schema
from edgewright.ir.graph import Graph, Value
from edgewright.program.inplace import Calls, share_in_place
from edgewright.program.memory import Block, MemoryPlanningPass, plan

if TYPE_CHECKING:
    from edgewright.program.shared_state import SharedLayout


@dataclass(eq=False)
class Place:
    """A tensor's block; ``planned`` is False where the caller, or an instruction, brings the memory."""

    block: Block
    planned: bool


class Storage:
    """The blocks of one method's tensors."""

    def __init__(self, graph: Graph, planning: MemoryPlanningPass, layout: SharedLayout | None = None) -> None:
        self.planning = planning
        self.layout = layout
        self.inputs = {v for v in graph.inputs if isinstance(v, Value)}
        self.outputs = {v for v in graph.outputs if isinstance(v, Value)}
        self.updated = {target for target, _ in graph.updates}
        self.loops: list[tuple[int, int]] = []  # first and last instruction of each loop
        self.tail = 0  # bytes that may be read past the end of a tensor
        self._places: dict[Value, Place] = {}
        self._values: dict[int, Value] = {}  # by their indices
        self._states: dict[str, Block] = {}

    def own(self, value: Value) -> None:
        """Give a tensor a block of its own."""
        self._places[value] = Place(Block(value.nbytes, 0, 0), self._planned(value))
        if value.state:
            self._states[value.qualified_name] = self._places[value].block

    def share(self, value: Value, other: Value, *, planned: bool = True) -> None:
        """Let a tensor be the same bytes as another."""
        place = self._places[other]
        self._places[value] = Place(place.block, planned and place.planned)

    def knows(self, value: Value) -> bool:
        return value in self._places

    def planned(self, value: Value) -> bool:
        """True if a tensor's memory is in the arena."""
        return self._places[value].planned

    def same(self, a: Value, b: Value) -> bool:
        """True if two tensors share their bytes."""
        return self.knows(a) and self.knows(b) and self._places[a].block is self._places[b].block

    def bind(self, value: Value, index: int) -> None:
        """``value`` is value ``index`` of the plan."""
        self._values[index] = value

    def _planned(self, value: Value) -> bool:
        if value.state:
            return self.planning.alloc_mutable_buffers
        if value in self.inputs:
            return self.planning.alloc_graph_input
        return self.planning.alloc_graph_output if value in self.outputs else True

    def may_share(self, source: Value, out: Value) -> bool:
        """True if ``out`` may be another name for the bytes of ``source``."""
        if source.state or source in self.updated:
            return False
        if out not in self.outputs:
            return True
        if source.constant or not self.planning.alloc_graph_output:
            return False
        return self.planning.alloc_graph_input or source not in self.inputs

    def finish(self, instructions: list[Any], values: list[Any], operators: list[str]) -> list[int]:
        """Plan the arenas and write each tensor's place into its value; the arenas' sizes."""
        self._lifetimes(instructions, values)
        places = {i: self._places[v] for i, v in self._values.items() if self.knows(v)}
        share_in_place(Calls(values, instructions, operators, places), set(self._states.values()))
        placed = {i: place for i, place in places.items() if place.planned}
        shared = self._place_states(self.layout) if self.layout is not None else set()
        blocks = _unique(p.block for p in placed.values() if p.block not in shared)
        sizes = [0, plan(blocks, self.planning.alignment)]
        if self.layout is not None and self.layout.size:
            sizes.append(self.layout.size)
        sizes = [size + self.tail if size else 0 for size in sizes]
        for index, place in placed.items():
            values[index].allocation_info = schema.AllocationDetails(
                memory_id=2 if place.block in shared else 1,
                memory_offset_low=place.block.offset & 0xFFFFFFFF,
                memory_offset_high=place.block.offset >> 32,
            )
        return sizes

    def _place_states(self, layout: SharedLayout) -> set[Block]:
        """The blocks of state, in an arena of its own: at the same offsets in every method."""
        for name, block in self._states.items():
            block.offset = layout.offsets[name]
        return set(self._states.values())

    def _lifetimes(self, instructions: list[Any], values: list[Any]) -> None:
        """From the first to the last instruction that touches a block; inputs from before the first, outputs to the
        end, state always. What a loop reads from outside lives as long as the loop."""
        last = len(instructions)
        times: dict[Block, list[int]] = {}
        for at, instruction in enumerate(instructions):
            for index in touched(instruction, values):
                if index in self._values and self.knows(self._values[index]):
                    times.setdefault(self._places[self._values[index]].block, []).append(at)
        for value in filter(self.knows, self._values.values()):
            seen = times.setdefault(self._places[value].block, [])
            seen += [-1] * (value in self.inputs) + [last] * (value in self.outputs)
        for block in self._states.values():
            times[block] = [-1, last]
        for block in _unique(place.block for place in self._places.values()):
            seen = times.get(block) or [0]
            block.start, block.end = min(seen), max(seen)
            for first, final in self.loops:
                if block.start < first <= block.end <= final:
                    block.end = final
                elif first <= block.start <= final < block.end:  # gathered by the loop, a slice at a time
                    block.start = first


def touched(instruction: Any, values: list[Any]) -> list[int]:
    """Every value an instruction reads or writes, through lists too."""
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


def _unique(blocks: Iterable[Block]) -> list[Block]:
    return list(dict.fromkeys(blocks))
