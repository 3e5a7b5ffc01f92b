"""Machine code against the numpy reference on one file of a device graph: the same verdict, the same numbers.

Both must accept the file or both must reject it with an ``EdgewrightError``. Integers must agree bit for bit, real
numbers to the bound of ``BOUNDS``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgewright.backends.nxp.delegate import NeutronDelegate
from edgewright.backends.samsung.delegate import EnnDelegate
from edgewright.backends.xnnpack.delegate import XnnpackDelegate
from edgewright.backends.xnnpack.numerics import XNNPACK
from edgewright.engine.codegen.builder import Module
from edgewright.engine.jit import build
from edgewright.engine.runner import ENGINE_VARIABLE, make_runner
from edgewright.errors import EdgewrightError, LimitError
from edgewright.formats.twin_reader import read_twin
from edgewright.ir.core.dialect import CORE
from edgewright.ir.dtypes import DType, is_floating
from edgewright.ir.graph import Graph
from edgewright.runtime.delegates import DelegateBlob
from edgewright.runtime.twin_delegate import HostTwin
from tests.support.dialects import DIALECTS

MEMORY = 64 << 20
MAX_LINES = 20_000  # of one kernel
_OVERFLOWS = 1e18  # products of two larger numbers are beyond single precision
DEFECT_EXIT_CODE = 70  # of errors that report a defect of Edgewright
_GRAPH_ERRORS = (ValueError, LookupError, TypeError, ArithmeticError)  # delegates turn them into ExecutionErrors
# Real numbers: relative to each element, and to the largest. Sums of single precision are in another order; QNN's and
# ENN's are rounded to half precision, so they may differ by two of its steps.
BOUNDS = {"core": (0.0, 4e-6), "xnnpack": (0.0, 4e-6), "tosa": (0.0, 4e-6), "qnn": (2.0**-9, 2.0**-14),
          "enn": (2.0**-9, 2.0**-14), "tflite": (0.0, 0.0)}  # fmt: skip
DELEGATES: dict[str, Any] = {"xnnpack": XnnpackDelegate, "tflite": NeutronDelegate, "enn": EnnDelegate}


@dataclass
class Outcome:
    """``stage``: load, run or ok."""

    stage: str
    error: BaseException | None = None
    results: list[Any] = field(default_factory=list)
    graph: Graph | None = None

    @property
    def accepted(self) -> bool:
        return self.stage == "ok"

    def summary(self) -> str:
        """Stage and error, without the numbers and names that differ from file to file."""
        if self.error is None:
            return self.stage
        plain = re.sub(r"'[^']*'|\d+", "#", str(self.error).split("; got")[0])
        return f"{self.stage} {type(self.error).__name__} {plain}"[:200].replace("\n", " ")

    def features(self) -> str:
        """What the file reached: its error, or the operators and element types that it ran."""
        if self.graph is None or not self.accepted:
            return self.summary()
        ops = (
            f"{op.kind}:{','.join(f'{v.dtype}{chr(113) * (v.q is not None)}' for v in op.inputs())}"
            for op in self.graph.ops
        )
        return " ".join(ops)


@dataclass
class Comparison:
    """``category`` is empty if engine and reference agree; else ``reason`` says how they differ."""

    category: str
    reason: str
    reference: Outcome


def compile_in_this_process(optimize: bool) -> None:
    """Load LLVM into a process that was forked for executions: starting another one for every kernel takes longer
    than compiling it. Without ``optimize``, machine code takes a fifth of the time; plans and kernels' text are the
    same."""
    import llvmlite.binding  # noqa: F401

    build._IMPORT_PID = os.getpid()
    build._OPT_LEVEL = 2 if optimize else 0


@contextmanager
def engine(name: str) -> Iterator[None]:
    before = os.environ.get(ENGINE_VARIABLE)
    os.environ[ENGINE_VARIABLE] = name
    try:
        yield
    finally:
        os.environ.pop(ENGINE_VARIABLE) if before is None else os.environ.__setitem__(ENGINE_VARIABLE, before)


def load(dialect: str, data: bytes) -> tuple[Graph, Callable[[Sequence[Any]], list[Any]]]:
    """The graph of a file, and the function that runs it."""
    if dialect in DELEGATES:
        delegate = DELEGATES[dialect](DelegateBlob(dialect, data, {}, {}, memory=MEMORY, threads=1))
        graph = delegate.device_graph if dialect == "xnnpack" else next(iter(read_twin(data, MEMORY).values()))
        return graph, delegate.execute
    (graph,) = read_twin(data, MEMORY).values()
    if dialect == "core":
        CORE.check(graph, MEMORY)
        return graph, make_runner(lambda: graph, XNNPACK, MEMORY, 1).run
    return graph, HostTwin("", lambda: graph).runner(DIALECTS[dialect], MEMORY, 1).run


def outcome(dialect: str, data: bytes, name: str, seed: int) -> Outcome:
    stage = "load"
    graph = None
    try:
        with engine(name), np.errstate(all="ignore"):
            graph, run = load(dialect, data)
            stage = "run"
            return Outcome("ok", None, run(make_inputs(graph, seed)), graph)
    except EdgewrightError as error:
        return Outcome(stage, error, graph=graph)
    except _GRAPH_ERRORS as error:
        if stage == "run":
            return Outcome(stage, error, graph=graph)
        raise


def make_inputs(graph: Graph, seed: int) -> list[Any]:
    """Arrays for a graph's inputs: moderate real numbers, special ones for some seeds; any integers.

    Integers of 32 and 64 bits are small for every other seed: they may be indices, and few would be in range else.
    """
    rng = np.random.default_rng(seed)
    return [_array(value.dtype, value.bound, rng, seed) for value in graph.inputs]


def _array(dtype: DType | None, shape: Sequence[int], rng: np.random.Generator, seed: int) -> Any:
    assert dtype is not None
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        if dtype.itemsize >= 4 and seed % 2:
            return rng.integers(0, 2, shape).astype(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    reals = rng.normal(0, 2, shape)
    if seed % 4 == 0 and reals.size:
        indices = rng.integers(0, reals.size, max(1, reals.size // 8))
        reals.reshape(-1)[indices] = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 7e4, -1e30], len(indices))
    with np.errstate(all="ignore"):
        return reals.astype(dtype)


def difference(dialect: str, native: Sequence[Any], reference: Sequence[Any], spreads_nan: bool) -> str:
    """How results differ; empty if they agree."""
    if len(native) != len(reference):
        return "numbers of results"
    for index, (got, want) in enumerate(zip(native, reference, strict=True)):
        if (got.dtype, got.shape) != (want.dtype, want.shape):
            return f"result {index}: {got.dtype} {got.shape}, not {want.dtype} {want.shape}"
        if is_floating(want.dtype):
            why = _real_difference(
                got.astype(np.float64), want.astype(np.float64), BOUNDS[dialect], want.dtype, spreads_nan
            )
        else:
            why = "" if np.array_equal(got, want) else f"{np.count_nonzero(got != want)} of {want.size} integers"
        if why:
            return f"result {index} {want.dtype}: {why}"
    return ""


def _spreads_nan(graph: Graph, inputs: Sequence[Any]) -> bool:
    """Whether other results may be NaN or infinite than in the reference.

    Winograd's transforms, and filters that are cut for strides, multiply NaN and infinity by zeros. Products that
    overflow single precision are infinite only where they are rounded before they are added.
    """
    arrays = [*inputs, *(v.data for v in graph.values() if v.data is not None)]
    reals = [a.astype(np.float64) for a in arrays if is_floating(a.dtype)]
    if _has(graph, "conv", "pool") and not all(np.isfinite(a).all() for a in reals):
        return True
    large = max((np.abs(a[np.isfinite(a)]).max(initial=0) for a in reals), default=0)
    return large > _OVERFLOWS and _has(graph, "conv", "linear", "matmul", "bmm", "fully")


def _has(graph: Graph, *words: str) -> bool:
    return any(word in op.kind.lower() for op in graph.ops for word in words)


def _real_difference(got: Any, want: Any, bound: tuple[float, float], dtype: DType, spreads_nan: bool) -> str:
    finite = np.isfinite(want) & np.isfinite(got)
    if not spreads_nan and not np.array_equal(got[~finite], want[~finite], equal_nan=True):
        return "NaN or infinity"
    steps = 2.0**-10 if dtype.itemsize == 2 and dtype.kind == "f" else 2.0**-7 if dtype.itemsize < 4 else 0.0
    size = np.abs(want[finite])
    tolerance = max(bound[0], steps) * size + max(bound[1], steps / 8) * size.max(initial=0) + 1e-37
    error = np.abs(got[finite] - want[finite])
    return "" if np.all(error <= tolerance) else f"real numbers, by {float((error / tolerance).max()):.3g} tolerances"


def _has_unused(graph: Graph | None) -> bool:
    """Whether no output depends on some operator."""
    used = set() if graph is None else set(graph.outputs)
    for op in reversed([] if graph is None else graph.ops):
        if not any(out in used for out in op.outputs):
            return True
        used.update(op.inputs())
    return False


@contextmanager
def count_lines() -> Iterator[list[int]]:
    """Lines of each module of machine code that is generated meanwhile; cached ones were counted before."""
    counts: list[int] = []
    text = Module.text

    def counting(module: Module) -> str:
        generated = text(module)
        counts.append(generated.count("\n"))
        return generated

    Module.text = counting  # type: ignore[method-assign]
    try:
        yield counts
    finally:
        Module.text = text  # type: ignore[method-assign]


def compare(dialect: str, data: bytes, seed: int) -> Comparison:
    """Runs a file by the reference and by the engine, on the same inputs."""
    reference = outcome(dialect, data, "reference", seed)
    with count_lines() as lines:
        native = outcome(dialect, data, "native", seed)
    if max(lines, default=0) > MAX_LINES:
        return Comparison("code size", f"{max(lines)} lines of machine code", reference)
    for each in (reference, native):
        if getattr(each.error, "exit_code", 0) == DEFECT_EXIT_CODE:
            return Comparison("defect", each.summary(), reference)
    if any(isinstance(each.error, LimitError) for each in (reference, native)):
        return Comparison("", "", reference)  # they do not take the same memory
    if reference.stage == "run" and native.accepted and _has_unused(native.graph):
        return Comparison("", "", reference)  # the engine leaves out what nobody reads, and the errors of its indices
    if reference.accepted != native.accepted:
        why = f"reference: {reference.summary()} | native: {native.summary()}"
        return Comparison("verdict", why, reference)
    if not reference.accepted:
        return Comparison("", "", reference)
    assert reference.graph is not None
    spreads = _spreads_nan(reference.graph, make_inputs(reference.graph, seed))
    why = difference(dialect, native.results, reference.results, spreads)
    return Comparison("numbers" if why else "", why, reference)
