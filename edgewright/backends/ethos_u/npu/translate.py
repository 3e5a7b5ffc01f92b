"""Blocks of a stream as operators of a device graph, for the engine that makes machine code of those.

Sums are multiplied and rounded as TOSA's RESCALE does it: ``natural`` is its single rounding, ``tfl`` its double one.
What has more bits than that, or rounds otherwise, is left to the simulator's own way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.npu.elementwise import HEADROOM, OperandScales
from edgewright.backends.ethos_u.npu.map_views import Builder, NotTranslatedError
from edgewright.backends.ethos_u.npu.output_stage import OutputStage, rescale
from edgewright.backends.ethos_u.npu.trace import Block, Copy, Elementwise, Pool, Product, Second
from edgewright.ir.fixed_point_scale import FixedPointScale
from edgewright.ir.graph import Array, Value

_ROUNDINGS = {"natural": "single", "tfl": "double"}
_INT32 = np.dtype(np.int32)
_LARGEST = 511  # of a byte less a zero point
_TRIED = 1 << 20  # sums for which another factor is tried
_SIMPLE = {"ADD": "add", "SUB": "sub", "MIN": "minimum", "MAX": "maximum"}


def translate(builder: Builder, block: Block) -> None:
    """Add a block's operators, or raise ``NotTranslatedError`` with the builder as it may be: it is not used then."""
    if isinstance(block, Copy):
        builder.copy(block.source, block.target, block.length)
        return
    if block.ofm.dtype.itemsize != 1 or block.ifm.dtype.itemsize != 1:
        raise NotTranslatedError("more than bytes")
    if isinstance(block, Product):
        _product(builder, block)
    elif isinstance(block, Pool):
        _pool(builder, block)
    else:
        _elementwise(builder, block)


def _factors(multiplier: Any, shift: Any, rounding: str) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Factors that the engine has a way for."""
    by, bits = (tuple(int(n) for n in np.atleast_1d(a)) for a in (multiplier, shift))
    if rounding not in _ROUNDINGS or not all(0 <= m < 1 << 31 for m in by) or not all(2 <= s <= 62 for s in bits):
        raise NotTranslatedError(f"{by[:1]} >> {bits[:1]}, {rounding}")
    return by, bits, _ROUNDINGS[rounding]


def _scaling(stage: OutputStage, multiplier: Any, shift: Any) -> FixedPointScale:
    by, bits, rounding = _factors(multiplier, shift, stage.rounding)
    if len(by) != len(bits):
        by, bits = tuple(n * max(len(by), len(bits)) if len(n) == 1 else n for n in (by, bits))
    if stage.low > stage.high:
        raise NotTranslatedError("limits in the wrong order")
    return FixedPointScale(by, bits, rounding, stage.zero_point, stage.low, stage.high)


def _whole(data: Array, dtype: Any) -> Array:
    """Numbers in a smaller type, if they fit."""
    info = np.iinfo(dtype)
    if int(data.min(initial=0)) < info.min or int(data.max(initial=0)) > info.max:
        raise NotTranslatedError(f"more bits than {dtype}")
    return data.astype(dtype)


def _window(block: Product | Pool, depth: int) -> tuple[tuple[int, int, int], dict[str, Any]]:
    """The input's shape, and what says where windows lie."""
    window, (height, width, _) = block.window, block.shape
    tall, wide = (r - a - b for r, a, b in zip(window.reach((height, width)), window.before, window.after, strict=True))
    if window.upscale != "none" or min(tall, wide) < 1:
        raise NotTranslatedError("an upscaled image, or none at all")
    sides = [window.before[0], window.after[0], window.before[1], window.after[1]]
    return (tall, wide, depth), {"stride": list(window.stride), "padding": sides, "dilation": list(window.dilation)}


def _product(b: Builder, block: Product) -> None:
    scaling, bias = _scaling(block.stage, block.multiplier, block.shift), _whole(block.bias, np.int32)
    shape, where = _window(block, block.depth)
    filters = _whole(block.weights, np.int8)
    reach = np.abs(block.weights.astype(np.int64)).reshape(len(filters), -1).sum(axis=1) * _LARGEST + np.abs(block.bias)
    if int(reach.max(initial=0)) >= 1 << 31:
        raise NotTranslatedError("sums of more than 32 bits")
    _convolve(b, block, b.read(block.ifm, shape), filters, bias, scaling, where, block.deep)


def _convolve(b: Builder, block: Product | Pool, x: Value, filters: Array, bias: Array, scaling: FixedPointScale,
              where: dict[str, Any], deep: bool) -> None:  # fmt: skip
    filters = filters[..., 0].transpose(1, 2, 0)[None] if deep else filters
    made = b.value((1, *block.shape), block.ofm.dtype, 0)
    b.op("depthwise_conv2d" if deep else "conv2d", made, input=x, weight=b.constant(filters, np.int8, 0),
         bias=b.constant(bias, np.int32), groups=block.shape[2] if deep else 1, scaling=scaling, **where)  # fmt: skip
    b.write(block.ofm, _looked_up(b, made, block.stage), block.shape)


def _pool(b: Builder, block: Pool) -> None:
    depth = block.shape[2]
    shape, where = _window(block, depth)
    block = _simpler(block)
    if block.window.elements == 1 and not block.window.padded and block.window.stride == (1, 1):
        if _unchanged(block):
            return b.move(block.ifm, block.ofm, block.shape)
        return _stored(b, block, _centred(b, b.read(block.ifm, shape), block.ifm.zero_point))
    if block.mode == "AVERAGE" and not block.window.padded:  # a padded one counts what is inside
        scaling = _scaling(block.stage, block.multiplier, block.shift)
        ones, none = np.ones((depth, *block.window.size, 1), np.int8), np.zeros(depth, np.int32)
        return _convolve(b, block, b.read(block.ifm, shape), ones, none, scaling, where, True)
    if block.mode != "MAX" or any(
        p >= k for p, k in zip(where["padding"], np.repeat(block.window.size, 2), strict=True)
    ):
        raise NotTranslatedError("a mean of what is inside")
    x = b.read(block.ifm, shape)
    most = b.value((1, *block.shape), block.ifm.dtype, block.ifm.zero_point)
    b.op("max_pool2d", most, self=x, kernel_size=list(block.window.size), **where)
    return _stored(b, block, _centred(b, most, block.ifm.zero_point))


def _simpler(block: Pool) -> Pool:
    """With another factor that gives the same results for every sum there can be: 1, or one of fewer bits."""
    if np.size(block.multiplier) != 1 or np.size(block.shift) != 1:
        return block
    by, bits = int(np.ravel(block.multiplier)[0]), int(np.ravel(block.shift)[0])
    reach = _LARGEST * (1 if block.mode == "MAX" else block.window.elements)
    if reach > _TRIED:
        return block
    every = np.arange(-reach, reach + 1, dtype=np.int64)
    wanted = rescale(every, by, bits, block.stage.rounding)
    for other, fewer in ((1, 0), ((by + 1) >> 1, bits - 1), (by >> 1, bits - 1)):
        if fewer >= 0 and np.array_equal(rescale(every, other, fewer, block.stage.rounding), wanted):
            return replace(block, multiplier=other, shift=fewer)
    return block


def _unchanged(block: Pool) -> bool:
    """Bytes come out as they went in."""
    stage, info = block.stage, np.iinfo(block.ofm.dtype)
    factor = (int(np.ravel(block.multiplier)[0]), int(np.ravel(block.shift)[0])) if np.size(block.shift) == 1 else ()
    alike = block.ifm.dtype == block.ofm.dtype and block.ifm.zero_point == stage.zero_point and stage.table is None
    return alike and factor == (1, 0) and (stage.low, stage.high) == (info.min, info.max)


def _elementwise(b: Builder, block: Elementwise) -> None:
    if block.mode not in (*_SIMPLE, "MUL", "ABS"):
        raise NotTranslatedError(block.mode)
    first = b.read(block.ifm, block.shape)
    a, second = _centred(b, first, block.ifm.zero_point), _second(b, block.second)
    if block.mode == "ABS":
        return _stored(b, block, b.op("tosa.abs", b.value(a.bound, _INT32), input=a))
    assert second is not None
    a, second = (second, a) if block.swapped else (a, second)
    if isinstance(block.scales, OperandScales):
        a, second = _alike(b, block.scales, a, second)
    out = b.value((1, *block.shape), _INT32)
    if block.mode == "MUL":
        return _stored(b, block, b.op("tosa.mul", out, a=a, b=second, shift=0))
    return _stored(b, block, b.op(f"tosa.{_SIMPLE[block.mode]}", out, a=a, b=second))


def _second(b: Builder, second: Second | None) -> Value | None:
    if second is None:
        return None
    if second.map is None:
        return b.constant(np.full((1, 1, 1, 1), second.number), _INT32)
    return _centred(b, b.read(second.map, second.shape), second.map.zero_point)


def _alike(b: Builder, scales: OperandScales, a: Value, second: Value) -> tuple[Value, Value]:
    """Both operands of a sum in one scale."""
    if scales.mode == "both16":
        return _times(b, a, scales.a[0] & 0xFFFF), _times(b, second, scales.b & 0xFFFF)
    exact, other = (a, second) if scales.mode == "a32" else (second, a)
    scaled = _scaled(b, exact, *scales.a, scales.rounding)
    raised = _times(b, other, 1 << HEADROOM[1])
    return (scaled, raised) if scales.mode == "a32" else (raised, scaled)


def _scaled(b: Builder, x: Value, by: int, bits: int, rounding: str) -> Value:
    """A byte's worth of integers by a factor, in 32 bits."""
    if bits == 0 and by << 9 < 1 << 31:
        return _times(b, x, by)
    (by, *_), (bits, *_), how = _factors(by, bits, rounding)
    return _rescaled(b, x, b.value(x.bound, _INT32), by, bits, how, 0)


def _centred(b: Builder, x: Value, zero: int) -> Value:
    """32 bits, without the zero point."""
    wide = b.op("tosa.cast", b.value(x.bound, _INT32), input=x, dtype="int32")
    return wide if zero == 0 else b.op("tosa.sub", b.value(x.bound, _INT32), a=wide, b=_number(b, zero))


def _number(b: Builder, value: int) -> Value:
    return b.constant(np.full((1, 1, 1, 1), value), _INT32)


def _times(b: Builder, x: Value, factor: int) -> Value:
    return b.op("tosa.mul", b.value(x.bound, _INT32), a=x, b=_number(b, factor), shift=0)


def _rescaled(b: Builder, x: Value, out: Value, by: int, bits: int, rounding: str, zero: int) -> Value:
    return b.op("tosa.rescale", out, input=x, multiplier=b.constant([by], _INT32), shift=b.constant([bits], np.int8),
                input_zp=0, output_zp=zero, dtype=str(out.dtype), rounding=rounding, per_channel=False)  # fmt: skip


def _stored(b: Builder, block: Pool | Elementwise, values: Value) -> None:
    """Whole numbers through the output stage, to memory."""
    stage, dtype = block.stage, block.ofm.dtype
    if stage.low > stage.high:
        raise NotTranslatedError("limits in the wrong order")
    if np.size(block.multiplier) != 1 or np.size(block.shift) != 1:
        raise NotTranslatedError("a factor for each channel")
    by, bits = int(np.ravel(block.multiplier)[0]), int(np.ravel(block.shift)[0])
    limits = {"min_val": stage.low, "max_val": stage.high}
    if (by, bits) == (1, 0):
        moved = b.op("tosa.add", b.value(values.bound, _INT32), a=values, b=_number(b, stage.zero_point))
        inside = b.op("tosa.clamp", b.value(values.bound, _INT32), input=moved, **limits)
        made = b.op("tosa.cast", b.value(values.bound, dtype, 0), input=inside, dtype=str(dtype))
    else:
        (by, *_), (bits, *_), rounding = _factors(by, bits, stage.rounding)
        scaled = _rescaled(b, values, b.value(values.bound, dtype, 0), by, bits, rounding, stage.zero_point)
        made = b.op("tosa.clamp", b.value(values.bound, dtype, 0), input=scaled, **limits)
    b.write(block.ofm, _looked_up(b, made, stage), block.shape)


def _looked_up(b: Builder, made: Value, stage: OutputStage) -> Value:
    if stage.table is None:
        return made
    if stage.table.size != 256 or stage.dtype != np.dtype(np.int8):
        raise NotTranslatedError("a table of other entries")
    out = b.value(made.bound, np.int8, 0)
    return b.op("tosa.table", out, input=made, table=b.constant(stage.table, np.int8))
