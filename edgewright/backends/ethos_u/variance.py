"""How far elements are spread, on 32-bit integers: mean squares, variances and lengths of vectors. Sums are exact."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgewright.backends.ethos_u import fixed_point
from edgewright.backends.ethos_u.lookup_table import WORST
from edgewright.backends.ethos_u.lower import INT16, INT32, TosaLowering, result, scale_of, zero_of
from edgewright.backends.ethos_u.reduce import settle
from edgewright.backends.table import OK, Rule, over
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.layout import NHWC, identity

LONGEST = {1: 1 << 20, 2: 1 << 16}  # elements that a sum has room for, by bytes: of 16 bits, each whole
_SQUARES = 1 << 15  # squares of 8-bit integers that a sum has room for; of more, without their last bits
ROOM = 29  # bits of a variance with eps: RESCALE takes no more


@dataclass(frozen=True)
class Spread:
    """Distances from the mean (or from zero), in units of ``1 / 2**bits`` stored steps, and their mean square, in
    units of ``1 / unit`` squares of steps."""

    distance: Value
    bits: int
    square: Value
    unit: float
    up: Value | None = None  # bits by which all of it went to the left


def spread(low: TosaLowering, x: Value, axes: Sequence[int], narrow: bool, centred: bool, eps: float) -> Spread:
    """Of 32-bit ``x`` over axes; ``eps``, in squares of steps, will be added. ``narrow``: ``x`` has 8 bits."""
    count = math.prod(x.bound[a] for a in axes)
    most = 2.0**14 if centred else 2.0**16
    if not narrow:
        return _spread_16(low, x, axes, count, centred, eps)
    bits = math.floor(ROOM - math.log2(most + eps))
    less = max(0, math.ceil(math.log2(count / _SQUARES)))
    if not centred:
        total = fixed_point.summed(low, fixed_point.mul(low, x, x, shift=less), axes)
        return Spread(
            fixed_point.left(low, x, 7), 7, low.rescale(total, INT32, 2.0 ** (bits + less) / count), 2.0**bits
        )
    # From the nearest integer to the mean first: its squares are exact. What is left of the mean comes off after.
    mean = low.rescale(fixed_point.summed(low, x, axes), INT32, 2.0**15 / count)
    nearest = fixed_point.right(low, mean, 15)
    rest = fixed_point.both(low, "sub", mean, fixed_point.left(low, nearest, 15))
    apart = fixed_point.both(low, "sub", x, nearest)
    squares = fixed_point.summed(low, fixed_point.mul(low, apart, apart, shift=less), axes)
    total = low.rescale(squares, INT32, 2.0 ** (bits + less) / count)
    extra = fixed_point.mul(low, rest, rest, shift=30 - bits) if bits >= 0 else fixed_point.full(low, rest, 0)
    distance = fixed_point.both(low, "sub", fixed_point.left(low, apart, 7), fixed_point.right(low, rest, 8))
    return Spread(distance, 7, fixed_point.both(low, "sub", total, extra), 2.0**bits)


def _spread_16(low: TosaLowering, x: Value, axes: Sequence[int], count: int, centred: bool, eps: float) -> Spread:
    """Squares are shortened so that their sum has room; distances are as long as they can be before."""
    distance = fixed_point.left(low, x, 4)
    rest = None
    if centred:
        mean = low.rescale(fixed_point.summed(low, x, axes), INT32, 2.0**13 / count)
        near = fixed_point.right(low, mean, 9)
        rest = fixed_point.both(low, "sub", mean, fixed_point.left(low, near, 9))  # in units of 2**-13 steps
        distance = fixed_point.both(low, "sub", distance, near)
    # Of 20 bits, those that no distance has; no more than eps, which grows as their square, has room for.
    room = min(16, max(0, math.floor(math.log2(2.0**30 / eps) / 2))) if eps else 16
    up = fixed_point.both(low, "minimum", _headroom(low, distance, axes), room)
    distance = fixed_point.left(low, distance, up)
    if rest is not None:
        distance = fixed_point.both(low, "sub", distance, fixed_point.right(low, fixed_point.left(low, rest, up), 9))
    less = _less(count, eps * 4.0**room)
    total = fixed_point.summed(low, fixed_point.mul(low, distance, distance, shift=less), axes)
    return Spread(distance, 4, total, _unit_16(count, eps * 4.0**room), up)


def _less(count: int, eps: float) -> int:
    """Bits that squares of 20 bits lose so that ``count`` of them, and eps, have room."""
    return max(0, math.ceil(math.log2(count * (2.0**30 + eps) * 2.0**8) - ROOM))


def _unit_16(count: int, eps: float) -> float:
    return count * 2.0 ** (8 - _less(count, eps))


def _headroom(low: TosaLowering, x: Value, axes: Sequence[int]) -> Value:
    """How many bits all of ``x`` (of at most 20 bits) can go to the left."""
    size = low.rescale(low.node("abs", x.bound, INT32, input=x), INT16, 2.0**-5)
    for axis in axes:
        shape = [1 if a == axis else s for a, s in enumerate(size.bound)]
        size = low.node("reduce_max", shape, INT16, input=size, axis=axis)
    largest = fixed_point.both(low, "maximum", low.rescale(size, INT32, 1.0), 1)
    # Below 2**15, and rounded: one bit less than its leading zeros say.
    zeros = low.node("clz", largest.bound, INT32, input=largest)
    return fixed_point.both(low, "maximum", fixed_point.both(low, "sub", zeros, 18), 0)


def variance(low: TosaLowering, op: Op) -> None:
    x, out = op.args["self"], result(op)
    dims, (order, held, axes) = over(op), _reduced(low, op)
    count = math.prod(x.bound[d] for d in dims)
    narrow = x.q.dtype.itemsize == 1
    parts = spread(low, low.rescale(held, INT32, 1.0, zero_of(x)), axes, narrow, True, 0.0)
    factor = scale_of(x) ** 2 / parts.unit * count / (count - _correction(op))
    square = (
        parts.square if parts.up is None else fixed_point.right(low, parts.square, fixed_point.left(low, parts.up, 1))
    )
    settle(low, op, order, dims, low.narrow(square, out, factor, op.args.get("limits")))


def _correction(op: Op) -> float:
    given = op.args.get("correction")
    return float(op.args.get("unbiased", True)) if given is None else float(given)


def _reduced(low: TosaLowering, op: Op) -> tuple[tuple[int, ...], Value, list[int]]:
    x = op.args["self"]
    order = NHWC if len(x.shape) == 4 and NHWC in low.orders(x) else identity(len(x.shape))
    return order, low.get(x, order), [order.index(d) for d in over(op)]


def vector_norm(low: TosaLowering, op: Op) -> None:
    """Of order 2: the root of the sum of squares; of order 1: the sum of magnitudes."""
    x, out = op.args["self"], result(op)
    dims, (order, held, axes) = over(op), _reduced(low, op)
    wide = low.rescale(held, INT32, 1.0, zero_of(x))
    if op.args.get("ord", 2) == 1:
        acc = fixed_point.summed(low, low.node("abs", wide.bound, INT32, input=wide), axes)
        settle(low, op, order, dims, low.narrow(acc, out, scale_of(x), op.args.get("limits")))
        return
    count = math.prod(x.bound[d] for d in dims)
    less = max(0, math.ceil(math.log2(count / (_SQUARES if x.q.dtype.itemsize == 1 else 1))))
    total = fixed_point.summed(low, fixed_point.mul(low, wide, wide, shift=less), axes)
    root, shift = fixed_point.sqrt(low, total)
    made = fixed_point.right(low, root, shift)
    # Zero has no leading digit: nothing may be more than a multiple of its own square.
    made = fixed_point.both(
        low, "minimum", made, fixed_point.left(low, fixed_point.both(low, "minimum", total, 2**20), 7)
    )
    settle(low, op, order, dims, low.narrow(made, out, scale_of(x) * 2.0 ** (less / 2 - 6.5), op.args.get("limits")))


def _count(op: Op) -> int:
    x: Value = op.args["input"] if "input" in op.args else op.args["self"]
    if op.kind in ("layer_norm", "rms_norm"):
        return math.prod(op.args["normalized_shape"])
    if op.kind in ("var", "linalg_vector_norm"):
        return math.prod(x.bound[d] for d in over(op))
    group: int = op.args.get("num_groups", op.args.get("group", x.bound[1]))
    return math.prod(x.bound[1:]) // group


def _too_many(op: Op, target: Any) -> object:
    x: Value = op.args["input"] if "input" in op.args else op.args["self"]
    width = x.q.dtype.itemsize if x.q is not None else 2
    return count if (count := _count(op)) > LONGEST.get(width, 0) else OK


not_too_many = Rule(f"at most {LONGEST[1]} elements may be summed, or {LONGEST[2]} of 16 bits", _too_many)
known_order = Rule(
    "the norm must be of order 1 or 2", lambda op, _: OK if op.args.get("ord", 2) in (1, 2) else op.args["ord"]
)
spare = Rule(
    "there must be more elements than the correction",
    lambda op, _: OK if _count(op) > _correction(op) >= 0 else f"{_count(op)} and {_correction(op)}",
)


def _coarse(op: Op, target: Any) -> object:
    x, out, count = op.args["self"], result(op), _count(op)
    if x.q is None or out.q is None or x.q.dtype.itemsize == 1 or count <= _correction(op):
        return OK
    off = scale_of(x) ** 2 / _unit_16(count, 0.0) * count / (count - _correction(op)) / 2 / scale_of(out)
    return OK if off <= WORST else f"{off:.0f} steps off at worst"


spread_enough = Rule(f"of 16 bits, variances must be large enough for {WORST} last places", _coarse)
