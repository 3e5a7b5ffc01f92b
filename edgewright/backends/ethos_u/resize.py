"""Lowering of resizing: nearest on every NPU, bilinear on U85."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.lower import INT32, INT48, TosaLowering, result
from edgewright.backends.ethos_u.movement import requantize_to
from edgewright.backends.ethos_u.slice_concat import strided_runs, take, tile
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.layout import NHWC

MAX_SCALE, MAX_SHRINK = 1 << 11, 16  # limits of TOSA's RESIZE


def resize_input(op: Op) -> Value:
    value: Value = op.args["input"] if "input" in op.args else op.args["self"]
    return value


# --------------------------------------------------------------------------------------------------------- nearest


def nearest_indices(op: Op) -> list[list[int]]:
    """Row and column indices that a nearest resize reads, from the reference applied to index ramps."""
    x, name = resize_input(op), "input" if "input" in op.args else "self"
    rows = np.broadcast_to(np.arange(x.bound[2], dtype=np.float32)[:, None], (1, 1, *x.bound[2:]))
    columns = np.broadcast_to(np.arange(x.bound[3], dtype=np.float32), (1, 1, *x.bound[2:]))
    high, wide = (np.asarray(OPS[op.kind].call({**op.args, name: n})[0][0, 0], int) for n in (rows, columns))
    return [high[:, 0].tolist(), wide[0].tolist()]


def repeat_factor(indices: list[int], size: int) -> int:
    """Repeat count if every element is repeated equally often; otherwise 0."""
    factor = len(indices) // size
    return factor if indices == [p for p in range(size) for _ in range(factor)] else 0


def nearest(low: TosaLowering, op: Op) -> None:
    x, out = resize_input(op), result(op)
    tensor, indices = low.get(x, NHWC), nearest_indices(op)
    factors = [repeat_factor(p, s) for p, s in zip(indices, tensor.bound[1:3], strict=True)]
    if tensor.bound[0] == 1 and factors[0] == factors[1] and factors[0] in (2, 4, 8):
        resized = _upsample(low, tensor, factors[0])
    else:
        resized = tensor
        for axis in (1, 2):
            resized = _repeat(low, resized, axis, indices[axis - 1], factors[axis - 1])
    low.alias(out, NHWC, requantize_to(low, x, out, resized))


def _upsample(low: TosaLowering, tensor: Value, factor: int) -> Value:
    """The NPU's own 2x upsampling, as RESIZE."""
    n, h, w, c = tensor.bound
    return low.node(
        "resize", [n, h * factor, w * factor, c], tensor.dtype, input=tensor, scale=[2 * factor, 2] * 2,
        offset=[1 - factor] * 2, border=[factor - 1] * 2, mode="nearest",
    )  # fmt: skip


def _repeat(low: TosaLowering, tensor: Value, axis: int, indices: list[int], factor: int) -> Value:
    if factor == 1:
        return tensor
    if not factor:
        return take(low, tensor, axis, indices)
    outer, inner = math.prod(tensor.bound[: axis + 1]), math.prod(tensor.bound[axis + 1 :])
    repeated = tile(low, low.reshape(tensor, [outer, 1, inner]), [1, factor, 1])
    return low.reshape(repeated, [s * factor if a == axis else s for a, s in enumerate(tensor.bound)])


def slice_count(op: Op) -> int:
    """Number of slices that a nearest resize concatenates."""
    sizes = resize_input(op).bound[2:]
    return max(
        1 if repeat_factor(p, s) else len(strided_runs(p)) for p, s in zip(nearest_indices(op), sizes, strict=True)
    )


# -------------------------------------------------------------------------------------------------------- bilinear


def resize_params(op: Op) -> list[tuple[int, int, int, int]]:
    """Per axis: numerator and denominator of the scale, offset and border, in lowest terms."""
    params = []
    for size, count in zip(resize_input(op).bound[2:], result(op).bound[2:], strict=True):
        if op.args["align_corners"]:
            up, down = (count - 1, size - 1) if count > 1 and size > 1 else (1, 1)
            offset, border = 0, (count - 1) * down - (size - 1) * up
        else:
            up, down, offset, border = 2 * count, 2 * size, size - count, count - size
        common = math.gcd(up, down, offset, border)
        params.append((up // common, down // common, offset // common, border // common))
    return params


def inconsistent_scales(op: Op) -> object:
    """Scale factors that are not output size over input size: they would shift sampling positions."""
    if op.args["align_corners"]:
        return None
    scales = op.args.get("scale_factors") or (op.args.get("scales_h"), op.args.get("scales_w"))
    pairs = zip(scales, resize_input(op).bound[2:], result(op).bound[2:], strict=True)
    bad = [f for f, size, count in pairs if f is not None and not math.isclose(f, count / size, rel_tol=1e-5)]
    return bad or None


def bilinear(low: TosaLowering, op: Op) -> None:
    x, out = resize_input(op), result(op)
    tensor = low.get(x, NHWC)
    (yn, yd, yo, yb), (xn, xd, xo, xb) = resize_params(op)
    dtype: Any = tensor.dtype if x.q is None else INT32 if x.q.dtype.itemsize == 1 else INT48
    shape = [out.bound[d] for d in NHWC]
    acc = low.node("resize", shape, dtype, input=tensor, scale=[yn, yd, xn, xd], offset=[yo, xo], border=[yb, xb],
                   mode="bilinear")  # fmt: skip
    if x.q is not None:  # weights sum to one, so the zero point is preserved
        acc = requantize_to(low, x, out, low.rescale(acc, tensor.dtype, 1 / (yn * xn)))
    low.alias(out, NHWC, acc)
