"""ENN's convolutions and matrix products as the engine's.

Bytes are multiplied and rounded as XNNPACK's are, so these are the engine's own operators; 16 bits have a ``scaling``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.engine.dialects.enn_rewrite import (
    EnnRewrite,
    hw_pair,
    is_float32,
    is_int16,
    non_empty,
    padding_of,
    rule,
)
from edgewright.ir.enn.conv import LIMITS
from edgewright.ir.enn.numerics import byte, half, inputs_of, result_of
from edgewright.ir.float_scale import product_scale, quantize_bias
from edgewright.ir.graph import Array, Op, QParams, Value

_UNITS = {1: (1 << 31) - 1, 2: 1 << 48}  # the largest bias, by the bytes of what it is added for
_MOST = 1 << 24  # weights, where filters of groups are made filters of all channels


def _limits(op: Op) -> tuple[float, float] | None:
    return LIMITS[op.args["activation"]] if "activation" in op.args else None


def _how(op: Op) -> dict[str, Any] | None:
    """A product's bias, and how its sums are brought to the result; None if the engine has no such product."""
    (x, w), rest, out = inputs_of(op)[:2], inputs_of(op)[2:], result_of(op)
    if any(v.data is None or not non_empty(v) for v in (w, *rest)) or not non_empty(x, out):
        return None
    if all(is_float32(v) for v in (x, w, *rest, out)):
        return {"bias": replace(rest[0], data=half(np.asarray(rest[0].data))) if rest else None, "limits": _limits(op)}
    if not ((byte(x) and byte(out)) or (is_int16(x) and is_int16(out))) or not _plain(w, byte(x)):
        return None
    bias = _bias(x, w, rest)
    if bias is False:
        return None
    return {"bias": bias, "limits": _limits(op)} if byte(x) else {
        "bias": bias, "scaling": product_scale(x, w, out, _limits(op))}  # fmt: skip


def _plain(w: Value, narrow: bool) -> bool:
    """Integers around 0, no wider than what they are multiplied with."""
    kinds = (np.dtype(np.int8),) if narrow else (np.dtype(np.int8), np.dtype(np.int16))
    return w.q is not None and w.dtype in kinds and not np.any(np.asarray(w.q.zero_point))


def _twice(made: EnnRewrite, op: Op) -> Op | None:
    """A product of rows by weights with a zero point, as one of rows that are there twice: weights without it have one
    bit more than there is room for, and are sums of two. None if they are more than that."""
    (x, w, *rest), out = inputs_of(op), result_of(op)
    if w.data is None or w.q is None or w.q.axis is not None or not ((byte(x) and byte(out)) or is_int16(x)):
        return None
    kind = np.dtype(np.int8 if byte(x) else np.int16)
    whole = w.data.astype(np.int32) - int(np.asarray(w.q.zero_point))
    ends: Any = np.iinfo(kind)
    first = np.clip(whole, ends.min, ends.max)
    second = whole - first
    if second.min(initial=0) < -ends.max or second.max(initial=0) > ends.max or not non_empty(x, out):
        return None
    data = np.concatenate([first, second], 1).astype(kind)
    q = QParams(w.q.scale, 0, kind, int(ends.min), int(ends.max))
    both = replace(x, name=f"{x.name}_twice", shape=(*x.bound[:-1], 2 * x.bound[-1]))
    made.flat("cat", op, both, tensors=[made.planes(x)] * 2, dim=len(x.bound) - 1)
    weight = replace(w, shape=data.shape, dtype=kind, data=data, q=q)
    return Op(op.kind, {**op.args, "inputs": [both, weight, *rest]}, op.outputs, op.origin)


def _bias(x: Value, w: Value, rest: list[Value]) -> Value | bool | None:
    """A bias in units of the sums; False if they have no room for it."""
    if not rest or rest[0].data is None:
        return None
    units = quantize_bias(x, w, rest[0].data)
    narrow = byte(x)
    if rest[0].data.dtype.kind != "f" or not np.all(np.abs(units) < _UNITS[1 if narrow else 2]):
        return False
    data = units.astype(np.int32 if narrow else np.int64)
    return replace(rest[0], dtype=data.dtype, shape=data.shape, dim_order=(0,), data=data, q=None)


def _filters(weight: Value, data: Array, channels: int) -> Value:
    """Weights, arranged: ``channels`` is the dimension of the result's."""
    data = np.ascontiguousarray(half(data) if weight.q is None else data)
    q = weight.q if weight.q is None or weight.q.axis is None else replace(weight.q, axis=channels)
    return replace(weight, shape=data.shape, dim_order=tuple(range(data.ndim)), data=data, q=q)


def _joined(data: Array, groups: int) -> Array:
    """Filters of groups as ones of all channels, zero elsewhere: [outputs, high, wide, inputs]."""
    outputs, high, wide, inputs = data.shape
    made = np.zeros((outputs, high, wide, inputs * groups), data.dtype)
    each = outputs // groups
    for g in range(groups):
        made[g * each : (g + 1) * each, ..., g * inputs : (g + 1) * inputs] = data[g * each : (g + 1) * each]
    return made


def _narrow_groups(x: Value, w: Value, groups: int) -> bool:
    """Integers in groups that kernels have no vectors for; sums with zeros are the same."""
    assert w.data is not None
    split = groups > 1 and x.q is not None and (is_int16(x) or (w.bound[0] // groups) % 16 != 0)
    return split and w.data.size * groups <= _MOST


@rule("CONV2D", "DWCONV2D")
def _convolution(made: EnnRewrite, op: Op) -> bool:
    (x, w), out, how, groups = inputs_of(op)[:2], result_of(op), _how(op), int(op.args["groups"])
    if how is None or w.data is None:
        return False
    deep = groups > 1 and groups == x.bound[1] == w.bound[0]
    data = w.data.transpose(1, 2, 3, 0) if deep else w.data.transpose(0, 2, 3, 1)
    if not deep and _narrow_groups(x, w, groups):
        data, groups = _joined(data, groups), 1
    _product(made, op, "depthwise_conv2d" if deep else "conv2d", out, input=_operand(made, op, x, True),
             weight=_filters(w, data, 3 if deep else 0), stride=hw_pair(op, "stride"), padding=padding_of(op),
             dilation=hw_pair(op, "dilation"), groups=groups, **how)  # fmt: skip
    return True


def _operand(made: EnnRewrite, op: Op, x: Value, image: bool) -> Value:
    return made.reals(op, x, image) if x.q is None else made.either(x, image)


def _product(made: EnnRewrite, op: Op, kind: str, out: Value, /, **args: Any) -> None:
    """Of images; real numbers are brought to half precision."""
    if out.q is None:
        made.computed(kind, op, out, True, **args)
    else:
        made.made(kind, op, out, **args)


@rule("DECONV2D", "DWDECONV2D")
def _transposed(made: EnnRewrite, op: Op) -> bool:
    """Filters are stored [outputs of a group, inputs, high, wide]. Those with gaps are made whole ones."""
    (x, w), out, how, groups = inputs_of(op)[:2], result_of(op), _how(op), int(op.args["groups"])
    if how is None or w.data is None or (w.q is not None and w.q.axis is not None and groups > 1):
        return False
    outputs, inputs = w.bound[0] * groups, w.bound[1] // groups
    data = w.data.reshape(w.bound[0], groups, inputs, *w.bound[2:]).transpose(1, 0, 3, 4, 2)
    data = _spread(data.reshape(outputs, *w.bound[2:], inputs), hw_pair(op, "dilation"))
    if _narrow_groups(x, replace(w, shape=(outputs,), data=data), groups):
        data, groups = _joined(data, groups), 1
    if data.size > _MOST or (is_int16(x) and not _fits(data, padding_of(op))):
        return False
    if is_int16(x):
        _spaced(made, op, _filters(w, data[:, ::-1, ::-1], 0), how, groups)
        return True
    _product(made, op, "conv_transpose2d", out, input=_operand(made, op, x, True), weight=_filters(w, data, 0),
             stride=hw_pair(op, "stride"), padding=padding_of(op), dilation=[1, 1], groups=groups,
             output_padding=[0, 0], **how)  # fmt: skip
    return True


def _fits(data: Array, around: list[int]) -> bool:
    return all(p < n for p, n in zip(around, np.repeat(data.shape[1:3], 2), strict=True))


def _spaced(made: EnnRewrite, op: Op, weight: Value, how: dict[str, Any], groups: int) -> None:
    """Of 16 bits: a convolution of the image with zeros between its pixels."""
    x, out, (down, across) = inputs_of(op)[0], result_of(op), hw_pair(op, "stride")
    image = made.image(x)
    batch, high, wide, channels = image.bound

    def step(kind: str, name: str, given: Value, shape: tuple[int, ...], **args: Any) -> Value:
        done = replace(image, name=f"{image.name}_{name}", shape=shape, dim_order=tuple(range(len(shape))))
        made.emit(kind, op, done, self=given, **args)
        return done

    if (down, across) != (1, 1):
        single, several = (batch, high, 1, wide, 1, channels), (batch, high, down, wide, across, channels)
        apart = step("view", "apart", image, single, size=list(single))
        apart = step(
            "pad", "spaced", apart, several, before=[0] * 6, after=[0, 0, down - 1, 0, across - 1, 0], value=0.0
        )
        whole = (batch, high * down, wide * across, channels)
        flat = step("view", "flat", apart, whole, size=list(whole))
        cut = (batch, (high - 1) * down + 1, (wide - 1) * across + 1, channels)
        image = step("slice", "cut", flat, cut, start=[0] * 4, length=list(cut))
    around = [n - 1 - p for p, n in zip(padding_of(op), np.repeat(weight.bound[1:3], 2).tolist(), strict=True)]
    made.made("conv2d", op, out, input=image, weight=weight, stride=[1, 1], padding=around, dilation=[1, 1],
              groups=groups, **how)  # fmt: skip


def _spread(data: Array, dilation: list[int]) -> Array:
    if dilation == [1, 1]:
        return data
    outputs, high, wide, inputs = data.shape
    made = np.zeros((outputs, (high - 1) * dilation[0] + 1, (wide - 1) * dilation[1] + 1, inputs), data.dtype)
    made[:, :: dilation[0], :: dilation[1]] = data
    return made


@rule("FC")
def _linear(made: EnnRewrite, op: Op) -> bool:
    (x, w), out = inputs_of(op)[:2], result_of(op)
    if len(x.bound) == 1 and non_empty(x):  # one row
        row, done = (replace(v, name=f"{v.name}_row", shape=(1, *v.bound), dim_order=(0, 1)) for v in (x, out))
        made.flat("view", op, row, self=made.planes(x), size=list(row.bound))
        rows = Op(op.kind, {**op.args, "inputs": [row, *inputs_of(op)[1:]]}, [done], op.origin)
        if not _linear(made, rows):
            return False
        made.flat("view", op, out, self=made.planes(done), size=list(out.bound))
        return True
    if w.q is not None and not _plain(w, byte(x)):
        doubled = _twice(made, op)
        return doubled is not None and _linear(made, doubled)
    how = _how(op) if len(x.bound) > 1 else None
    if how is None or w.data is None:
        return False
    if is_int16(x):
        _pixels(made, op, how)
    elif x.q is None:
        made.computed("linear", op, out, False, input=made.reals(op, x, False), weight=_filters(w, w.data, 0), **how)
    else:
        made.flat("linear", op, out, input=made.planes(x), weight=_filters(w, w.data, 0), **how)
    return True


def _pixels(made: EnnRewrite, op: Op, how: dict[str, Any]) -> None:
    """Rows of 16 bits as the pixels of an image."""
    (x, w), out = inputs_of(op)[:2], result_of(op)
    assert w.data is not None
    rows = int(np.prod(x.bound[:-1]))
    shapes = [(1, 1, rows, int(v.bound[-1])) for v in (x, out)]
    flat, done = (replace(v, name=f"{v.name}_rows", shape=s, dim_order=(0, 1, 2, 3), data=None) for v, s in
                  zip((x, out), shapes, strict=True))  # fmt: skip
    made.emit("view", op, flat, self=made.planes(x), size=list(shapes[0]))
    made.emit("conv2d", op, done, input=flat, weight=_filters(w, w.data[:, None, None, :], 0), stride=[1, 1],
              padding=[0, 0, 0, 0], dilation=[1, 1], groups=1, **how)  # fmt: skip
    made.flat("view", op, out, self=done, size=list(out.bound))


@rule("BATCH_MATMUL")
def _matrices(made: EnnRewrite, op: Op) -> bool:
    (a, b), out = inputs_of(op), result_of(op)
    if not non_empty(a, b, out) or a.constant or b.constant:
        return False
    if all(is_float32(v) for v in (a, b, out)):
        made.computed("bmm", op, out, False, self=made.reals(op, a, False), other=made.reals(op, b, False))
        return True
    if not (all(byte(v) for v in (a, b, out)) or all(is_int16(v) for v in (a, b, out))):
        return False
    assert a.q is not None and b.q is not None
    zeros = [int(np.asarray(q.zero_point)) for q in (a.q, b.q)]
    made.flat("whole_matmul", op, out, self=made.planes(a), other=made.planes(b), zeros=zeros,
              scaling=product_scale(a, b, out, None))  # fmt: skip
    return True
