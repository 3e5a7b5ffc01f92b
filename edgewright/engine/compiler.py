"""From a device graph to something that runs."""

from __future__ import annotations

from dataclasses import replace

from edgewright.engine.dialects import translate
from edgewright.engine.graph.legalize import legalize
from edgewright.engine.graph.schedule import schedule
from edgewright.engine.graph.shared_weights import SharedWeights
from edgewright.engine.graph.validate import check_graph
from edgewright.engine.graph.widen_fp16 import widen
from edgewright.engine.isa import host_isa
from edgewright.engine.jit.driver import CompiledGraph
from edgewright.engine.jit.thread_count import thread_count
from edgewright.engine.plan import Plan
from edgewright.engine.tuning_params import TuningParams, load_tuned
from edgewright.errors import LimitError
from edgewright.ir.graph import Graph
from edgewright.ir.numerics import XNNPACK, Numerics, get_numerics

MEMORY = 4 << 30
_LEAST_CODE = 1 << 24  # characters; some seconds of compiling. Who may have more memory may have more code.


def make_plan(
    graph: Graph,
    threads: int | None = None,
    numerics: Numerics | str = XNNPACK,
    cpu: str | None = None,
    memory: int = MEMORY,
    choices: TuningParams | None = None,
    shared: SharedWeights | None = None,
) -> Plan:
    """What will be done, before machine code.

    ``memory``: bytes that any value, and the arena, may take. ``choices``: what to decide, if not as was tuned here.
    ``shared``: what forms of one graph for several sizes have in common.
    """
    rounding = get_numerics(numerics)
    graph = translate(graph, rounding)
    check_graph(graph, memory)
    wide = legalize(widen(graph))
    if wide is not graph:
        check_graph(wide, memory)  # its constants are larger
    isa, count = host_isa(cpu), thread_count(threads)
    plan = schedule(wide, isa, rounding, count, memory, choices or TuningParams(load_tuned(isa, count)), shared)
    if plan.arena_size > memory:
        raise LimitError("device graph", f"values may take {memory} bytes at a time", value=plan.arena_size)
    return replace(plan, code_limit=max(memory, _LEAST_CODE))


def compile(
    graph: Graph,
    threads: int | None = None,
    numerics: Numerics | str = XNNPACK,
    cpu: str | None = None,
    memory: int = MEMORY,
) -> CompiledGraph:
    """A graph whose sizes are all known, as machine code for this CPU (or a lower one: ``avx2``)."""
    return CompiledGraph(make_plan(graph, threads, numerics, cpu, memory), threads)
