"""Functions of one tensor as lookup tables: 256 entries for 8 bits, 513 interpolated entries for 16 bits.

A 16-bit TOSA TABLE has an entry for every 128th input; the 7 low bits interpolate linearly between two entries, and the
result has 7 fraction bits. A steep function exceeds the error bound between its knots. Then the input range is bisected
where the error is largest, and each piece gets a table of its own, with its inputs scaled so that all 512 intervals
cover the piece. A table holds the *rise* over its piece: zero before it, constant after it, so the sum of all tables is
the function and no select is needed. See TABLE in the TOSA specification.
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
_MAX_PIECES = 16  # limit on the tables of one 16-bit function
_TARGET_ERROR_STEPS = 2.0  # error in steps that needs no further piece
MAX_ERROR_STEPS = 8  # largest error of a 16-bit function, in steps
_HALF = 1 << 15
_ROUNDED_OPS = ("remainder", "fmod", "floor_divide")  # not lowered to tables


def dequantize(raw: Array, q: QParams) -> Array:
    return np.asarray((raw - np.asarray(q.zero_point)) * np.asarray(q.scale), np.float32)


def to_steps(values: Array, q: QParams) -> Array:
    """Real values in quantized units, unrounded and clipped to the range; NaN stays NaN."""
    with np.errstate(all="ignore"):
        exact = np.asarray(values, np.float64) / np.asarray(q.scale) + np.asarray(q.zero_point)
    return np.asarray(np.clip(exact, q.qmin, q.qmax))


def quantize(values: Array, q: QParams) -> Array:
    """Quantize real values; NaN becomes the zero point, infinities the range limits."""
    exact = to_steps(values, q)
    return np.asarray(np.round(np.where(np.isnan(exact), np.asarray(q.zero_point), exact)), q.dtype)


# ------------------------------------------------------------------------------------------------- 16 bits: pieces


@dataclass(frozen=True)
class TablePiece:
    """``size`` stored integers from ``start``, and the table of the rise over them."""

    start: int
    size: int
    entries: tuple[int, ...]

    @property
    def middle(self) -> int:
        return self.start + self.size // 2

    @property
    def factor(self) -> int:
        return (1 << 16) // self.size

    def value(self, raw: Array) -> Array:
        """Contribution of the table, in 128ths of a step."""
        position = np.clip((raw - self.middle) * self.factor, -_HALF, _HALF - 1) + _HALF
        table = np.asarray(self.entries, np.int64)
        low = position >> 7
        return np.asarray((table[low] << 7) + (table[low + 1] - table[low]) * (position & 127))


def fit_pieces(target: Array, mask: Array | bool = True) -> tuple[tuple[TablePiece, ...], float]:
    """Tables whose sum is ``target`` (indexed by stored integer), and the largest error where ``mask`` is set."""
    cuts = [(-_HALF, 1 << 16)]
    while True:
        tables, error = _fit_tables(target, cuts)
        error = error * mask
        worst = [float(error[s + _HALF : s + _HALF + n].max()) for s, n in cuts]
        # A piece of 512 has an entry per integer; one whose rise exceeds 16 bits is split first.
        splittable = [i for i, (_, size) in enumerate(cuts) if size > 512]
        too_steep = [i for i in splittable if i and _rise(target, *cuts[i]) >= _HALF]
        index = too_steep[0] if too_steep else max(splittable, key=lambda i: worst[i], default=0)
        if (
            max(worst) <= _TARGET_ERROR_STEPS
            or len(cuts) == _MAX_PIECES
            or not splittable
            or (not too_steep and worst[index] <= _TARGET_ERROR_STEPS)
        ):
            return tables, max(worst)
        start, size = cuts[index]
        cuts[index : index + 1] = [(start, size // 2), (start + size // 2, size // 2)]


def _rise(target: Array, start: int, size: int) -> float:
    part = target[start + _HALF : start + _HALF + size + 1]
    return float(np.abs(part - part[0]).max())


def _fit_tables(target: Array, cuts: list[tuple[int, int]]) -> tuple[tuple[TablePiece, ...], Array]:
    inputs = np.arange(-_HALF, _HALF)
    total = np.zeros(1 << 16)
    fitted: list[TablePiece] = []
    for start, size in cuts:
        knots = np.minimum(np.arange(start, start + size + 1, size // 512) + _HALF, (1 << 16) - 1)
        before = total[start + _HALF] / 128
        entries = target[knots] - before
        # The last input of a piece is 127/128 of the way to its end, but must already give the end value.
        entries[512] = entries[511] + (entries[512] - entries[511]) * 128 / 127
        if fitted:
            entries[0] = 0  # zero before the piece
        entries = _limit_slopes(np.round(entries))
        piece = TablePiece(start, size, tuple(int(e) for e in entries))
        total = total + piece.value(inputs)
        fitted.append(piece)
    return tuple(fitted), np.abs(np.floor(total / 128 + 0.5) - target)


def _limit_slopes(entries: Array) -> Array:
    """Clip entries, and the differences of neighbors, to 16 bits."""
    clipped = np.clip(entries, -_HALF, _HALF - 1)
    for i in range(1, clipped.size):
        clipped[i] = min(max(clipped[i], clipped[i - 1] - _HALF), clipped[i - 1] + _HALF - 1)
    return clipped


def _fill_nan(values: Array) -> Array:
    """Interpolate undefined values, which do not matter."""
    valid = np.flatnonzero(~np.isnan(values))
    if valid.size in (0, values.size):
        return np.nan_to_num(values)
    return np.interp(np.arange(values.size), valid, values[valid])


@lru_cache(maxsize=256)
def _cached_pieces(key: tuple[Any, ...], function: _KeyedFunction) -> tuple[tuple[TablePiece, ...], float]:
    source, to = key[-2:]
    with np.errstate(all="ignore"):
        exact = function.function(dequantize(np.arange(-_HALF, _HALF), source))
    return fit_pieces(_fill_nan(to_steps(exact, to)), np.isfinite(exact))


class _KeyedFunction:
    """A function that the cache identifies by its key only."""

    def __init__(self, function: Function) -> None:
        self.function = function

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _KeyedFunction)

    def __hash__(self) -> int:
        return 0


# -------------------------------------------------------------------------------------------------------- lowering


def apply_table(low: TosaLowering, x: Value, function: Function, source: QParams, to: QParams, *key: Any) -> Value:
    """Apply ``function`` to a quantized tensor. ``key`` identifies the function in the cache."""
    if source.dtype.itemsize == 1:
        with np.errstate(all="ignore"):
            entries = quantize(function(dequantize(np.arange(-128, 128), source)), to)
        return low.node("table", x.bound, entries.dtype, input=x, table=low.const(entries))
    pieces, _ = _cached_pieces((*key, source, to), _KeyedFunction(function))
    total = _emit_piece(low, x, pieces[0])
    for piece in pieces[1:]:
        total = low.node("add", x.bound, INT32, a=total, b=_emit_piece(low, x, piece))
    rounded = low.rescale(total, INT16, 1 / 128)
    limits = (to.qmin, to.qmax)
    return rounded if limits == (-_HALF, _HALF - 1) or _stays_within(pieces, limits) else low.clamp(rounded, *limits)


def _stays_within(pieces: tuple[TablePiece, ...], limits: tuple[int, int]) -> bool:
    """True if a single table cannot exceed the limits."""
    return len(pieces) == 1 and min(pieces[0].entries) >= limits[0] and max(pieces[0].entries) <= limits[1]


def _emit_piece(low: TosaLowering, x: Value, piece: TablePiece) -> Value:
    position = x
    if piece.factor > 1:
        wide = low.rescale(x, INT32, 1.0)
        middle = low.const(np.full([1] * len(x.bound), piece.middle), np.int32)
        position = low.rescale(low.node("sub", x.bound, INT32, a=wide, b=middle), INT16, float(piece.factor))
    return low.node("table", x.bound, INT32, input=position, table=low.const(piece.entries, np.int16))


def tensor_operand(op: Op) -> tuple[str, Value]:
    """Name and value of the one operand that is not a scalar; the first, if both are the same tensor."""
    return next((n, v) for n, v in op.args.items() if isinstance(v, Value) and not is_scalar_constant(v))


def is_scalar_constant(value: Value) -> bool:
    """True for a constant with one element."""
    return value.constant and value.data is not None and value.data.size == 1


def scalar_value(value: Any) -> Any:
    """A Python number, also from a constant tensor."""
    if not isinstance(value, Value):
        return value
    assert value.data is not None
    element = value.data.reshape(-1)[0]
    return float(dequantize(np.asarray(element), value.q)) if value.q is not None else element.item()


def reference_function(op: Op) -> tuple[Function, tuple[Any, ...]]:
    """The op table's reference of an operator as a function of its tensor operand, and a key for it."""
    _, tensor = tensor_operand(op)
    names = tuple(name for name, value in op.args.items() if value is tensor)
    rest = {k: scalar_value(v) for k, v in op.args.items() if k not in (*names, "limits")}
    limits = op.args.get("limits") or (-np.inf, np.inf)
    opdef: Any = OPS[op.kind]

    def call(values: Array) -> Array:
        values_out = np.asarray(opdef.call({k: values if k in names else rest[k] for k in op.args if k != "limits"})[0])
        return np.asarray(np.clip(values_out, *limits))

    return call, (op.kind, names, repr(rest), repr(limits))


def unary(float_node: str = "") -> Lower:
    """Lowering of a function of one tensor. ``float_node``: TOSA's floating-point operator."""

    def lower(low: TosaLowering, op: Op) -> None:
        (_, x), out = tensor_operand(op), result(op)
        order = common_order(low, op, len(out.shape))
        tensor = low.get(x, order)
        if out.q is None or x.q is None:
            low.alias(out, order, low.node(float_node, tensor.bound, FLOAT32, input=tensor))
            return
        function, key = reference_function(op)
        low.alias(out, order, apply_table(low, tensor, function, x.q, out.q, *key))

    return lower


def _check_table_error(op: Op, target: Any) -> object:
    if not _is_int16_table(op) or op.kind in _ROUNDED_OPS or op.args.get("rounding_mode") is not None:
        return OK
    (_, x), out = tensor_operand(op), result(op)
    function, key = reference_function(op)
    assert x.q is not None and out.q is not None
    worst = _cached_pieces((*key, x.q, out.q), _KeyedFunction(function))[1]
    return OK if worst <= MAX_ERROR_STEPS else f"{worst:.0f} steps off at worst"


def _is_int16_table(op: Op) -> bool:
    """True for a function of one 16-bit tensor."""
    operands = [v for v in op.args.values() if isinstance(v, Value) and not is_scalar_constant(v)]
    qparams = [v.q for v in (*operands, result(op))]
    return len(operands) == 1 and all(q is not None and q.dtype.itemsize == 2 for q in qparams)


table_precision = Rule(
    f"16-bit functions must be within {MAX_ERROR_STEPS} steps with {_MAX_PIECES} tables of 512 intervals",
    _check_table_error,
)


def _check_width(op: Op, target: Any) -> object:
    slopes = op.args.get("weight")
    operands = [
        v for v in (*op.inputs(), *op.outputs) if v is not None and not is_scalar_constant(v) and v is not slopes
    ]
    kinds = sorted({"real" if v.q is None else str(v.q.dtype) for v in operands})
    return " and ".join(kinds) if len(kinds) > 1 else OK


same_width = Rule("operands and results must be quantized to the same bit width", _check_width)
