"""Functions of one tensor, through tables: 256 entries for 8 bits; for 16 bits, 513 entries to interpolate between.

Where 513 are too few (steep functions), the range is cut, and each piece has a table of its own: a table gives the
rise over its piece, nothing before it and all of it after, so that their sum is the function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.lower import FLOAT32, INT16, INT32, TosaLowering, result
from edgewright.backends.table import OK, Rule
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Array, Op, QParams, Value
from edgewright.lowering.passes.layout import common_order

Lower = Callable[[TosaLowering, Op], None]
Function = Callable[[Array], Array]
_PIECES = 16  # tables for one function of 16 bits, at most
_GOOD = 2.0  # steps of the last place that are not worth another table
WORST = 8  # steps of the last place that a function of 16 bits may be off
_HALF = 1 << 15
_STEPPED = ("remainder", "fmod", "floor_divide")  # not by tables


def real(stored: Array, q: QParams) -> Array:
    return np.asarray((stored - np.asarray(q.zero_point)) * np.asarray(q.scale), np.float32)


def steps(values: Array, q: QParams) -> Array:
    """Real numbers in units of stored ones, not rounded, within the ends; what is not a number stays so."""
    with np.errstate(all="ignore"):
        exact = np.asarray(values, np.float64) / np.asarray(q.scale) + np.asarray(q.zero_point)
    return np.asarray(np.clip(exact, q.qmin, q.qmax))


def quantized(values: Array, q: QParams) -> Array:
    """Real numbers as stored integers; what is not a number becomes zero, and infinities the ends."""
    exact = steps(values, q)
    return np.asarray(np.round(np.where(np.isnan(exact), np.asarray(q.zero_point), exact)), q.dtype)


# ------------------------------------------------------------------------------------------------- 16 bits: pieces


@dataclass(frozen=True)
class Piece:
    """``size`` stored integers from ``start`` on, and the table of the rise over them."""

    start: int
    size: int
    entries: tuple[int, ...]

    @property
    def middle(self) -> int:
        return self.start + self.size // 2

    @property
    def factor(self) -> int:
        return (1 << 16) // self.size

    def value(self, stored: Array) -> Array:
        """What the table adds, in 128ths of a step."""
        at = np.clip((stored - self.middle) * self.factor, -_HALF, _HALF - 1) + _HALF
        table = np.asarray(self.entries, np.int64)
        low = at >> 7
        return np.asarray((table[low] << 7) + (table[low + 1] - table[low]) * (at & 127))


def pieces(wanted: Array, counted: Array | bool = True) -> tuple[tuple[Piece, ...], float]:
    """Tables whose sum is ``wanted`` (by stored integer, from the lowest), and how far off it is at worst, where that
    is ``counted``."""
    cuts = [(-_HALF, 1 << 16)]
    while True:
        made, off = _tables(wanted, cuts)
        off = off * counted
        worst = [float(off[s + _HALF : s + _HALF + n].max()) for s, n in cuts]
        # A piece of 512 has an entry for every integer; one that rises by more than 16 bits is cut first.
        wide = [i for i, (_, size) in enumerate(cuts) if size > 512]
        tall = [i for i in wide if i and _rise(wanted, *cuts[i]) >= _HALF]
        at = tall[0] if tall else max(wide, key=lambda i: worst[i], default=0)
        if max(worst) <= _GOOD or len(cuts) == _PIECES or not wide or (not tall and worst[at] <= _GOOD):
            return made, max(worst)
        start, size = cuts[at]
        cuts[at : at + 1] = [(start, size // 2), (start + size // 2, size // 2)]


def _rise(wanted: Array, start: int, size: int) -> float:
    part = wanted[start + _HALF : start + _HALF + size + 1]
    return float(np.abs(part - part[0]).max())


def _tables(wanted: Array, cuts: list[tuple[int, int]]) -> tuple[tuple[Piece, ...], Array]:
    stored = np.arange(-_HALF, _HALF)
    total = np.zeros(1 << 16)
    made: list[Piece] = []
    for start, size in cuts:
        knots = np.minimum(np.arange(start, start + size + 1, size // 512) + _HALF, (1 << 16) - 1)
        before = total[start + _HALF] / 128
        entries = wanted[knots] - before
        # The last place of a piece is 127/128 of the way to its end, where it has to be at the end already.
        entries[512] = entries[511] + (entries[512] - entries[511]) * 128 / 127
        if made:
            entries[0] = 0  # nothing before it
        entries = _limited(np.round(entries))
        piece = Piece(start, size, tuple(int(e) for e in entries))
        total = total + piece.value(stored)
        made.append(piece)
    return tuple(made), np.abs(np.floor(total / 128 + 0.5) - wanted)


def _limited(entries: Array) -> Array:
    """Entries of 16 bits, and no more than that from one to the next."""
    kept = np.clip(entries, -_HALF, _HALF - 1)
    for i in range(1, kept.size):
        kept[i] = min(max(kept[i], kept[i - 1] - _HALF), kept[i - 1] + _HALF - 1)
    return kept


def _filled(values: Array) -> Array:
    """Where a function has no value, what lies between its neighbours: it does not matter there."""
    known = np.flatnonzero(~np.isnan(values))
    if known.size in (0, values.size):
        return np.nan_to_num(values)
    return np.interp(np.arange(values.size), known, values[known])


@lru_cache(maxsize=256)
def _plan(key: tuple[Any, ...], function: _Known) -> tuple[tuple[Piece, ...], float]:
    source, to = key[-2:]
    with np.errstate(all="ignore"):
        exact = function.function(real(np.arange(-_HALF, _HALF), source))
    return pieces(_filled(steps(exact, to)), np.isfinite(exact))


class _Known:
    """A function that a plan is remembered for by its key alone."""

    def __init__(self, function: Function) -> None:
        self.function = function

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Known)

    def __hash__(self) -> int:
        return 0


# -------------------------------------------------------------------------------------------------------- lowering


def through_table(low: TosaLowering, x: Value, function: Function, source: QParams, to: QParams, *key: Any) -> Value:
    """``function`` of a stored tensor. ``key`` says which function it is."""
    if source.dtype.itemsize == 1:
        with np.errstate(all="ignore"):
            entries = quantized(function(real(np.arange(-128, 128), source)), to)
        return low.node("table", x.bound, entries.dtype, input=x, table=low.tensor(entries))
    plan, _ = _plan((*key, source, to), _Known(function))
    total = _piece(low, x, plan[0])
    for piece in plan[1:]:
        total = low.node("add", x.bound, INT32, a=total, b=_piece(low, x, piece))
    narrow = low.rescale(total, INT16, 1 / 128)
    ends = (to.qmin, to.qmax)
    return narrow if ends == (-_HALF, _HALF - 1) or _within(plan, ends) else low.clamped(narrow, *ends)


def _within(plan: tuple[Piece, ...], ends: tuple[int, int]) -> bool:
    """True if one table cannot leave the ends."""
    return len(plan) == 1 and min(plan[0].entries) >= ends[0] and max(plan[0].entries) <= ends[1]


def _piece(low: TosaLowering, x: Value, piece: Piece) -> Value:
    at = x
    if piece.factor > 1:
        wide = low.rescale(x, INT32, 1.0)
        middle = low.tensor(np.full([1] * len(x.bound), piece.middle), np.int32)
        at = low.rescale(low.node("sub", x.bound, INT32, a=wide, b=middle), INT16, float(piece.factor))
    return low.node("table", x.bound, INT32, input=at, table=low.tensor(piece.entries, np.int16))


def activation(op: Op) -> tuple[str, Value]:
    """The one operand of a function that is a tensor of many values."""
    return next((n, v) for n, v in op.args.items() if isinstance(v, Value) and not single(v))


def single(value: Value) -> bool:
    """True for a constant that is one number."""
    return value.constant and value.data is not None and value.data.size == 1


def number(value: Any) -> Any:
    """A plain number, also if it comes as a constant tensor."""
    if not isinstance(value, Value):
        return value
    assert value.data is not None
    stored = value.data.reshape(-1)[0]
    return float(real(np.asarray(stored), value.q)) if value.q is not None else stored.item()


def function_of(op: Op) -> tuple[Function, tuple[Any, ...]]:
    """What the op table says an operator of one tensor means with its other arguments, and a key for it."""
    name, _ = activation(op)
    rest = {k: number(v) for k, v in op.args.items() if k not in (name, "limits")}
    limits = op.args.get("limits") or (-np.inf, np.inf)
    known: Any = OPS[op.kind]

    def call(values: Array) -> Array:
        made = np.asarray(known.call({k: values if k == name else rest[k] for k in op.args if k != "limits"})[0])
        return np.asarray(np.clip(made, *limits))

    return call, (op.kind, name, repr(rest), repr(limits))


def unary(float_node: str = "") -> Lower:
    """A function of one tensor. ``float_node``: TOSA's own operator for it in floating point."""

    def lower(low: TosaLowering, op: Op) -> None:
        (_, x), out = activation(op), result(op)
        order = common_order(low, op, len(out.shape))
        held = low.get(x, order)
        if out.q is None or x.q is None:
            low.alias(out, order, low.node(float_node, held.bound, FLOAT32, input=held))
            return
        function, key = function_of(op)
        low.alias(out, order, through_table(low, held, function, x.q, out.q, *key))

    return lower


def _off(op: Op, target: Any) -> object:
    if not _by_table(op) or op.kind in _STEPPED or op.args.get("rounding_mode") is not None:
        return OK
    (_, x), out = activation(op), result(op)
    function, key = function_of(op)
    assert x.q is not None and out.q is not None
    worst = _plan((*key, x.q, out.q), _Known(function))[1]
    return OK if worst <= WORST else f"{worst:.0f} steps off at worst"


def _by_table(op: Op) -> bool:
    """True for what is a function of one tensor of 16 bits."""
    held = [v for v in op.args.values() if isinstance(v, Value) and not single(v)]
    scaled = [v.q for v in (*held, result(op))]
    return len(held) == 1 and all(q is not None and q.dtype.itemsize == 2 for q in scaled)


smooth = Rule(f"of 16 bits, {_PIECES} tables with 512 steps each must reach the function to {WORST} last places", _off)


def _mixed(op: Op, target: Any) -> object:
    slopes = op.args.get("weight")
    held = [v for v in (*op.inputs(), *op.outputs) if v is not None and not single(v) and v is not slopes]
    kinds = sorted({"real" if v.q is None else str(v.q.dtype) for v in held})
    return " and ".join(kinds) if len(kinds) > 1 else OK


one_width = Rule("operands and results must be quantized, all with the same number of bits", _mixed)
