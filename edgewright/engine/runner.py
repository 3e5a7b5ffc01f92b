"""What runs a device graph: machine code where this machine can have it, else the reference in numpy, and it says so.

``EDGEWRIGHT_ENGINE=reference`` asks for the reference; ``native`` refuses to do without machine code.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from edgewright.engine.codegen.builder import CodeSizeError
from edgewright.errors import EdgewrightError, ExecutionError, MissingError
from edgewright.forks import renew_in_child
from edgewright.hints import not_among
from edgewright.ir.graph import Array, Graph
from edgewright.ir.numerics import Numerics
from edgewright.logs import say

if TYPE_CHECKING:
    from edgewright.engine.jit.driver import CompiledGraph
    from edgewright.engine.jit.plan_cache import PlanSource
    from edgewright.engine.jit.shape_specialization import Specialized
    from edgewright.engine.plan import TensorSpec
    from edgewright.engine.profile import EngineProfile

    Ends = tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]

ENGINE_VARIABLE = "EDGEWRIGHT_ENGINE"
_CHOICES = ("", "native", "reference")
_BROKEN = (ValueError, LookupError, ArithmeticError, TypeError, AssertionError)  # numbers that fit no tensor


@dataclass(frozen=True)
class CompilationRecord:
    """A graph that was compiled: what ``engine.tune`` wants to know of it."""

    graph: Graph
    shapes: tuple[tuple[int, ...], ...]  # of its inputs
    numerics: Numerics
    memory: int


_watched: list[list[CompilationRecord]] = []


@contextmanager
def record_compilations() -> Iterator[list[CompilationRecord]]:
    """The graphs that are compiled meanwhile; plans that were stored are not used."""
    seen: list[CompilationRecord] = []
    _watched.append(seen)
    try:
        yield seen
    finally:
        _watched.remove(seen)


class Runner(Protocol):
    """A device graph, ready to run on inputs of any shapes it admits."""

    how: str  # what runs it, for reports
    input_count: int

    def run(
        self, inputs: Sequence[Array], outputs: Sequence[Array | None] | None = None,
        profile: EngineProfile | None = None,
    ) -> list[Array]:  # fmt: skip
        """The outputs. ``outputs`` are arrays they may be written to, where those are of the right kind."""
        ...


class GraphRunner(Runner, Protocol):
    """One that knows what it was made for."""

    @property
    def ends(self) -> Ends:
        """The graph's inputs and its outputs."""
        ...


def make_runner(
    graph: Callable[[], Graph], numerics: Numerics, memory: int, threads: int | None = None, *, varies: bool = False,
    origin: Callable[[], PlanSource] | None = None, fallback: bool = True,
) -> GraphRunner:  # fmt: skip
    """``memory``: bytes that values may take at a time. ``varies``: shapes are not known before the first call.

    ``graph`` is not asked for if the graph of ``origin`` was compiled before. ``fallback``: whether the reference runs
    a graph that would need too much machine code; else it is an error.
    """
    chosen = os.environ.get(ENGINE_VARIABLE, "")
    if chosen not in _CHOICES:
        raise not_among(ENGINE_VARIABLE, chosen, filter(None, _CHOICES))
    problem = "" if chosen == "reference" else unavailable_reason()
    if chosen == "reference":
        return _Reference(graph(), numerics, memory, "numpy reference, as asked", varies)
    if not problem:
        try:
            return _Native(graph, numerics, memory, threads, None if varies or origin is None else origin(), varies)
        except CodeSizeError as error:
            if chosen == "native" or not fallback:
                raise
            problem = f"{error.subject} {error.rule}"
    if chosen == "native":
        raise MissingError("engine", problem, remedy=f"Unset {ENGINE_VARIABLE}.")
    _say(problem)
    return _Reference(graph(), numerics, memory, f"numpy reference: {problem}", varies)


def native_available() -> bool:
    """Whether graphs will run as machine code."""
    return os.environ.get(ENGINE_VARIABLE, "") != "reference" and not unavailable_reason()


@cache
def unavailable_reason() -> str:
    """Why there can be no machine code here; empty if there can."""
    from edgewright.engine.host_arch import ARCHITECTURES, machine_name

    if machine_name() not in ARCHITECTURES:
        return f"the engine has no code for {machine_name()} yet"
    from edgewright.engine.isa import host_isa

    try:
        host_isa()
    except (ImportError, OSError) as error:
        return f"the engine needs llvmlite: {error}"
    except MissingError as error:
        return f"the engine {error.rule}, and this is {error.value}"
    return ""


@cache
def _say(problem: str) -> None:
    """Once a process."""
    say("warning", "engine", "%s; device graphs run on the numpy reference, which is much slower", problem)


class _Reference:
    def __init__(self, graph: Graph, numerics: Numerics, memory: int, how: str, varies: bool) -> None:
        from edgewright.ir.core.execute import Executor

        self.how, self.input_count = how, len(graph.inputs)
        self._executor = Executor(graph, numerics, memory)
        self._memory = memory
        self._checked: set[tuple[tuple[int, ...], ...]] = set()  # shapes of inputs
        if not varies:
            self._check([value.bound for value in graph.inputs])

    @property
    def ends(self) -> Ends:
        return _ends(self._executor.graph)

    def run(
        self, inputs: Sequence[Array], outputs: Sequence[Array | None] | None = None,
        profile: EngineProfile | None = None,
    ) -> list[Array]:  # fmt: skip
        self._check([x.shape for x in inputs])
        return self._executor.run(inputs)

    def _check(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """Reject what machine code would be rejected for: sizes that do not fit each other, or take too much memory.

        Graphs of vendors' operators were checked with the only sizes that they have.
        """
        from edgewright.engine.graph.infer_shapes import specialize
        from edgewright.engine.graph.validate import check_graph

        graph = self._executor.graph
        if tuple(shapes) in self._checked or any("." in op.kind for op in graph.ops):
            return
        check_graph(specialize(graph, shapes), self._memory)
        self._checked.add(tuple(shapes))


class _Native:
    def __init__(
        self, graph: Callable[[], Graph], numerics: Numerics, memory: int, threads: int | None,
        origin: PlanSource | None, varies: bool,
    ) -> None:  # fmt: skip
        from edgewright.engine.isa import host_isa
        from edgewright.engine.jit.plan_cache import load_compiled, save_compiled
        from edgewright.engine.jit.thread_count import thread_count

        count, isa = thread_count(threads), host_isa()
        self.how = f"engine, {isa.name}, {count} thread{'s' if count > 1 else ''}"
        self._make: Callable[[], Specialized] = lambda: _specialized(graph(), count, numerics, memory, varies)
        self._forms: Specialized | None = None
        self._usual: CompiledGraph | None = None
        self._lock = threading.Lock()
        self._told = (numerics, memory)
        key = None if origin is None else origin.key(isa, count, numerics.name, memory)
        if origin is not None and key is not None and not _watched:
            self._usual = load_compiled(origin, key, isa, count)
        if self._usual is None and not varies:
            self._usual = self._compiled([value.bound for value in graph().inputs])
            if origin is not None and key is not None:
                save_compiled(self._usual, origin, key)
        self._graph = graph
        renew_in_child(self)
        self.input_count = len(graph().inputs) if self._usual is None else len(self._usual.plan.inputs)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    @property
    def compiled(self) -> CompiledGraph | None:
        """The machine code, if there is one for all calls."""
        return self._usual

    @property
    def ends(self) -> Ends:
        plan = None if self._usual is None else self._usual.plan
        return _ends(self._graph()) if plan is None else (plan.inputs, plan.outputs)

    def run(
        self, inputs: Sequence[Array], outputs: Sequence[Array | None] | None = None,
        profile: EngineProfile | None = None,
    ) -> list[Array]:  # fmt: skip
        form = self._form([x.shape for x in inputs])
        made = None if outputs is None else usable_outputs(outputs, form.plan.outputs)
        return form.run(inputs, made, profile)

    def _form(self, shapes: list[tuple[int, ...]]) -> CompiledGraph:
        usual = self._usual
        if usual is not None and shapes == [t.shape for t in usual.plan.inputs]:
            return usual
        return self._compiled(shapes)

    def _compiled(self, shapes: list[tuple[int, ...]]) -> CompiledGraph:
        try:
            with self._lock, np.errstate(all="ignore"):  # numbers of a file may be anything; what they make is checked
                self._forms = self._forms or self._make()
                for seen in _watched:
                    seen.append(CompilationRecord(self._forms.graph, tuple(shapes), *self._told))
                return self._forms.compiled(shapes)
        except EdgewrightError:
            raise
        except _BROKEN as error:
            raise ExecutionError("device graph", f"does not hold together: {error}") from error


def _ends(graph: Graph) -> Ends:
    from edgewright.engine.graph.graph_io import tensor_spec

    return tuple(tensor_spec(v) for v in graph.inputs), tuple(tensor_spec(v) for v in graph.outputs)


def _specialized(graph: Graph, threads: int, numerics: Numerics, memory: int, varies: bool) -> Specialized:
    from edgewright.engine.jit.shape_specialization import Specialized  # the compiler, which is large

    return Specialized(graph, threads, numerics, memory, varies=varies)


def usable_outputs(offered: Sequence[Array | None], wanted: Sequence[TensorSpec]) -> list[Array]:
    """The arrays offered where results may be written straight to them, else new ones."""
    if len(offered) != len(wanted):
        raise ExecutionError("device graph", f"gives {len(wanted)} outputs", value=len(offered))
    made: list[Array] = []
    for array, spec in zip(offered, wanted, strict=True):
        fits = array is not None and array.dtype == spec.dtype and array.shape == spec.shape
        if array is None or not fits or not _writable(array) or any(np.may_share_memory(array, m) for m in made):
            array = np.empty(spec.shape, spec.dtype)
        made.append(array)
    return made


def _writable(array: Array) -> bool:
    flags = array.flags
    return flags.c_contiguous and flags.aligned and flags.writeable
