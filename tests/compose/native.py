"""Compiles graphs with the kernels of earlier graphs at hand, and runs them between guards."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from edgewright.engine.compiler import make_plan
from edgewright.engine.graph.memory import SharedWeights
from edgewright.engine.host_arch import target_triple
from edgewright.engine.jit.build import _CODE_MODEL, Source, build_kernels
from edgewright.engine.jit.cache import Cache
from edgewright.engine.jit.driver import CompiledGraph
from edgewright.engine.jit.elf import CodeImage, link
from edgewright.engine.plan import SLACK, Plan
from edgewright.ir.graph import Array, Graph
from edgewright.ir.numerics import Numerics
from tests.compose.coverage import Coverage

_GUARD, _MOST = 256, 20_000  # bytes beside an array; kernels held
_RUBBISH = (0xFF, 0x35)  # NaN, and a small number


class _Memory(Cache):
    """Object code in this process: graphs of one family share most of their kernels."""

    def __init__(self) -> None:
        super().__init__(None)
        self.held: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self.held.get(key)

    def put(self, key: str, payload: bytes) -> None:
        if len(self.held) >= _MOST:
            self.held.clear()
        self.held[key] = payload

    def trim(self) -> None:
        """Nothing: ``put`` keeps the number down."""


CODE = _Memory()


class GuardError(AssertionError):
    """Code wrote where it must not."""


class SameNameError(AssertionError):
    """Two kernels have one name, which is what their code is cached by."""


@dataclass(frozen=True)
class Native:
    plan: Plan
    results: list[list[Array]]  # of each run


def compile_graph(
    graph: Graph,
    numerics: Numerics,
    cpu: str,
    coverage: Coverage | None = None,
    quick: bool = False,
    shared: SharedWeights | None = None,
) -> CompiledGraph:
    """``quick``: code that LLVM does not optimize, in a fifth of the time. Plans and kernels' texts are the same.
    ``shared``: the graph is one of several whose sizes vary."""
    with (coverage or Coverage()).recording():
        plan = make_plan(graph, threads=1, numerics=numerics, cpu=cpu, shared=shared)
    names = sorted({step.kernel for step in plan.steps if step.python is None})
    kernels = {name: plan.kernels[name] for name in names}
    if quick:
        image = _quick_image(kernels, plan.cpu, plan.features)
    else:
        image = link(build_kernels(kernels, plan.cpu, plan.features, CODE))
    return CompiledGraph(replace(plan, image=image), 1)


@cache
def _machine(cpu: str, features: str) -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    return llvm.Target.from_triple(target_triple()).create_target_machine(cpu, features, 0, *_CODE_MODEL)


_QUICK: dict[tuple[str, str], bytes] = {}  # by kernel and features: the object that has it, among others
_TEXTS: dict[tuple[str, str], int] = {}  # of what text that was


def _quick_image(kernels: Mapping[str, Source], cpu: str, features: str) -> CodeImage:
    """One module of all kernels that are not there yet: most of the time for a small one is LLVM's preparations."""
    import llvmlite.binding as llvm

    if len(_QUICK) >= _MOST:
        _QUICK.clear()
        _TEXTS.clear()
    texts = {name: source if isinstance(source, str) else source() for name, source in kernels.items()}
    for name, text in texts.items():
        if _TEXTS.setdefault((name, features), hash(text)) != hash(text):
            raise SameNameError(f"kernel {name} has another text than an earlier one of that name")
    missing = [name for name in kernels if (name, features) not in _QUICK]
    if missing:
        first, *others = (llvm.parse_assembly(texts[name]) for name in missing)
        for module in others:
            first.link_in(module)
        made = _machine(cpu, features).emit_object(first)
        _QUICK.update({(name, features): made for name in missing})
    wanted = {id(data): data for name in kernels for data in (_QUICK[name, features],)}
    return link(wanted.values())


def run_native(
    graph: Graph,
    inputs: Sequence[Array],
    numerics: Numerics,
    cpu: str,
    coverage: Coverage | None = None,
    quick: bool = False,
    shared: SharedWeights | None = None,
) -> Native:
    """Three times, from memory full of different rubbish, the last time with work in another order: what depends on
    either differs. Once more, if outputs are updates of inputs, with the same array for both."""
    compiled = compile_graph(graph, numerics, cpu, coverage, quick, shared)
    results = [_run(compiled, inputs, rubbish) for rubbish in _RUBBISH]
    compiled._run_segment = partial(_shuffled, compiled)  # type: ignore[method-assign]
    results.append(_run(compiled, inputs, _RUBBISH[0]))
    if compiled.plan.updates:
        results.append(_run(compiled, inputs, _RUBBISH[1], in_place=True))
    return Native(compiled.plan, results)


_Kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
_PIECES = 5  # that a step's units are cut into


def _shuffled(compiled: CompiledGraph, part: Any, profile: object) -> None:
    """Steps as several threads may come to run them: up to a barrier, units of all steps in any order."""
    order = random.Random(len(part.steps))
    waiting: list[tuple[int, int, int, int]] = []
    for row, step in zip(part.table.tolist(), part.steps, strict=True):
        if step.barrier:
            _drain(compiled, waiting, order)
        kernel, args, units = row[:3]
        size = -(-units // _PIECES)
        waiting += [(kernel, args, at, min(at + size, units)) for at in range(0, units, size)]
    _drain(compiled, waiting, order)


def _drain(compiled: CompiledGraph, waiting: list[tuple[int, int, int, int]], order: random.Random) -> None:
    order.shuffle(waiting)
    for kernel, args, begin, end in waiting:
        _Kernel(kernel)(args, begin, end, compiled._scratch_address)
    waiting.clear()


def _run(compiled: CompiledGraph, inputs: Sequence[Array], rubbish: int, in_place: bool = False) -> list[Array]:
    arena = compiled._buffers["arena"]
    arena[:] = rubbish
    compiled._scratch[:] = rubbish
    given = [_Guarded(x.shape, x.dtype, rubbish, x) for x in inputs]
    made = [_Guarded(t.shape, t.dtype, rubbish) for t in compiled.plan.outputs]
    updated = dict(compiled.plan.updates) if in_place else {}
    for output, source in updated.items():
        made[output] = given[source]
    compiled.run([g.array for g in given], [m.array for m in made])
    if np.any(arena[arena.size - SLACK :] != rubbish):
        raise GuardError("bytes behind the arena were written")
    for what, arrays in (("input", given), ("output", made)):
        for at, guarded in enumerate(arrays):
            guarded.check(f"{what} {at}")
    for at, (x, g) in enumerate(zip(inputs, given, strict=True)):
        if at not in updated.values() and x.tobytes() != g.array.tobytes():
            raise GuardError(f"input {at} was changed")
    return [m.array.copy() for m in made]


class _Guarded:
    """An array with bytes on either side that nobody may write to."""

    def __init__(self, shape: Sequence[int], dtype: object, fill: int, data: Array | None = None) -> None:
        kind = np.dtype(dtype)  # type: ignore[call-overload]
        size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        self.whole = np.full(size + 2 * _GUARD + 64, fill, np.uint8)
        start = -self.whole.ctypes.data % 64 + _GUARD  # aligned, as callers' arrays need not be
        self.array: Array = self.whole[start : start + size].view(kind).reshape(shape)
        self.start, self.end, self.fill = start, start + size, fill
        if data is not None:
            self.array[...] = data

    def check(self, name: str) -> None:
        if np.any(self.whole[: self.start] != self.fill) or np.any(self.whole[self.end :] != self.fill):
            raise GuardError(f"bytes beside {name} were written")
