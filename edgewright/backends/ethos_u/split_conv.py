"""Legalization of convolutions that the NPU runs in parts.

Grouped convolutions become one convolution per slice of channels and a concatenation. A stride above 3 becomes two
strides that the hardware has: a convolution with the first and a 1x1 max pool, which only selects pixels, with the
second. All parts use the quantization of the original, so no new scale has to be calibrated and results stay bit-exact.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.table import conv_argument, conv_kernel, conv_padding
from edgewright.ir.graph import Op, QParams, Value

MAX_STRIDE = 3  # limit of U55 and U65


def is_transposed(op: Op) -> bool:
    """ATen's ``convolution`` has this argument; ``conv3d``, which is not decomposed, has none."""
    return bool(op.args.get("transposed", False))


def legalize_convolution(op: Op, target: Any) -> list[Op] | None:
    """Split groups, and long strides that Vela does not support, into supported operators."""
    weight = op.args["weight"]
    is_3d = len(weight.shape) == 5  # TOSA has no depthwise conv3d
    if op.args["groups"] > 1 and (weight.shape[1] > 1 or is_3d or is_transposed(op)):
        return _split_groups(op)
    return _split_stride(op) if needs_split_stride(op, target) else None


def needs_split_stride(op: Op, target: Any) -> bool:
    """True if Vela does not split the stride itself: depthwise, or 16-bit with padding, dilation or a batch."""
    if is_transposed(op) or not exceeds_max_stride(op, target):
        return False
    x = op.args["input"]
    is_int16 = x.q is not None and x.q.dtype.itemsize == 2
    batch = x.bound[0] if len(x.shape) == len(op.args["weight"].shape) else 1
    unpadded = not any(map(sum, conv_padding(op))) and max(conv_argument(op, "dilation", 1)) == 1 and batch == 1
    return bool(op.args["groups"] > 1 or (is_int16 and not unpadded))


def exceeds_max_stride(op: Op, target: Any) -> bool:
    """True for strides that U55 and U65 cannot encode. Vela splits those of regular convolutions itself."""
    return target is not None and target.family != "u85" and max(conv_argument(op, "stride", 1)) > MAX_STRIDE


def slice_constant(value: Value, start: int, size: int, axis: int) -> Value:
    """A slice of a constant, with its quantization."""
    assert value.data is not None
    data = np.ascontiguousarray(value.data.take(range(start, start + size), axis))
    return replace(value, data=data, shape=data.shape, q=_slice_qparams(value.q, start, size, axis))


def _slice_qparams(q: QParams | None, start: int, size: int, axis: int) -> QParams | None:
    if q is None or q.axis != axis or not isinstance(q.scale, tuple) or not isinstance(q.zero_point, tuple):
        return q
    return replace(q, scale=q.scale[start : start + size], zero_point=q.zero_point[start : start + size])


def _split_groups(op: Op) -> list[Op]:
    x, weight, bias, out = op.args["input"], op.args["weight"], op.args["bias"], op.outputs[0]
    assert out is not None
    groups, axis = op.args["groups"], len(x.shape) - (weight.data.ndim - 1)
    inputs, outputs = x.bound[axis] // groups, out.bound[axis] // groups
    ops, parts = [], []
    for g in range(groups):
        group_input = _slice_value(x, f"{x.name}_{g}", axis, inputs)
        group_output = _slice_value(out, f"{out.name}_{g}", axis, outputs)
        slice_args = {"self": x, "dim": axis, "start": g * inputs, "end": (g + 1) * inputs, "step": 1}
        ops.append(Op("slice", slice_args, [group_input], op.origin))
        # Weights of a transposed convolution are input-major: a group is a slice of the first dimension.
        group_weight = (
            slice_constant(weight, g * inputs, inputs, 0)
            if is_transposed(op)
            else slice_constant(weight, g * outputs, outputs, 0)
        )
        if is_transposed(op) and weight.q is not None and weight.q.axis == 1 and len(weight.q.scale) != outputs:
            group_weight = replace(group_weight, q=_slice_qparams(weight.q, g * outputs, outputs, 1))
        args = {**op.args, "input": group_input, "weight": group_weight, "groups": 1}
        args["bias"] = slice_constant(bias, g * outputs, outputs, 0) if bias is not None else None
        ops.append(Op(op.kind, args, [group_output], op.origin))
        parts.append(group_output)
    return [*ops, Op("cat", {"tensors": parts, "dim": axis}, [out], op.origin)]


def _slice_value(value: Value, name: str, axis: int, size: int) -> Value:
    shape = list(value.shape)
    shape[axis] = size
    return Value(name, value.dtype, tuple(shape), value.dim_order, q=value.q)


# ------------------------------------------------------------------------------------------------------ long strides


def factor_stride(stride: int) -> tuple[int, int] | None:
    """A stride as a product of two supported strides, or None."""
    return next(((a, stride // a) for a in (3, 2, 1) if stride % a == 0 and stride // a <= MAX_STRIDE), None)


def _split_stride(op: Op) -> list[Op]:
    """A convolution with the first stride, and a 1x1 pool with the second."""
    out = op.outputs[0]
    assert out is not None
    pairs = [factor_stride(s) for s in conv_argument(op, "stride", 1)]
    first, second = [p[0] for p in pairs if p], [p[1] for p in pairs if p]
    dims = len(op.args["weight"].shape) - 2
    size = _output_size(op, first)[-dims:]
    dense = Value(f"{out.name}_dense", out.dtype, (*out.shape[:-dims], *size), out.dim_order, q=out.q)
    args = {**op.args, "stride": first[-dims:]}
    pool_args = {"self": dense, "kernel_size": [1] * dims, "stride": second[-dims:], "padding": [0] * dims,
            "dilation": [1] * dims, "ceil_mode": False}  # fmt: skip
    kind = "max_pool1d" if dims == 1 else "max_pool2d"
    return [Op(op.kind, args, [dense], op.origin), Op(kind, pool_args, [out], op.origin)]


def _output_size(op: Op, stride: list[int]) -> list[int]:
    """Output size of the convolution with another stride."""
    x, kernel = op.args["input"], conv_kernel(op)
    image = [1, *x.bound[-1:]] if len(op.args["weight"].shape) == 3 else list(x.bound[-2:])
    sizes = zip(image, kernel, stride, map(sum, conv_padding(op)), conv_argument(op, "dilation", 1), strict=True)
    return [(n + p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes]
