"""Compiler entry points: core graph to plan, and to a CompiledGraph."""

from __future__ import annotations

from dataclasses import replace

from edgewright.engine.graph.infer_shapes import check_graph
from edgewright.engine.graph.legalize import legalize, to_core, widen
from edgewright.engine.graph.memory import SharedWeights
from edgewright.engine.graph.schedule import schedule
from edgewright.engine.isa import ISA, host_isa
from edgewright.engine.jit.driver import CompiledGraph
from edgewright.engine.jit.thread_count import thread_count
from edgewright.engine.plan import Plan
from edgewright.engine.tuning_params import TuningParams, load_tuned
from edgewright.errors import LimitError
from edgewright.ir.graph import Graph
from edgewright.ir.layer_names import fill_origins
from edgewright.ir.numerics import FLOAT32, Numerics

MEMORY = 4 << 30
_MIN_CODE_LIMIT = 1 << 24  # characters of IR, some seconds of compile time; the limit grows with ``memory``


def make_plan(
    graph: Graph,
    threads: int | None = None,
    numerics: Numerics = FLOAT32,
    cpu: str | None = None,
    memory: int = MEMORY,
    tuning: TuningParams | None = None,
    shared: SharedWeights | None = None,
    isa: ISA | None = None,
) -> Plan:
    """Compile a graph to a plan: steps and kernels as LLVM IR.

    ``memory``: bytes that any value, and the arena, may take. ``tuning``: tuning parameters; by default those stored
    for this machine. ``shared``: packed weights that shape specializations of one graph share. ``isa``: the instruction
    set of another machine, whose plan cannot run here.
    """
    graph = to_core(graph, numerics)
    check_graph(graph, memory)
    legal = legalize(widen(graph))
    if legal is not graph:
        check_graph(legal, memory)  # widened constants are larger
    fill_origins(legal)
    count, elsewhere = thread_count(threads), isa is not None
    if isa is None:
        isa = host_isa(cpu)
        tuning = tuning or TuningParams(load_tuned(isa, count))
    plan = schedule(legal, isa, numerics, count, memory, tuning, shared, deduplicate=elsewhere)
    if plan.arena_size > memory:
        raise LimitError("device graph", f"values may take {memory} bytes at a time", value=plan.arena_size)
    return replace(plan, code_limit=max(memory, _MIN_CODE_LIMIT))


def compile(
    graph: Graph,
    threads: int | None = None,
    numerics: Numerics = FLOAT32,
    cpu: str | None = None,
    memory: int = MEMORY,
) -> CompiledGraph:
    """Compile a graph of static shapes to machine code for this CPU, or for a lower level such as ``avx2``."""
    return CompiledGraph(make_plan(graph, threads, numerics, cpu, memory), threads)
