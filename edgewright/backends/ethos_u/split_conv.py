"""Rewrites of convolutions that the NPU does in pieces. None needs a new scale: pieces are stored as the whole is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.table import kernel_of, pads_of, spread
from edgewright.ir.graph import Op, QParams, Value

MAX_STRIDE = 3  # of U55 and U65


def is_transposed(op: Op) -> bool:
    """ATen's one name for all convolutions has an argument for it; ``conv3d``, which stays whole, has none."""
    return bool(op.args.get("transposed", False))


def legal_convolution(op: Op, target: Any) -> list[Op] | None:
    """Groups become convolutions of slices; long strides, where Vela has no way, short ones and a selection."""
    weight = op.args["weight"]
    volume = len(weight.shape) == 5  # TOSA has no depthwise convolution of them
    if op.args["groups"] > 1 and (weight.shape[1] > 1 or volume or is_transposed(op)):
        return _by_groups(op)
    return _selected(op) if in_two_steps(op, target) else None


def in_two_steps(op: Op, target: Any) -> bool:
    """True for what Vela does not split by itself: depthwise convolutions, and those of 16 bits with borders, with
    anything between their taps, or of several images."""
    if is_transposed(op) or not too_long(op, target):
        return False
    x = op.args["input"]
    wide = x.q is not None and x.q.dtype.itemsize == 2
    batch = x.bound[0] if len(x.shape) == len(op.args["weight"].shape) else 1
    plain = not any(map(sum, pads_of(op))) and max(spread(op, "dilation", 1)) == 1 and batch == 1
    return bool(op.args["groups"] > 1 or (wide and not plain))


def too_long(op: Op, target: Any) -> bool:
    """True for steps that the NPU has no field for. Vela splits those of plain convolutions itself."""
    return target is not None and target.family != "u85" and max(spread(op, "stride", 1)) > MAX_STRIDE


def part(value: Value, start: int, size: int, axis: int) -> Value:
    """A slice of a constant."""
    assert value.data is not None
    data = np.ascontiguousarray(value.data.take(range(start, start + size), axis))
    return replace(value, data=data, shape=data.shape, q=_part_of(value.q, start, size, axis))


def _part_of(q: QParams | None, start: int, size: int, axis: int) -> QParams | None:
    if q is None or q.axis != axis or not isinstance(q.scale, tuple) or not isinstance(q.zero_point, tuple):
        return q
    return replace(q, scale=q.scale[start : start + size], zero_point=q.zero_point[start : start + size])


def _by_groups(op: Op) -> list[Op]:
    x, weight, bias, out = op.args["input"], op.args["weight"], op.args["bias"], op.outputs[0]
    assert out is not None
    groups, axis = op.args["groups"], len(x.shape) - (weight.data.ndim - 1)
    inputs, outputs = x.bound[axis] // groups, out.bound[axis] // groups
    ops, pieces = [], []
    for g in range(groups):
        cut = _piece(x, f"{x.name}_{g}", axis, inputs)
        made = _piece(out, f"{out.name}_{g}", axis, outputs)
        slicing = {"self": x, "dim": axis, "start": g * inputs, "end": (g + 1) * inputs, "step": 1}
        ops.append(Op("slice", slicing, [cut], op.origin))
        # The weights of a transposed convolution have a group's inputs in front, and every group's outputs in common.
        rows = part(weight, g * inputs, inputs, 0) if is_transposed(op) else part(weight, g * outputs, outputs, 0)
        if is_transposed(op) and weight.q is not None and weight.q.axis == 1 and len(weight.q.scale) != outputs:
            rows = replace(rows, q=_part_of(weight.q, g * outputs, outputs, 1))
        args = {**op.args, "input": cut, "weight": rows, "groups": 1}
        args["bias"] = part(bias, g * outputs, outputs, 0) if bias is not None else None
        ops.append(Op(op.kind, args, [made], op.origin))
        pieces.append(made)
    return [*ops, Op("cat", {"tensors": pieces, "dim": axis}, [out], op.origin)]


def _piece(whole: Value, name: str, axis: int, size: int) -> Value:
    shape = list(whole.shape)
    shape[axis] = size
    return Value(name, whole.dtype, tuple(shape), whole.dim_order, q=whole.q)


# ------------------------------------------------------------------------------------------------------ long strides


def steps_of(stride: int) -> tuple[int, int] | None:
    """A stride as two that the NPU has, one after the other."""
    return next(((a, stride // a) for a in (3, 2, 1) if stride % a == 0 and stride // a <= MAX_STRIDE), None)


def _selected(op: Op) -> list[Op]:
    """A convolution with the first of two strides, and a pool of one pixel with the second."""
    out = op.outputs[0]
    assert out is not None
    pairs = [steps_of(s) for s in spread(op, "stride", 1)]
    first, second = [p[0] for p in pairs if p], [p[1] for p in pairs if p]
    dims = len(op.args["weight"].shape) - 2
    size = _size(op, first)[-dims:]
    dense = Value(f"{out.name}_dense", out.dtype, (*out.shape[:-dims], *size), out.dim_order, q=out.q)
    args = {**op.args, "stride": first[-dims:]}
    pool = {"self": dense, "kernel_size": [1] * dims, "stride": second[-dims:], "padding": [0] * dims,
            "dilation": [1] * dims, "ceil_mode": False}  # fmt: skip
    kind = "max_pool1d" if dims == 1 else "max_pool2d"
    return [Op(op.kind, args, [dense], op.origin), Op(kind, pool, [out], op.origin)]


def _size(op: Op, stride: list[int]) -> list[int]:
    """The size of a convolution's result with another stride."""
    x, kernel = op.args["input"], kernel_of(op)
    image = [1, *x.bound[-1:]] if len(op.args["weight"].shape) == 3 else list(x.bound[-2:])
    sizes = zip(image, kernel, stride, map(sum, pads_of(op)), spread(op, "dilation", 1), strict=True)
    return [(n + p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes]
