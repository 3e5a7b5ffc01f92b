"""Small device graphs, and the engine's results beside the reference's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any
from unittest import mock

import numpy as np

from edgewright.backends.xnnpack.numerics import XNNPACK
from edgewright.engine import CompiledGraph, compile, make_plan
from edgewright.engine.graph import schedule
from edgewright.engine.graph.layout import Layout, Storage
from edgewright.engine.graph.verify_plan import Access
from edgewright.engine.host_arch import is_aarch64
from edgewright.engine.isa import ARM_LEVELS, host_isa
from edgewright.engine.plan import Plan
from edgewright.ir.core.execute import Executor
from edgewright.ir.graph import Graph, Op, QParams, Value

_GUARD = 256  # bytes
_chosen: tuple[str, ...] = ()
F32, I8, U8, I32 = (np.dtype(t) for t in (np.float32, np.int8, np.uint8, np.int32))


def cpus() -> tuple[str, ...]:
    """Every instruction set this machine can be asked for, or those of them that a test is for."""
    return _chosen or _cpus()


@cache
def _cpus() -> tuple[str, ...]:
    names = ARM_LEVELS if is_aarch64() else ("avx2", "avx512")  # what lies between is in test_isa.py
    best = host_isa("").name
    return names[: names.index(best) + 1] if best in names else (*names[:1], best)


def real(name: str, *shape: int) -> Value:
    return Value(name, F32, shape, tuple(range(len(shape))))


def quantized(name: str, *shape: int, scale: float = 0.05, zero: int = 3, dtype: Any = I8) -> Value:
    info = np.iinfo(dtype)
    q = QParams(scale, zero, np.dtype(dtype), int(info.min), int(info.max))
    return Value(name, np.dtype(dtype), shape, tuple(range(len(shape))), q=q)


def constant(data: Any, q: QParams | None = None) -> Value:
    array = np.asarray(data)
    return Value("c", array.dtype, array.shape, tuple(range(array.ndim)), array, q=q)


def random(value: Value, seed: int = 0) -> Any:
    """Contents for an input: normal numbers, or any bytes."""
    rng = np.random.default_rng(seed)
    if value.q is not None:
        return rng.integers(value.q.qmin, value.q.qmax + 1, value.bound).astype(value.q.dtype)
    return rng.standard_normal(value.bound).astype(np.float32)


def filters(*shape: int, quantize: bool, axis: int = 0, seed: int = 1, per_channel: bool = True) -> Value:
    rng = np.random.default_rng(seed)
    if not quantize:
        return constant((rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32))
    scales: Any = tuple((rng.random(shape[axis]) * 0.01 + 0.001).tolist())
    q = QParams(scales if per_channel else 0.01, 0, I8, -128, 127, axis if per_channel else None)
    return constant(rng.integers(-127, 128, shape).astype(np.int8), q)


def biases(channels: int, quantize: bool, seed: int = 2) -> Value:
    rng = np.random.default_rng(seed)
    if not quantize:
        return constant(rng.standard_normal(channels).astype(np.float32))
    q = QParams(1.0, 0, I32, -(2**31), 2**31 - 1)
    return constant(rng.integers(-3000, 3000, channels).astype(np.int32), q)


def graph(inputs: Sequence[Value], outputs: Sequence[Value], *ops: Op) -> Graph:
    return Graph("test", list(inputs), list(outputs), list(ops))


def run(made: Graph, given: Sequence[Any], cpu: str, threads: int = 1) -> list[Any]:
    """The engine's results, from memory full of rubbish; nothing beside them may be written."""
    return run_compiled(compile(made, threads=threads, numerics=XNNPACK, cpu=cpu), given)


def run_compiled(compiled: CompiledGraph, given: Sequence[Any]) -> list[Any]:
    dirty(compiled)
    rooms = [np.full(t.nbytes + 2 * _GUARD, 0xA5, np.uint8) for t in compiled.plan.outputs]
    results = [
        room[_GUARD : _GUARD + t.nbytes].view(t.dtype).reshape(t.shape)
        for room, t in zip(rooms, compiled.plan.outputs, strict=True)
    ]
    compiled.run(given, results)
    for room, t in zip(rooms, compiled.plan.outputs, strict=True):
        assert (room[:_GUARD] == 0xA5).all() and (room[_GUARD + t.nbytes :] == 0xA5).all(), f"wrote beside {t.name}"
    return results


def dirty(compiled: CompiledGraph) -> None:
    compiled._buffers["arena"][:] = 0xCB


def layouts(made: Graph, cpu: str) -> dict[str, Layout]:
    """Where the elements of each value are stored, by the value's name."""
    found: dict[str, Layout] = {}

    def keep(accesses: Sequence[Access], arena: int, inputs: Sequence[Storage]) -> None:
        found.update({s.value.name: s.layout for access in accesses for s in (*access.reads, *access.writes)})

    with mock.patch.object(schedule, "verify_plan", keep):
        make_plan(made, 1, cpu=cpu)
    return found


def steps_in_python(made: Graph, cpu: str) -> list[str]:
    return labels_in_python(make_plan(made, threads=1, cpu=cpu))


def labels_in_python(plan: Plan) -> list[str]:
    return [s.label for s in plan.steps if s.python is not None]


def compare(made: Graph, given: Sequence[Any], cpu: str, bound: float = 2e-6, native: bool = True) -> None:
    """Integers are equal; real numbers differ by at most ``bound`` of the largest."""
    compiled = compile(made, threads=1, numerics=XNNPACK, cpu=cpu)
    if native:
        assert labels_in_python(compiled.plan) == []
    check_alike(run_compiled(compiled, given), Executor(made, XNNPACK).run(given), bound)


def check_alike(made: Sequence[Any], wanted: Sequence[Any], bound: float = 2e-6) -> None:
    """Integers are equal; real numbers differ by at most ``bound`` of the largest."""
    for got, want in zip(made, wanted, strict=True):
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        if want.dtype == F32:
            finite = np.isfinite(want)
            np.testing.assert_array_equal(got[~finite], want[~finite])
            scale = max(float(np.abs(want[finite]).max(initial=0)), 1e-6)
            assert float(np.abs(got[finite] - want[finite]).max(initial=0)) <= bound * scale
        else:
            np.testing.assert_array_equal(got, want)
