"""Every row of the core table, with random operands: the engine computes what the reference computes."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from edgewright.backends.xnnpack.numerics import XNNPACK
from edgewright.engine import compile, make_plan
from edgewright.ir.core.dialect import CORE
from edgewright.ir.core.execute import Executor
from edgewright.ir.core.table import CORE_OPS, CoreOp
from edgewright.ir.graph import Array, Graph
from edgewright.ir.signatures import Alternative
from tests.ir.core.operands import DTYPES, GENERATORS, build

_BOUNDS = {"float32": 2e-5, "float16": 2e-3, "bfloat16": 2e-2}  # of the largest element


def _types(row: CoreOp) -> list[tuple[Alternative, str]]:
    """Every alternative, with every type that its first operand may have."""
    return [(a, code) for a in _alternatives(row) for code in sorted(a.operands[0].allowed)]


def _alternatives(row: CoreOp) -> list[Alternative]:
    """Without dynamic quantization, whose result only other operators read: those test it."""
    return [a for a in row.alternatives if a.results[0].allowed != {"di8"}]


def _alike(got: Any, want: Any) -> bool:
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    bound = _BOUNDS.get(str(want.dtype))
    if bound is None:
        return bool(np.array_equal(got, want))
    a, b = got.astype(np.float64), want.astype(np.float64)
    return bool(np.allclose(a, b, rtol=bound, atol=bound * max(float(np.abs(b).max(initial=0)), 1e-3), equal_nan=True))


def _build(name: str, at: int, seed: int) -> tuple[Graph, list[Array]]:
    row = CORE_OPS[name]
    graph, inputs = build(row, *_types(row)[at], np.random.default_rng([zlib.crc32(name.encode()), at, seed]))
    CORE.check(graph, 1 << 24)
    return graph, inputs


def _check(name: str, at: int, seed: int) -> None:
    graph, inputs = _build(name, at, seed)
    (got,), (want,) = compile(graph, threads=1, numerics=XNNPACK).run(inputs), Executor(graph, XNNPACK).run(inputs)
    assert _alike(got, want), f"{name} {_types(CORE_OPS[name])[at][1]}: {got} instead of {want}"


def test_every_row_has_a_generator() -> None:
    assert set(GENERATORS) == set(CORE_OPS)


@pytest.mark.parametrize("name", CORE_OPS)
def test_engine_computes_the_reference(name: str) -> None:
    """Of one type of its first operand, a different one for each operator."""
    _check(name, zlib.crc32(name.encode()) % len(_types(CORE_OPS[name])), 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", CORE_OPS)
def test_engine_computes_the_reference_of_every_type(name: str) -> None:
    for at in range(len(_types(CORE_OPS[name]))):
        for seed in range(1, 3):
            _check(name, at, seed)


def compiled_types(name: str) -> set[str]:
    """The types of the first operand for which some shapes and attributes run entirely as machine code."""

    def is_compiled(at: int, seed: int) -> bool:
        plan = make_plan(_build(name, at, seed)[0], threads=1, numerics=XNNPACK)
        return all(step.python is None for step in plan.steps)

    types = _types(CORE_OPS[name])
    return {code for at, (_, code) in enumerate(types) if any(is_compiled(at, seed) for seed in range(6))}


@pytest.mark.parametrize("name", CORE_OPS)
def test_engine_has_code_for_the_types_of_the_row(name: str) -> None:
    row = CORE_OPS[name]
    assert compiled_types(name) == set(row.compiled.split() or [code for _, code in _types(row)])


def test_types_are_known() -> None:
    codes = {code for row in CORE_OPS.values() for _, code in _types(row)}
    assert {code if code in DTYPES else code[1:] for code in codes} <= set(DTYPES)
