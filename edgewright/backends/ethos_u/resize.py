"""Lowering of resizing: nearest on every NPU, bilinear on a U85."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.lower import INT32, INT48, TosaLowering, result
from edgewright.backends.ethos_u.movement import stored_as
from edgewright.backends.ethos_u.slice_concat import picked, runs, tiled
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.layout import NHWC

MAX_SCALE, MAX_SHRINK = 1 << 11, 16  # of TOSA's RESIZE


def image(op: Op) -> Value:
    value: Value = op.args["input"] if "input" in op.args else op.args["self"]
    return value


# --------------------------------------------------------------------------------------------------------- nearest


def nearest_places(op: Op) -> list[list[int]]:
    """The rows, and the columns, that a nearest resize reads: what it makes of their numbers."""
    x, name = image(op), "input" if "input" in op.args else "self"
    rows = np.broadcast_to(np.arange(x.bound[2], dtype=np.float32)[:, None], (1, 1, *x.bound[2:]))
    columns = np.broadcast_to(np.arange(x.bound[3], dtype=np.float32), (1, 1, *x.bound[2:]))
    high, wide = (np.asarray(OPS[op.kind].call({**op.args, name: n})[0][0, 0], int) for n in (rows, columns))
    return [high[:, 0].tolist(), wide[0].tolist()]


def times(places: list[int], size: int) -> int:
    """How often each element is repeated, if all are alike; otherwise 0."""
    each = len(places) // size
    return each if places == [p for p in range(size) for _ in range(each)] else 0


def nearest(low: TosaLowering, op: Op) -> None:
    x, out = image(op), result(op)
    held, places = low.get(x, NHWC), nearest_places(op)
    factors = [times(p, s) for p, s in zip(places, held.bound[1:3], strict=True)]
    if held.bound[0] == 1 and factors[0] == factors[1] and factors[0] in (2, 4, 8):
        made = _doubled(low, held, factors[0])
    else:
        made = held
        for axis in (1, 2):
            made = _repeated(low, made, axis, places[axis - 1], factors[axis - 1])
    low.alias(out, NHWC, stored_as(low, x, out, made))


def _doubled(low: TosaLowering, held: Value, factor: int) -> Value:
    """What the NPU's own upsampling does."""
    n, h, w, c = held.bound
    return low.node(
        "resize", [n, h * factor, w * factor, c], held.dtype, input=held, scale=[2 * factor, 2] * 2,
        offset=[1 - factor] * 2, border=[factor - 1] * 2, mode="nearest",
    )  # fmt: skip


def _repeated(low: TosaLowering, held: Value, axis: int, places: list[int], factor: int) -> Value:
    if factor == 1:
        return held
    if not factor:
        return picked(low, held, axis, places)
    outer, inner = math.prod(held.bound[: axis + 1]), math.prod(held.bound[axis + 1 :])
    again = tiled(low, low.reshaped(held, [outer, 1, inner]), [1, factor, 1])
    return low.reshaped(again, [s * factor if a == axis else s for a, s in enumerate(held.bound)])


def pieces(op: Op) -> int:
    """How many slices a nearest resize is joined from."""
    sizes = image(op).bound[2:]
    return max(1 if times(p, s) else len(runs(p)) for p, s in zip(nearest_places(op), sizes, strict=True))


# -------------------------------------------------------------------------------------------------------- bilinear


def steps(op: Op) -> list[tuple[int, int, int, int]]:
    """For height and width: numerator and denominator of the scale, offset and border, in lowest terms."""
    found = []
    for size, count in zip(image(op).bound[2:], result(op).bound[2:], strict=True):
        if op.args["align_corners"]:
            up, down = (count - 1, size - 1) if count > 1 and size > 1 else (1, 1)
            offset, border = 0, (count - 1) * down - (size - 1) * up
        else:
            up, down, offset, border = 2 * count, 2 * size, size - count, count - size
        common = math.gcd(up, down, offset, border)
        found.append((up // common, down // common, offset // common, border // common))
    return found


def off_scale(op: Op) -> object:
    """A factor that is not the quotient of the sizes: pixels would lie elsewhere."""
    if op.args["align_corners"]:
        return None
    given = op.args.get("scale_factors") or (op.args.get("scales_h"), op.args.get("scales_w"))
    pairs = zip(given, image(op).bound[2:], result(op).bound[2:], strict=True)
    bad = [f for f, size, count in pairs if f is not None and not math.isclose(f, count / size, rel_tol=1e-5)]
    return bad or None


def bilinear(low: TosaLowering, op: Op) -> None:
    x, out = image(op), result(op)
    held = low.get(x, NHWC)
    (yn, yd, yo, yb), (xn, xd, xo, xb) = steps(op)
    dtype: Any = held.dtype if x.q is None else INT32 if x.q.dtype.itemsize == 1 else INT48
    shape = [out.bound[d] for d in NHWC]
    acc = low.node("resize", shape, dtype, input=held, scale=[yn, yd, xn, xd], offset=[yo, xo], border=[yb, xb],
                   mode="bilinear")  # fmt: skip
    if x.q is not None:  # zero points are kept: weights add up to one
        acc = stored_as(low, x, out, low.rescale(acc, held.dtype, 1 / (yn * xn)))
    low.alias(out, NHWC, acc)
