"""Compares the engine with the reference: integers bit for bit, real numbers within the bound they are tested to keep.

Where real numbers are rounded to integers on the way, a difference in the last place may become a step. Then the
reference itself says how far results may be apart: it is run again with noise of the engine's own bound on every real
result, and what moves by that may move by twice as much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.execute import Executor
from edgewright.ir.graph import Array, Graph, Op, Value
from edgewright.ir.numerics import Numerics, named

BOUND, HALF_BOUND = 2e-6, 2e-3  # of the largest element of a result; 16 bits have an ulp of 1e-3
_NOISE, _RUNS = 8.0, 3
# Results that are elements of the operands, or rounded once from exact ones.
EXACT = {"permute", "view", "slice", "cat", "clone", "expand", "max_pool2d", "abs", "neg", "maximum", "minimum",
         "clamp", "pad", "convert", "add", "sub", "mul"}  # fmt: skip


class Noisy(Executor):
    """The reference with noise on every real result that is not exact."""

    def __init__(self, graph: Graph, numerics: Numerics, seed: int) -> None:
        super().__init__(graph, numerics)
        self.random = np.random.default_rng(seed)

    def give(self, op: Op, real: Array) -> Array:
        out = op.outputs[0]
        assert out is not None
        if real.dtype.kind == "f" and out.q is None and real.size and op.kind not in ("pad",):
            bound = HALF_BOUND if out.dtype is not None and out.dtype.itemsize == 2 else BOUND
            largest = float(np.max(np.abs(real), initial=0.0, where=np.isfinite(real)))
            noise = self.random.uniform(-1, 1, real.shape) * bound * _NOISE * largest
            real = (real + noise).astype(real.dtype)
        return super().give(op, real)


def reference(graph: Graph, inputs: Sequence[Array], numerics: str) -> list[Array]:
    with np.errstate(all="ignore"):
        return Executor(graph, named(numerics)).run(inputs)


def spread(graph: Graph, inputs: Sequence[Array], numerics: str, wanted: Sequence[Array]) -> list[float]:
    """How far noise moves each output, at most."""
    moved = [0.0] * len(wanted)
    for run in range(_RUNS):
        with np.errstate(all="ignore"):
            made = Noisy(graph, named(numerics), run).run(inputs)
        moved = [max(m, _distance(a, b)) for m, a, b in zip(moved, made, wanted, strict=True)]
    return moved


def _distance(got: Array, want: Array) -> float:
    if got.size == 0:
        return 0.0
    if want.dtype == np.bool_:
        return float(np.any(got != want))
    a, b = got.astype(np.float64), want.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(a - b))
    return math.inf if np.any(np.isnan(apart)) else float(apart.max())


def strict_bound(want: Array) -> float:
    """Nothing for integers; for real numbers, a share of the largest."""
    if want.dtype.kind not in "f" and want.dtype.kind != "V":
        return 0.0
    finite = want[np.isfinite(want)].astype(np.float64)
    bound = HALF_BOUND if want.dtype.itemsize == 2 else BOUND
    return bound * max(float(np.abs(finite).max(initial=0.0)), 1e-6)


def rounded_reals(graph: Graph) -> set[Value]:
    """Values that depend on integers made of real numbers that are not exact: these may be a step apart."""
    inexact: set[Value] = set()
    stepped: set[Value] = set()
    for op in graph.ops:
        out = op.outputs[0]
        read = set(op.inputs())
        if out is None:
            continue
        if read & stepped:
            stepped.update(v for v in op.outputs if v is not None)
        if _rounds(op, out) and read & inexact:
            stepped.add(out)
        elif _real(out) and (op.kind not in EXACT or read & inexact):
            inexact.update(v for v in op.outputs if v is not None)
    return stepped


def _real(value: Value) -> bool:
    return value.q is None and value.dtype is not None and value.dtype.kind not in "iub"


def _rounds(op: Op, out: Value) -> bool:
    """Real numbers in, something with steps out."""
    return any(_real(v) for v in op.inputs()) and (not _real(out) or op.kind in ("floor", "ceil", "round", "trunc"))


def differences(
    graph: Graph, inputs: Sequence[Array], numerics: str, runs: Sequence[Sequence[Array]], wanted: Sequence[Array]
) -> str:
    """Empty if every run gave what the reference gives; else where and by how much it did not."""
    stepped: set[Value] | None = None
    moved: list[float] | None = None
    for made in runs:
        for at, (value, got, want) in enumerate(zip(graph.outputs, made, wanted, strict=True)):
            if got.dtype != want.dtype or got.shape != want.shape:
                return f"output {at}: {got.dtype}{list(got.shape)}, wanted {want.dtype}{list(want.shape)}"
            apart, bound = _distance(got, want), strict_bound(want)
            if apart <= bound:
                continue
            stepped = rounded_reals(graph) if stepped is None else stepped
            if value in stepped or bound > 0:
                moved = spread(graph, inputs, numerics, wanted) if moved is None else moved
                floor = 1.0 if bound == 0 else 4 * bound
                bound = max(floor, 2 * moved[at])
            if not apart <= bound:
                return f"output {at}: differs by {apart:.4g} where {bound:.4g} may be; {_snr(got, want)}"
    return ""


def _snr(got: Array, want: Array) -> str:
    a, b = got.astype(np.float64).ravel(), want.astype(np.float64).ravel()
    wrong: Any = np.flatnonzero(~((a == b) | (np.isnan(a) & np.isnan(b))))
    power, noise = float(np.sum(b * b)), float(np.sum((a - b) ** 2))
    ratio = 10 * math.log10(power / noise) if power > 0 and noise > 0 and math.isfinite(noise) else math.nan
    return f"{len(wrong)} of {a.size} elements, {ratio:.1f} dB"
