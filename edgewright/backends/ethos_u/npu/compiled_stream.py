"""A stream that has run before, as machine code: what a record says of its blocks is compiled once and kept.

Blocks in a row become one device graph, whose inputs and outputs are ranges of the memories: nothing is copied, and
blocks follow each other as in the stream, each on whatever those before it have left. Blocks that the engine has no way
for stay with the simulator, in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from edgewright.backends.ethos_u.npu.map_views import Builder, NotTranslatedError, Range
from edgewright.backends.ethos_u.npu.trace import Done, Product, Record
from edgewright.backends.ethos_u.npu.translate import translate
from edgewright.engine.isa import host_isa
from edgewright.engine.jit.cache import cache_key, default_cache
from edgewright.engine.jit.driver import CompiledGraph
from edgewright.engine.jit.plan_cache import PlanSource, load_compiled, save_compiled, source_fingerprint
from edgewright.engine.plan import Address, KernelArg, Plan, PythonCall, TensorSpec
from edgewright.errors import EdgewrightError
from edgewright.ir.graph import Graph

Array = np.ndarray[Any, Any]
_MOST_BLOCKS = 4096
_MOST_WEIGHTS = 1 << 26
_COST = 8  # bytes that hold what a run costs
_HERE = "backends/ethos_u/npu"
_MEMORY = 2 << 30  # bytes that values between memories may take


class Machine(Protocol):
    """What runs one operation of a record by itself."""

    def again(self, done: Done) -> None: ...


class Replay:
    """Parts in order: compiled ones, and operations that are run as they were. ``spent``: what a run costs."""

    def __init__(self, parts: list[CompiledGraph | Done], regions: list[int], spent: int) -> None:
        self.parts, self.spent, self._regions = parts, spent, regions

    @property
    def interpreted(self) -> int:
        """How many operations are not machine code."""
        return sum(isinstance(part, Done) for part in self.parts)

    def run(self, machine: Machine, regions: dict[int, Array]) -> None:
        memories = [regions[region] for region in self._regions]
        for part in self.parts:
            if isinstance(part, Done):
                machine.again(part)
            else:
                part.run([], memories)


class Kept:
    """What is known of a stream on memories of some sizes: what was compiled of it, here or in an earlier process.

    A run that has to be interpreted leaves its record; the next one is compiled from that.
    """

    def __init__(self, stream: str, weights: bytes, memories: dict[int, Array], threads: int = 1) -> None:
        self.record: Record | None = None
        self._weights, self._sizes, self._threads = weights, _sizes(memories), threads
        self._regions = sorted(region for region in memories if memories[region].flags.writeable)
        self._lengths = [memories[region].size for region in self._regions]
        digest = cache_key("stream", stream, weights, str(sorted(self._sizes.items())), source_fingerprint(_HERE, "ir"))
        self._origin = PlanSource(digest, lambda name: None, ())
        self._key = self._origin.key(host_isa(), threads, "tosa", _MEMORY)
        self._replay = self._stored()

    def fits(self, weights: bytes, memories: dict[int, Array], threads: int = 1) -> bool:
        """The same constants, memories as large, and as many threads."""
        return self._weights is weights and self._sizes == _sizes(memories) and self._threads == threads

    def replay(self, memories: dict[int, Array]) -> Replay | None:
        """What runs the stream, or None if it has to be interpreted."""
        if self._replay is None and self.record is not None:
            self._replay = Replay(self._compiled(self.record, memories), self._regions, self.record.spent)
            self.record = None
            self._store(self._replay)
        return self._replay

    def _compiled(self, record: Record, memories: dict[int, Array]) -> list[CompiledGraph | Done]:
        made: list[CompiledGraph | Done] = []
        for part in _parts_of(record, memories):
            made += [part] if isinstance(part, Done) else _compiled(part, self._regions, self._lengths, self._threads)
        return made

    def _stored(self) -> Replay | None:
        """What an earlier process compiled, if it needs no interpreter and all of it is in order."""
        cost = default_cache().get(cache_key("cost", self._key))
        if cost is None or len(cost) != _COST:
            return None
        form = load_compiled(self._origin, self._key, host_isa(), self._threads)
        if form is None or [t.nbytes for t in form.plan.outputs] != self._lengths:
            return None
        return Replay([form], self._regions, int.from_bytes(cost, "little"))

    def _store(self, replay: Replay) -> None:
        form = replay.parts[0] if len(replay.parts) == 1 else None
        if isinstance(form, CompiledGraph):
            save_compiled(form, self._origin, self._key)
            default_cache().put(cache_key("cost", self._key), replay.spent.to_bytes(_COST, "little"))


def _sizes(memories: dict[int, Array]) -> dict[int, tuple[int, bool]]:
    return {region: (array.size, array.flags.writeable) for region, array in memories.items()}


def _affordable(done: Sequence[Done]) -> bool:
    """Few enough operations, and few enough constants, to be compiled in moments."""
    held = sum(one.block.weights.size for one in done if isinstance(one.block, Product))
    return len(done) <= _MOST_BLOCKS and held <= _MOST_WEIGHTS


def _internal(done: Done) -> bool:
    """A copy into the NPU's own memory."""
    return done.instruction.command.name == "DMA_START" and bool(done.registers.field("DMA0_DST_REGION", "internal"))


def _parts_of(record: Record, regions: dict[int, Array]) -> list[Builder | Done]:
    """What can be translated, in as few graphs as there can be, and what cannot."""
    if not _affordable(record.done):
        return list(record.done)
    parts = _parts(record.done, regions)
    builders = [part for part in parts if isinstance(part, Builder)]
    if builders and all(isinstance(part, Builder) or _internal(part) for part in parts):
        return [_joined(builders, regions)]  # without tables that nobody will look into
    return parts


def _parts(done: Sequence[Done], regions: dict[int, Array]) -> list[Builder | Done]:
    parts: list[Builder | Done] = []
    sizes = {region: array.size for region, array in regions.items()}
    for one in done:
        if one.block is None:
            parts.append(one)
            continue
        made = Builder(sizes, regions[0], source=[one])
        try:
            translate(made, one.block)
        except NotTranslatedError:
            parts.append(one)
            continue
        if parts and isinstance(parts[-1], Builder):
            _join(parts[-1], made)
        else:
            parts.append(made)
    return parts


def _join(first: Builder, second: Builder) -> None:
    first.ops += second.ops
    first.source += second.source
    first.inputs += second.inputs
    first.outputs += second.outputs


def _joined(builders: list[Builder], regions: dict[int, Array]) -> Builder:
    made = Builder({region: array.size for region, array in regions.items()}, regions[0])
    for one in builders:
        _join(made, one)
    return made


def _compiled(builder: Builder, regions: list[int], sizes: list[int], threads: int) -> list[CompiledGraph | Done]:
    from edgewright.engine.compiler import make_plan  # large, and not needed for what was compiled before

    inputs, outputs = ([value for value, _ in side] for side in (builder.inputs, builder.outputs))
    try:
        plan = make_plan(Graph("stream", inputs, outputs, builder.ops), threads, "tosa", memory=_MEMORY)
    except EdgewrightError:
        return list(builder.source)
    if any(step.label == "clone" for step in plan.steps):  # copies of ends, which are made before and after all others
        return list(builder.source)
    places = {"input": [where for _, where in builder.inputs], "output": [where for _, where in builder.outputs]}
    return [CompiledGraph(in_memory(plan, places, regions, sizes), threads)]


def in_memory(plan: Plan, places: dict[str, list[Range]], regions: list[int], sizes: list[int]) -> Plan:
    """A plan whose inputs and outputs are ranges of memories, which are its outputs now."""

    def moved(place: Address) -> Address:
        if place.buffer not in places:
            return place
        where = places[place.buffer][place.index]
        return Address("output", where.at + place.offset, regions.index(where.region))

    def slot(given: KernelArg) -> KernelArg:
        return moved(given) if isinstance(given, Address) else given

    def call(python: PythonCall | None) -> PythonCall | None:
        if python is None:
            return None
        reads, writes = (
            tuple(replace(v, address=moved(v.address)) for v in side) for side in (python.reads, python.writes)
        )
        return replace(python, reads=reads, writes=writes)

    steps = [replace(s, args=tuple(slot(a) for a in s.args), python=call(s.python), barrier=True) for s in plan.steps]
    memories = tuple(TensorSpec(f"region {r}", np.dtype(np.uint8), (n,)) for r, n in zip(regions, sizes, strict=True))
    return replace(plan, steps=tuple(steps), inputs=(), outputs=memories)
