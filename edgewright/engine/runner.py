"""Graph runners: machine code where this machine supports it, else the numpy reference, with a warning.

``EDGEWRIGHT_ENGINE=reference`` selects the reference; ``native`` makes a missing engine an error.
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
from edgewright.logs import log_message

if TYPE_CHECKING:
    from edgewright.engine.jit.driver import CompiledGraph
    from edgewright.engine.jit.plan_cache import PlanSource
    from edgewright.engine.jit.shape_specialization import Specialized
    from edgewright.engine.plan import TensorSpec
    from edgewright.engine.profile import Profile

    GraphIO = tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]

ENGINE_VARIABLE = "EDGEWRIGHT_ENGINE"
_CHOICES = ("", "native", "reference")
_GRAPH_ERRORS = (ValueError, LookupError, ArithmeticError, TypeError, AssertionError)  # raised on inconsistent graphs


@dataclass(frozen=True)
class CompilationRecord:
    """A compiled graph, recorded for ``engine.tune``."""

    graph: Graph
    shapes: tuple[tuple[int, ...], ...]  # of its inputs
    numerics: Numerics
    memory: int


_recordings: list[list[CompilationRecord]] = []


@contextmanager
def record_compilations() -> Iterator[list[CompilationRecord]]:
    """Record the graphs compiled in this context; the plan cache is bypassed."""
    seen: list[CompilationRecord] = []
    _recordings.append(seen)
    try:
        yield seen
    finally:
        _recordings.remove(seen)


class Runner(Protocol):
    """Runs a graph on inputs of any admissible shapes."""

    how: str  # what runs it, for reports
    input_count: int

    @property
    def compiled(self) -> CompiledGraph | None:
        """The compiled graph, if one serves all calls."""
        ...

    def run(
        self, inputs: Sequence[Array], outputs: Sequence[Array | None] | None = None,
        profile: Profile | None = None,
    ) -> list[Array]:  # fmt: skip
        """Return the outputs, written to the arrays of ``outputs`` where dtype, shape and layout fit."""
        ...


class GraphRunner(Runner, Protocol):
    """A runner that knows its graph's inputs and outputs."""

    @property
    def io(self) -> GraphIO:
        """The graph's inputs and its outputs."""
        ...


def make_runner(
    graph: Callable[[], Graph], numerics: Numerics, memory: int, threads: int | None = None, *, dynamic: bool = False,
    origin: Callable[[], PlanSource] | None = None, fallback: bool = True,
) -> GraphRunner:  # fmt: skip
    """Make a runner. ``memory``: limit on live values, in bytes. ``dynamic``: shapes are only known at the first call.

    ``graph`` is not called if the plan of ``origin`` is cached. ``fallback``: whether a graph that exceeds the code
    size limit runs on the reference; else it is an error.
    """
    setting = os.environ.get(ENGINE_VARIABLE, "")
    if setting not in _CHOICES:
        raise not_among(ENGINE_VARIABLE, setting, filter(None, _CHOICES))
    problem = "" if setting == "reference" else unavailable_reason()
    if setting == "reference":
        return _Reference(graph(), numerics, memory, "numpy reference, as requested", dynamic)
    if not problem:
        try:
            return _Native(graph, numerics, memory, threads, None if dynamic or origin is None else origin(), dynamic)
        except CodeSizeError as error:
            if setting == "native" or not fallback:
                raise
            problem = f"{error.subject} {error.rule}"
    if setting == "native":
        raise MissingError("engine", problem, remedy=f"Unset {ENGINE_VARIABLE}.")
    _warn(problem)
    return _Reference(graph(), numerics, memory, f"numpy reference: {problem}", dynamic)


def native_available() -> bool:
    """Whether graphs run as machine code."""
    return os.environ.get(ENGINE_VARIABLE, "") != "reference" and not unavailable_reason()


@cache
def unavailable_reason() -> str:
    """Why the engine is unavailable on this machine; empty if it is available."""
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
def _warn(problem: str) -> None:
    """Warn once per process."""
    log_message("warning", "engine", "%s; device graphs run on the numpy reference, which is much slower", problem)


class _Reference:
    compiled = None

    def __init__(self, graph: Graph, numerics: Numerics, memory: int, how: str, dynamic: bool) -> None:
        from edgewright.backends.registry import find_dialect
        from edgewright.ir.core.execute import Executor

        self.how, self.input_count = how, len(graph.inputs)
        self._executor = Executor(graph, numerics, memory, find_dialect)
        self._memory = memory
        self._checked: set[tuple[tuple[int, ...], ...]] = set()  # shapes of inputs
        if not dynamic:
            self._check([value.bound for value in graph.inputs])

    @property
    def io(self) -> GraphIO:
        return _graph_io(self._executor.graph)

    def run(
        self, inputs: Sequence[Array], outputs: Sequence[Array | None] | None = None,
        profile: Profile | None = None,
    ) -> list[Array]:  # fmt: skip
        self._check([x.shape for x in inputs])
        return self._executor.run(inputs)

    def _check(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """Reject what the compiler would reject: inconsistent shapes, or too much memory.

        Graphs of vendor operators have static shapes and were validated before.
        """
        from edgewright.engine.graph.infer_shapes import check_graph, specialize
        from edgewright.engine.graph.nodes import is_core

        graph = self._executor.graph
        if tuple(shapes) in self._checked or not is_core(graph):
            return
        check_graph(specialize(graph, shapes), self._memory)
        self._checked.add(tuple(shapes))


class _Native:
    def __init__(
        self, graph: Callable[[], Graph], numerics: Numerics, memory: int, threads: int | None,
        origin: PlanSource | None, dynamic: bool,
    ) -> None:  # fmt: skip
        from edgewright.engine.isa import host_isa
        from edgewright.engine.jit.plan_cache import load_compiled, save_compiled
        from edgewright.engine.jit.thread_count import thread_count

        count, isa = thread_count(threads), host_isa()
        self.how = f"engine, {isa.name}, {count} thread{'s' if count > 1 else ''}"
        self._make: Callable[[], Specialized] = lambda: _make_specialized(graph(), count, numerics, memory, dynamic)
        self._specialized: Specialized | None = None
        self._default: CompiledGraph | None = None
        self._lock = threading.Lock()
        self._options = (numerics, memory)
        key = None if origin is None else origin.key(isa, count, numerics, memory)
        if origin is not None and key is not None and not _recordings:
            self._default = load_compiled(origin, key, isa, count)
        if self._default is None and not dynamic:
            self._default = self._compiled([value.bound for value in graph().inputs])
            if origin is not None and key is not None:
                save_compiled(self._default, origin, key)
        self._graph = graph
        renew_in_child(self)
        self.input_count = len(graph().inputs) if self._default is None else len(self._default.plan.inputs)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    @property
    def compiled(self) -> CompiledGraph | None:
        """The compiled graph of the declared shapes, if there is one."""
        return self._default

    @property
    def io(self) -> GraphIO:
        plan = None if self._default is None else self._default.plan
        return _graph_io(self._graph()) if plan is None else (plan.inputs, plan.outputs)

    def run(
        self, inputs: Sequence[Array], outputs: Sequence[Array | None] | None = None,
        profile: Profile | None = None,
    ) -> list[Array]:  # fmt: skip
        compiled = self._compiled_for([x.shape for x in inputs])
        arrays = None if outputs is None else usable_outputs(outputs, compiled.plan.outputs)
        return compiled.run(inputs, arrays, profile)

    def _compiled_for(self, shapes: list[tuple[int, ...]]) -> CompiledGraph:
        default = self._default
        if default is not None and shapes == [t.shape for t in default.plan.inputs]:
            return default
        return self._compiled(shapes)

    def _compiled(self, shapes: list[tuple[int, ...]]) -> CompiledGraph:
        try:
            with self._lock, np.errstate(all="ignore"):  # constants of a file may be anything
                self._specialized = self._specialized or self._make()
                for seen in _recordings:
                    seen.append(CompilationRecord(self._specialized.graph, tuple(shapes), *self._options))
                return self._specialized.compiled(shapes)
        except EdgewrightError:
            raise
        except _GRAPH_ERRORS as error:
            raise ExecutionError("device graph", f"does not hold together: {error}") from error


def _graph_io(graph: Graph) -> GraphIO:
    from edgewright.engine.graph.graph_io import tensor_spec

    return tuple(tensor_spec(v) for v in graph.inputs), tuple(tensor_spec(v) for v in graph.outputs)


def _make_specialized(graph: Graph, threads: int, numerics: Numerics, memory: int, dynamic: bool) -> Specialized:
    from edgewright.engine.jit.shape_specialization import Specialized  # the compiler, which is large

    return Specialized(graph, threads, numerics, memory, dynamic=dynamic)


def usable_outputs(offered: Sequence[Array | None], specs: Sequence[TensorSpec]) -> list[Array]:
    """The offered arrays where results can be written to them directly, else new arrays."""
    if len(offered) != len(specs):
        raise ExecutionError("device graph", f"has {len(specs)} outputs", value=len(offered))
    arrays: list[Array] = []
    for array, spec in zip(offered, specs, strict=True):
        fits = array is not None and array.dtype == spec.dtype and array.shape == spec.shape
        if array is None or not fits or not _writable(array) or any(np.may_share_memory(array, m) for m in arrays):
            array = np.empty(spec.shape, spec.dtype)
        arrays.append(array)
    return arrays


def _writable(array: Array) -> bool:
    flags = array.flags
    return flags.c_contiguous and flags.aligned and flags.writeable
