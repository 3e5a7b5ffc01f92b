"""Lowering of convolution, pooling and resizing, in NHWC layout."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.table import pool_params, reduced_dims
from edgewright.backends.xnnpack.lower_math import lower_bias
from edgewright.ir.graph import Op, Value
from edgewright.lowering.aten_to_core.operands import limits, reshape_sizes
from edgewright.lowering.passes.layout import NHWC, NLC, GroupLowering, identity, with_axis


def convolution(low: GroupLowering, op: Op) -> None:
    """2-D convolution; 1-D as 2-D of height 1."""
    x, out = op.args["input"], op.outputs[0]
    assert out is not None
    sequence = len(x.shape) == 3
    kind, weight = _conv_filter(op)
    defaults = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0}
    stride, padding, dilation, output_padding = (_pair(op.args[name], default) for name, default in defaults.items())
    pads = [padding[0], padding[0], padding[1], padding[1]]
    image = low.get(x, NLC if sequence else NHWC)
    if sequence:
        unsqueezed = low.temporary((image.shape[0], 1, *image.shape[1:]), x)  # type: ignore[arg-type]
        low.emit(
            "core.view", unsqueezed, self=image, size=[reshape_sizes(x)[0], 1, reshape_sizes(x)[2], reshape_sizes(x)[1]]
        )
        image = unsqueezed
    args = {"input": image, "weight": weight, "bias": lower_bias(low, op), "stride": stride, "padding": pads,
            "dilation": dilation, "groups": op.args["groups"], "output_padding": output_padding,
            **limits(op)}  # fmt: skip
    if not sequence:
        low.emit(kind, low.make(out, NHWC), **args)
        return
    result = low.make(out, NLC)
    unsqueezed = low.temporary((result.shape[0], 1, *result.shape[1:]), out)  # type: ignore[arg-type]
    low.emit(kind, unsqueezed, **args)
    low.emit(
        "core.view", result, self=unsqueezed, size=[reshape_sizes(out)[0], reshape_sizes(out)[2], reshape_sizes(out)[1]]
    )


def _pair(values: Any, fill: int) -> list[int]:
    pair = list(values)
    return [0 if fill == 0 else 1, pair[0]] if len(pair) == 1 else pair


def _conv_filter(op: Op) -> tuple[str, Value]:
    """The node kind of a convolution and its filter in XNNPACK's layout: OHWI, or 1HWO if depthwise."""
    weight: Value = op.args["weight"]
    assert weight.data is not None
    data, groups, q = weight.data, op.args["groups"], weight.q
    if data.ndim == 3:
        data = data[:, :, None, :]
    axis = 0
    if op.args["transposed"]:
        group_outputs = data.shape[1]
        grouped = data.reshape(groups, -1, *data.shape[1:]).transpose(0, 2, 1, 3, 4)
        data = grouped.reshape(groups * group_outputs, -1, *data.shape[2:])
        kind, data = "core.conv_transpose2d", data.transpose(0, 2, 3, 1)
    elif data.shape[1] == 1 and groups > 1:
        kind, data, axis = "core.depthwise_conv2d", data.transpose(1, 2, 3, 0), 3
    else:
        kind, data = "core.conv2d", data.transpose(0, 2, 3, 1)
    if q is not None and q.axis is not None:
        q = with_axis(q, axis)
    if q is None and data.dtype == np.float16:
        data = data.astype(np.float32)
    data = np.ascontiguousarray(data)
    return kind, Value(weight.name, data.dtype, data.shape, identity(4), data, q=q)


def max_pool2d(low: GroupLowering, op: Op) -> None:
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    kernel, stride, padding, dilation = pool_params(op)
    pads = list(padding)
    for axis in (0, 1):  # ceil_mode becomes padding at the end
        covered = (int(out.bound[2 + axis]) - 1) * stride[axis] + (kernel[axis] - 1) * dilation[axis] + 1
        pads[2 * axis + 1] = max(pads[2 * axis + 1], covered - int(x.bound[2 + axis]) - pads[2 * axis])
    low.emit("core.max_pool2d", low.make(out, NHWC), self=low.get(x, NHWC), kernel_size=kernel, stride=stride,
             padding=pads, dilation=dilation, **limits(op))  # fmt: skip


def avg_pool2d(low: GroupLowering, op: Op) -> None:
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    kernel, stride, padding, _ = pool_params(op)
    low.emit("core.avg_pool2d", low.make(out, NHWC), self=low.get(x, NHWC), kernel_size=kernel, stride=stride,
             padding=padding, **limits(op))  # fmt: skip


def global_avg_pool(low: GroupLowering, op: Op) -> None:
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    keepdim = len(out.shape) == 4
    if keepdim:
        low.emit("core.global_avg_pool2d", low.make(out, NHWC), self=low.get(x, NHWC), **limits(op))
        return
    pooled = low.temporary((x.bound[0], 1, 1, x.bound[1]), out)
    low.emit("core.global_avg_pool2d", pooled, self=low.get(x, NHWC), **limits(op))
    low.emit("core.view", low.make(out), self=pooled, size=[reshape_sizes(out)[0], reshape_sizes(out)[1]])


def spatial_max(low: GroupLowering, op: Op) -> None:
    """Maximum over height, width or both: a max pool whose window is the entire extent."""
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    dims = reduced_dims(op)
    kernel = [int(x.bound[d]) if d in dims else 1 for d in (2, 3)]
    keepdim = len(out.shape) == 4
    shape = [x.bound[0], *(1 if d in dims else x.bound[d] for d in (2, 3)), x.bound[1]]
    pooled = low.make(out, NHWC) if keepdim else low.temporary(shape, out)
    low.emit("core.max_pool2d", pooled, self=low.get(x, NHWC), kernel_size=kernel, stride=kernel, padding=[0] * 4,
             dilation=[1, 1])  # fmt: skip
    if not keepdim:
        order = (0, 2, 1) if len(out.shape) == 3 else (0, 1)
        low.emit("core.view", low.make(out, order), self=pooled, size=[reshape_sizes(out)[d] for d in order])


def upsample_bilinear2d(low: GroupLowering, op: Op) -> None:
    x, out = op.args["input"], op.outputs[0]
    assert out is not None
    low.emit("core.upsample_bilinear2d", low.make(out, NHWC), input=low.get(x, NHWC), output_size=list(out.bound[2:]),
             align_corners=op.args["align_corners"])  # fmt: skip
