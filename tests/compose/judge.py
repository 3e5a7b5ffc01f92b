"""Compares the engine with the reference: integers bit for bit, real numbers within the bound they are tested to keep.

Where real numbers are rounded to integers on the way, a difference in the last place may become a step. Then the
reference itself says how far results may be apart: it is run again, operator by operator, with noise of the engine's
own bound on every real result, and what moves by that may move by twice as much.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Array, Graph, Op, Value

HALF_BOUND = 2e-3  # of the largest element of a result of 16 bits, whose unit in the last place is 1e-3
_NOISE, _RUNS = 8.0, 3
Execute = Callable[[Graph, Sequence[Array]], list[Array]]
# Results that are elements of the operands, or rounded once from exact ones.
EXACT = {"permute", "view", "slice", "cat", "clone", "expand", "max_pool2d", "abs", "neg", "maximum", "minimum",
         "clamp", "pad", "convert", "add", "sub", "mul"}  # fmt: skip

SUMS = {"sum", "mean", "cumsum"}


def reference(graph: Graph, inputs: Sequence[Array], execute: Execute) -> list[Array]:
    with np.errstate(all="ignore"):
        return execute(graph, inputs)


def _noisy(graph: Graph, inputs: Sequence[Array], execute: Execute, bound: float, seed: int) -> list[Array]:
    random = np.random.default_rng(seed)
    held: dict[Value, Any] = dict(zip(graph.inputs, inputs, strict=True))
    for op in _steps(graph):
        given = list(dict.fromkeys(v for o in op for v in o.inputs() if v in held))
        outs = [v for v in op[-1].outputs if v is not None]
        made = execute(Graph("step", list(given), list(outs), list(op)), [held[v] for v in given])
        size = _size_of_summands(op[-1], held, execute)
        for value, array in zip(outs, made, strict=True):
            held[value] = _with_noise(random, array, bound, size) if _real(value) else array
    return [held[v] for v in graph.outputs]


def _steps(graph: Graph) -> list[list[Op]]:
    """Operators one by one; what is quantized at run time goes with each product that reads it."""
    makers = {v: op for op in graph.ops for v in op.outputs if v is not None and v.q is not None and v.q.dynamic}
    steps = []
    for op in graph.ops:
        if op.outputs[0] not in makers:
            steps.append([*(makers[v] for v in op.inputs() if v in makers), op])
    return steps


def _size_of_summands(op: Op, held: dict[Value, Any], execute: Execute) -> float:
    """The largest sum of absolute values of a reduction: its rounding error is a share of that, not of the result, in
    which summands cancel."""
    summed = op.args.get("self")
    if op.name not in SUMS or summed not in held or not _real(summed):
        return 0.0
    outs = [v for v in op.outputs if v is not None]
    return _largest(execute(Graph("sizes", [summed], outs, [op]), [np.abs(held[summed])])[0])


def _largest(array: Array) -> float:
    return float(np.max(np.abs(array), initial=0.0, where=np.isfinite(array)))


def _with_noise(random: np.random.Generator, array: Array, bound: float, size: float) -> Array:
    """Noise of a share of the largest element or of ``size``, whichever is larger."""
    share = HALF_BOUND if array.dtype.itemsize == 2 else bound
    largest = max(size, _largest(array))
    noise = random.uniform(-1, 1, array.shape) * share * _NOISE * largest
    return (array + noise).astype(array.dtype)


def spread(
    graph: Graph, inputs: Sequence[Array], execute: Execute, bound: float, wanted: Sequence[Array]
) -> list[float]:
    """How far noise moves each output, at most."""
    moved = [0.0] * len(wanted)
    for run in range(_RUNS):
        with np.errstate(all="ignore"):
            made = _noisy(graph, inputs, execute, bound, run)
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


def strict_bound(want: Array, bound: float) -> float:
    """Nothing for integers; for real numbers, a share of the largest."""
    if want.dtype.kind != "f":
        return 0.0
    finite = want[np.isfinite(want)].astype(np.float64)
    share = HALF_BOUND if want.dtype.itemsize == 2 else bound
    return share * max(float(np.abs(finite).max(initial=0.0)), 1e-6)


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
        elif _real(out) and (op.name not in EXACT or read & inexact):
            inexact.update(v for v in op.outputs if v is not None)
    return stepped


def _real(value: Value) -> bool:
    return value.q is None and value.dtype is not None and value.dtype.kind not in "iub"


def _rounds(op: Op, out: Value) -> bool:
    """Real numbers in, something with steps out."""
    name = op.kind.rpartition(".")[2]
    return any(_real(v) for v in op.inputs()) and (not _real(out) or name in ("floor", "ceil", "round", "trunc"))


def differences(
    graph: Graph, inputs: Sequence[Array], execute: Execute, share: float, runs: Sequence[Sequence[Array]],
    wanted: Sequence[Array],
) -> str:  # fmt: skip
    """Empty if every run gave what the reference gives; else where and by how much it did not."""
    stepped: set[Value] | None = None
    moved: list[float] | None = None
    for made in runs:
        for at, (value, got, want) in enumerate(zip(graph.outputs, made, wanted, strict=True)):
            if got.dtype != want.dtype or got.shape != want.shape:
                return f"output {at}: {got.dtype}{list(got.shape)}, wanted {want.dtype}{list(want.shape)}"
            apart, bound = _distance(got, want), strict_bound(want, share)
            if apart <= bound:
                continue
            stepped = rounded_reals(graph) if stepped is None else stepped
            if value in stepped or bound > 0:
                moved = spread(graph, inputs, execute, share, wanted) if moved is None else moved
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
