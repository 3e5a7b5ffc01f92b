"""Replay of a command stream as machine code, compiled from the trace of its first run.

The first run is interpreted and leaves a trace: operations with resolved addresses and parameters. Consecutive traced
operations become one core graph, which the engine compiles. Its inputs and outputs are bound directly to ranges of the
memory regions, so nothing is copied, and a barrier after each step keeps the order of the stream: a later operation may
read what an earlier one wrote through another view of the same bytes. Operations that cannot be translated
(``NotTranslatedError``) are interpreted between the graphs. For tracing compilers in general see Bolz et al., "Tracing
the Meta-Level: PyPy's Tracing JIT Compiler" (2009).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from edgewright.backends.ethos_u.dialect.numerics import TOSA_NUMERICS
from edgewright.backends.ethos_u.npu.map_views import ByteRange, CoreGraphBuilder, NotTranslatedError
from edgewright.backends.ethos_u.npu.pass_timer import PassTimer
from edgewright.backends.ethos_u.npu.stream import CommandStream
from edgewright.backends.ethos_u.npu.trace import Convolution, Executed, Trace
from edgewright.backends.ethos_u.npu.translate import translate
from edgewright.engine.isa import host_isa
from edgewright.engine.jit.cache import cache_key, default_cache
from edgewright.engine.jit.driver import CompiledGraph
from edgewright.engine.jit.plan_cache import PlanSource, load_compiled, save_compiled, source_fingerprint
from edgewright.engine.plan import Address, KernelArg, Plan, PythonCall, TensorSpec
from edgewright.errors import EdgewrightError
from edgewright.ir.graph import Graph, Origin

Array = np.ndarray[Any, Any]
_MAX_OPERATIONS = 4096
_MAX_WEIGHTS = 1 << 26
_COST_BYTES = 8  # size of the cached budget cost
_SOURCES = ("backends/ethos_u/npu", "backends/ethos_u/dialect", "ir")  # whose changes make cached plans unusable
_MEMORY = 2 << 30  # limit on temporaries, in bytes


class Interpreter(Protocol):
    """Runs one traced operation."""

    def run_one(self, executed: Executed) -> None: ...


class Replay:
    """Compiled graphs and interpreted operations, in order. ``steps``: budget steps of a run."""

    def __init__(self, parts: list[CompiledGraph | Executed], regions: list[int], steps: int) -> None:
        self.parts, self.steps, self._regions = parts, steps, regions

    @property
    def interpreted_count(self) -> int:
        """Number of operations that are not machine code."""
        return sum(isinstance(part, Executed) for part in self.parts)

    def run(self, interpreter: Interpreter, regions: dict[int, Array], timer: PassTimer) -> None:
        memories = [regions[region] for region in self._regions]
        for part in self.parts:
            if isinstance(part, Executed):
                with timer.time(part.instruction):
                    interpreter.run_one(part)
            else:
                timer.run(partial(part.run, [], memories))


class CompiledStream:
    """A stream compiled for certain region sizes, or loaded from the cache.

    An interpreted run stores its trace in ``trace``; the next run compiles it.
    """

    def __init__(self, stream: CommandStream, weights: bytes, memories: dict[int, Array], threads: int = 1) -> None:
        self.trace: Trace | None = None
        self._origins = stream.origins
        self._weights, self._sizes, self._threads = weights, _sizes(memories), threads
        self._regions = sorted(region for region in memories if memories[region].flags.writeable)
        self._lengths = [memories[region].size for region in self._regions]
        digest = cache_key(
            "stream", stream.digest, weights, str(sorted(self._sizes.items())), source_fingerprint(*_SOURCES)
        )
        self._origin = PlanSource(digest, lambda name: None, ())
        self._key = self._origin.key(host_isa(), threads, TOSA_NUMERICS, _MEMORY)
        self._replay = self._load()

    def matches(self, weights: bytes, memories: dict[int, Array], threads: int = 1) -> bool:
        """True for the same constants, region sizes and thread count."""
        return self._weights is weights and self._sizes == _sizes(memories) and self._threads == threads

    def replay(self, memories: dict[int, Array]) -> Replay | None:
        """The replay, or None if the stream has to be interpreted."""
        if self._replay is None and self.trace is not None:
            self._replay = Replay(self._compile(self.trace, memories), self._regions, self.trace.steps)
            self.trace = None
            self._save(self._replay)
        return self._replay

    def _compile(self, trace: Trace, memories: dict[int, Array]) -> list[CompiledGraph | Executed]:
        parts: list[CompiledGraph | Executed] = []
        for part in _partition(trace, memories, self._origins):
            parts += (
                [part]
                if isinstance(part, Executed)
                else _compile_graph(part, self._regions, self._lengths, self._threads)
            )
        return parts

    def _load(self) -> Replay | None:
        """The replay in the cache, if it is complete: one graph and no interpreted operations."""
        cost_bytes = default_cache().get(cache_key("cost", self._key))
        if cost_bytes is None or len(cost_bytes) != _COST_BYTES:
            return None
        compiled = load_compiled(self._origin, self._key, host_isa(), self._threads)
        if compiled is None or [t.nbytes for t in compiled.plan.outputs] != self._lengths:
            return None
        return Replay([compiled], self._regions, int.from_bytes(cost_bytes, "little"))

    def _save(self, replay: Replay) -> None:
        compiled = replay.parts[0] if len(replay.parts) == 1 else None
        if isinstance(compiled, CompiledGraph):
            save_compiled(compiled, self._origin, self._key)
            default_cache().put(cache_key("cost", self._key), replay.steps.to_bytes(_COST_BYTES, "little"))


def _sizes(memories: dict[int, Array]) -> dict[int, tuple[int, bool]]:
    return {region: (array.size, array.flags.writeable) for region, array in memories.items()}


def _within_limits(executed: Sequence[Executed]) -> bool:
    """True if the trace is small enough to compile quickly."""
    weights = sum(
        operation.operation.weights.size for operation in executed if isinstance(operation.operation, Convolution)
    )
    return len(executed) <= _MAX_OPERATIONS and weights <= _MAX_WEIGHTS


def _is_internal_copy(executed: Executed) -> bool:
    """True for a DMA into internal memory."""
    return executed.instruction.command.name == "DMA_START" and bool(
        executed.registers.field("DMA0_DST_REGION", "internal")
    )


def _partition(
    trace: Trace, regions: dict[int, Array], origins: Mapping[int, Origin]
) -> list[CoreGraphBuilder | Executed]:
    """Split a trace into as few graphs as possible, and the operations that cannot be translated."""
    if not _within_limits(trace.executed):
        return list(trace.executed)
    parts = _translate_runs(trace.executed, regions, origins)
    builders = [part for part in parts if isinstance(part, CoreGraphBuilder)]
    if builders and all(isinstance(part, CoreGraphBuilder) or _is_internal_copy(part) for part in parts):
        return [_concatenate(builders, regions)]  # lookup tables are constants of the graphs
    return parts


def _translate_runs(
    executed: Sequence[Executed], regions: dict[int, Array], origins: Mapping[int, Origin]
) -> list[CoreGraphBuilder | Executed]:
    parts: list[CoreGraphBuilder | Executed] = []
    sizes = {region: array.size for region, array in regions.items()}
    for operation in executed:
        if operation.operation is None:
            parts.append(operation)
            continue
        builder = CoreGraphBuilder(sizes, regions[0], source=[operation])
        try:
            translate(builder, operation.operation)
        except NotTranslatedError:
            parts.append(operation)
            continue
        for op in builder.ops:
            op.origin = origins.get(operation.instruction.offset, op.origin)
        if parts and isinstance(parts[-1], CoreGraphBuilder):
            _append(parts[-1], builder)
        else:
            parts.append(builder)
    return parts


def _append(first: CoreGraphBuilder, second: CoreGraphBuilder) -> None:
    first.ops += second.ops
    first.source += second.source
    first.inputs += second.inputs
    first.outputs += second.outputs


def _concatenate(builders: list[CoreGraphBuilder], regions: dict[int, Array]) -> CoreGraphBuilder:
    result = CoreGraphBuilder({region: array.size for region, array in regions.items()}, regions[0])
    for builder in builders:
        _append(result, builder)
    return result


def _compile_graph(
    builder: CoreGraphBuilder, regions: list[int], sizes: list[int], threads: int
) -> list[CompiledGraph | Executed]:
    from edgewright.engine.compiler import make_plan  # slow to import, not needed for a cached replay

    inputs, outputs = ([value for value, _ in side] for side in (builder.inputs, builder.outputs))
    try:
        plan = make_plan(Graph("stream", inputs, outputs, builder.ops), threads, TOSA_NUMERICS, memory=_MEMORY)
    except EdgewrightError:
        return list(builder.source)
    if any(step.label == "clone" for step in plan.steps):  # copies of inputs or outputs would run out of order
        return list(builder.source)
    ranges = {"input": [where for _, where in builder.inputs], "output": [where for _, where in builder.outputs]}
    return [CompiledGraph(bind_to_memory(plan, ranges, regions, sizes), threads)]


def bind_to_memory(plan: Plan, ranges: dict[str, list[ByteRange]], regions: list[int], sizes: list[int]) -> Plan:
    """A plan with its inputs and outputs bound to byte ranges of the regions, which become its outputs."""

    def rebind(address: Address) -> Address:
        if address.buffer not in ranges:
            return address
        where = ranges[address.buffer][address.index]
        return Address("output", where.at + address.offset, regions.index(where.region))

    def rebind_slot(arg: KernelArg) -> KernelArg:
        return rebind(arg) if isinstance(arg, Address) else arg

    def rebind_call(python: PythonCall | None) -> PythonCall | None:
        if python is None:
            return None
        reads, writes = (
            tuple(replace(v, address=rebind(v.address)) for v in side) for side in (python.reads, python.writes)
        )
        return replace(python, reads=reads, writes=writes)

    steps = [
        replace(s, args=tuple(rebind_slot(a) for a in s.args), python=rebind_call(s.python), barrier=True)
        for s in plan.steps
    ]
    memories = tuple(TensorSpec(f"region {r}", np.dtype(np.uint8), (n,)) for r, n in zip(regions, sizes, strict=True))
    return replace(plan, steps=tuple(steps), inputs=(), outputs=memories)
