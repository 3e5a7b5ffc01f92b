"""Pooling, bilinear resize and one-dimensional filters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Operand, Reg, const, lane_count, vec
from edgewright.engine.codegen.epilogue import Epilogue, apply_epilogue
from edgewright.engine.codegen.math_float64 import call_intrinsic
from edgewright.engine.codegen.requant import Affine, quantize_to_uint8
from edgewright.engine.codegen.vector import int_max, to_float32, widen_int8
from edgewright.engine.isa import ISA
from edgewright.engine.kernels.norm_softmax import nan_max
from edgewright.engine.kernels.tile_loops import byte_offset, for_each_channel_vector, vector_widths
from edgewright.ir.graph import Array

# ----------------------------------------------------------------------------------------------------------------- pool

# Max and average pooling with windows clipped at the image's edges, and global average pooling.


@dataclass(frozen=True)
class PoolAxis:
    """Pooling windows in one dimension."""

    size: int
    kernel: int
    stride: int
    padding: int
    dilation: int
    step: int  # input stride in bytes


@dataclass(frozen=True)
class PoolSpec:
    """``kind`` is ``max`` or ``mean``. A quantized mean dequantizes with ``in_affine``
    and quantizes with ``out_affine``."""

    kind: str
    item: int
    high: PoolAxis
    wide: PoolAxis
    columns: int
    channels: int
    out_row: int
    out_pixel_stride: int
    epilogue: Epilogue = ()
    in_affine: Affine | None = None
    out_affine: Affine | None = None
    low: int = 0
    top: int = 255


def emit_pool(module: Module, name: str, isa: ISA, pool: PoolSpec) -> None:
    """Work units are output rows of one image. Arguments: data, output."""
    f = module.kernel(name)
    data, out = f.load_arg(PTR, 0), f.load_arg(PTR, 1)
    max_width = isa.lanes if pool.item == 4 or pool.kind == "mean" else isa.bytes

    def row(y: Reg) -> None:
        above, first_y, end_y = _window_bounds(f, pool.high, y)
        top, line = f.gep(data, above), f.gep(out, f.mul(y, pool.out_row))

        def pixel(x: Reg, _: list[Reg]) -> list[Reg]:
            column, first_x, end_x = _window_bounds(f, pool.wide, x)
            corner, pixel_address = f.gep(top, column), f.gep(line, f.mul(x, pool.out_pixel_stride))

            def vector(first: Operand, width: int, used: int) -> None:
                at = byte_offset(f, first, pool.item)
                result = _window(f, pool, width, f.gep(corner, at), (first_y, end_y), (first_x, end_x))
                f.store_first(result, used, f.gep(pixel_address, at))

            for_each_channel_vector(f, pool.channels, max_width, vector_widths, vector)
            return []

        f.loop(pool.columns, [], pixel)

    f.for_range(f.arg("begin"), f.arg("end"), row)
    f.ret()


def _window_bounds(f: Function, axis: PoolAxis, index: Reg) -> tuple[Reg, Reg, Reg]:
    """Byte offset of a window's first tap (which may be outside), and the range of taps inside the image."""
    corner = f.add(f.mul(index, axis.stride), -axis.padding)
    zero, d = const(0, I64), axis.dilation
    below = f.op("sub", const(d - 1, I64), corner)
    first = f.call("llvm.smax.i64", I64, f.op("sdiv", below, d) if d > 1 else below, zero)
    room = f.op("sub", const(axis.size + d - 1, I64), corner)
    end = f.call("llvm.smin.i64", I64, f.op("sdiv", room, d) if d > 1 else room, const(axis.kernel, I64))
    return f.mul(corner, axis.step), first, end


def _window(f: Function, pool: PoolSpec, width: int, corner: Reg, rows: tuple[Reg, Reg], taps: tuple[Reg, Reg]) -> Reg:
    kind = vec(width, "float" if pool.item == 4 else "i8")
    if pool.kind == "max":
        lowest = const(float("-inf") if pool.item == 4 else 0, kind)
        best = _loop_over_window(f, pool, corner, rows, taps, lowest, lambda best, at: _max(f, best, f.load(kind, at)))
        return _clamp(f, pool, best)
    return _mean(f, pool, width, corner, rows, taps)


def _max(f: Function, best: Reg, x: Reg) -> Reg:
    if x.type.endswith("i8>"):
        return int_max(f, best, x, signed=False)
    return nan_max(f, best, x)  # NaN stays NaN, as in PyTorch


def _clamp(f: Function, pool: PoolSpec, x: Reg) -> Reg:
    if pool.item == 4:
        return apply_epilogue(f, x, pool.epilogue)
    name = f"v{lane_count(x.type)}i8"
    if pool.low > 0:
        x = f.call(f"llvm.umax.{name}", x.type, x, const(pool.low, x.type))
    return f.call(f"llvm.umin.{name}", x.type, x, const(pool.top, x.type)) if pool.top < 255 else x


def _loop_over_window(f: Function, pool: PoolSpec, corner: Reg, rows: tuple[Reg, Reg], taps: tuple[Reg, Reg],
                      start: Reg, body: Callable[[Reg, Reg], Reg]) -> Reg:  # fmt: skip
    """``body(value, address)`` for every tap inside the image, row by row."""

    def line(y: Reg, now: list[Reg]) -> list[Reg]:
        at = f.gep(corner, f.mul(f.op("add", rows[0], y), pool.high.dilation * pool.high.step))
        return [_row(f, pool, at, taps, now[0], body)]

    return f.loop(f.op("sub", rows[1], rows[0]), [start], line)[0]


def _row(
    f: Function, pool: PoolSpec, at: Reg, taps: tuple[Reg, Reg], start: Reg, body: Callable[[Reg, Reg], Reg]
) -> Reg:
    step = pool.wide.dilation * pool.wide.step

    def tap(x: Reg, now: list[Reg]) -> list[Reg]:
        return [body(now[0], f.gep(at, f.mul(f.op("add", taps[0], x), step)))]

    return f.loop(f.op("sub", taps[1], taps[0]), [start], tap)[0]


def _mean(f: Function, pool: PoolSpec, width: int, corner: Reg, rows: tuple[Reg, Reg], taps: tuple[Reg, Reg]) -> Reg:
    """Sum along rows, then over rows, then divide: the reference's order, for identical rounding."""
    kind, zero = vec(width, "float"), const(0, vec(width, "float"))

    def load(total: Reg, at: Reg) -> Reg:
        if pool.in_affine is None:
            return f.op("fadd", total, f.load(kind, at))
        return f.op("fadd", total, pool.in_affine.real(f, f.load(vec(width, "i8"), at)))

    def line(y: Reg, now: list[Reg]) -> list[Reg]:
        at = f.gep(corner, f.mul(f.op("add", rows[0], y), pool.high.dilation * pool.high.step))
        return [f.op("fadd", now[0], _row(f, pool, at, taps, zero, load))]

    total = f.loop(f.op("sub", rows[1], rows[0]), [zero], line)[0]
    elements = f.op("mul", f.op("sub", rows[1], rows[0]), f.op("sub", taps[1], taps[0]))
    mean = f.op("fdiv", total, f.splat(f.cast("sitofp", elements, "float"), width))
    mean = apply_epilogue(f, mean, pool.epilogue)
    return mean if pool.out_affine is None else quantize_to_uint8(f, mean, pool.out_affine, pool.low, pool.top)


@dataclass(frozen=True)
class GlobalMeanSpec:
    """Global average pooling. Quantized: an integer sum times ``factor`` plus ``offset``, quantized with
    ``out_affine``."""

    item: int
    rows: int
    columns: int
    row: int
    pixel: int
    channels: int
    block: int  # channels per work unit
    epilogue: Epilogue = ()
    shift: int = 0  # subtracted from the sum
    factor: float = 0.0
    offset: float = 0.0  # added before rounding
    out_affine: Affine | None = None
    low: int = 0
    top: int = 255


def emit_global_mean(module: Module, name: str, isa: ISA, mean: GlobalMeanSpec) -> None:
    """Work units are blocks of channels; the last may be shorter. Arguments: data, output."""
    f = module.kernel(name)
    data, out = f.load_arg(PTR, 0), f.load_arg(PTR, 1)
    full_blocks, rest = divmod(mean.channels, mean.block)

    def block(channels: int) -> Callable[[Reg], None]:
        def emit(unit: Reg) -> None:
            start = f.mul(unit, mean.block * mean.item)
            _mean_block(f, isa, mean, f.gep(data, start), f.gep(out, start), channels)

        return emit

    last = const(full_blocks, I64)
    f.for_range(f.arg("begin"), f.call("llvm.smin.i64", I64, f.arg("end"), last), block(mean.block))
    if rest:
        f.for_range(f.call("llvm.smax.i64", I64, f.arg("begin"), last), f.arg("end"), block(rest))
    f.ret()


def _mean_block(f: Function, isa: ISA, mean: GlobalMeanSpec, data: Reg, out: Reg, channels: int) -> None:
    vectors = vector_widths(channels, isa.lanes)
    kinds = [vec(w, "float" if mean.item == 4 else "i32") for w, _ in vectors]
    offsets = [sum(w for w, _ in vectors[:i]) * mean.item for i in range(len(vectors))]

    def add(at: Reg, now: list[Reg]) -> list[Reg]:
        if mean.item == 4:
            return [f.op("fadd", t, f.load(t.type, at, o)) for t, o in zip(now, offsets, strict=True)]
        loaded = [f.load(vec(w, "i8"), at, o) for (w, _), o in zip(vectors, offsets, strict=True)]
        return [f.add(t, widen_int8(f, x)) for t, x in zip(now, loaded, strict=True)]

    def row(y: Reg, now: list[Reg]) -> list[Reg]:
        line = f.gep(data, f.mul(y, mean.row))
        return f.loop(mean.columns, now, lambda x, sums: add(f.gep(line, f.mul(x, mean.pixel)), sums))

    totals = f.loop(mean.rows, [const(0, k) for k in kinds], row)
    for total, (_, used), offset in zip(totals, vectors, offsets, strict=True):
        f.store_first(_mean_result(f, mean, total), used, out, offset)


def _mean_result(f: Function, mean: GlobalMeanSpec, total: Reg) -> Reg:
    if mean.out_affine is None:
        share = f.op("fmul", total, const(1 / (mean.rows * mean.columns), total.type))
        return apply_epilogue(f, share, mean.epilogue)
    real = to_float32(f, f.add(total, -mean.shift))
    scaled = f.op("fmul", real, const(mean.factor, real.type))
    if mean.offset:
        scaled = f.op("fadd", scaled, const(mean.offset, real.type))
    return mean.out_affine.store(f, scaled, mean.low, mean.top)


# --------------------------------------------------------------------------------------------------------------- resize

# Bilinear resize: each output pixel is a weighted sum of four, with offsets and weights from tables. And a
# one-dimensional filter over a dense tensor, for separable resizes and window means.

_ENTRY_BYTES = 24  # bytes: two offsets, two weights


@dataclass(frozen=True)
class ResizeSpec:
    """``across_first``: interpolate horizontally first, for the reference's rounding."""

    item: int
    columns: int
    channels: int
    out_row: int
    out_pixel_stride: int
    across_first: bool
    epilogue: Epilogue = ()
    in_affine: Affine | None = None
    out_affine: Affine | None = None
    low: int = 0
    high: int = 255


def bilinear_table(indices: tuple[Array, Array], weights: tuple[Array, Array], step: int) -> Array:
    """For each output index of a dimension, the byte offsets of its two inputs and their weights."""
    entries = np.zeros(len(indices[0]), np.dtype([("at", np.int64, 2), ("weight", np.float32, 2)]))
    entries["at"] = np.stack(indices, 1) * step
    entries["weight"] = np.stack(weights, 1)
    assert entries.dtype.itemsize == _ENTRY_BYTES
    return entries.view(np.uint8).reshape(-1)


def emit_resize(module: Module, name: str, lanes: int, resize: ResizeSpec) -> None:
    """Work units are output rows of one image. Arguments: data, output, row table, column table."""
    f = module.kernel(name)
    data, out, rows, columns = (f.load_arg(PTR, i) for i in range(4))

    def row(y: Reg) -> None:
        line = f.gep(out, f.mul(y, resize.out_row))
        (above, below), y_weights = _load_entry(f, rows, y)
        sources = [f.gep(data, above), f.gep(data, below)]

        def pixel(x: Reg, _: list[Reg]) -> list[Reg]:
            (left, right), x_weights = _load_entry(f, columns, x)
            corners = [[f.gep(s, at) for at in (left, right)] for s in sources]
            pixel_address = f.gep(line, f.mul(x, resize.out_pixel_stride))

            def vector(first: Operand, width: int, used: int) -> None:
                at = byte_offset(f, first, resize.item)
                result = _interpolate(f, resize, width, corners, at, y_weights, x_weights)
                f.store_first(result, used, f.gep(pixel_address, at))

            for_each_channel_vector(f, resize.channels, lanes, vector_widths, vector)
            return []

        f.loop(resize.columns, [], pixel)

    f.for_range(f.arg("begin"), f.arg("end"), row)
    f.ret()


def _load_entry(f: Function, entries: Reg, index: Reg) -> tuple[tuple[Reg, Reg], tuple[Reg, Reg]]:
    at = f.gep(entries, f.mul(index, _ENTRY_BYTES))
    first, second = f.load(I64, at, 0, 8), f.load(I64, at, 8, 8)
    return (first, second), (f.load("float", at, 16, 4), f.load("float", at, 20, 4))


def _interpolate(
    f: Function,
    resize: ResizeSpec,
    width: int,
    corners: list[list[Reg]],
    offset: Operand,
    y_weights: tuple[Reg, Reg],
    x_weights: tuple[Reg, Reg],
) -> Reg:
    def load(at: Reg) -> Reg:
        if resize.in_affine is None:
            return f.load(vec(width, "float"), at, offset)
        return resize.in_affine.real(f, f.load(vec(width, "i8"), at, offset))

    def blend(a: Reg, b: Reg, weights: tuple[Reg, Reg]) -> Reg:
        first, second = (f.splat(w, width) for w in weights)
        return f.op("fadd", f.op("fmul", a, first), f.op("fmul", b, second))

    (a, b), (c, d) = ((load(at) for at in line) for line in corners)
    if resize.across_first:
        result = blend(blend(a, b, x_weights), blend(c, d, x_weights), y_weights)
    else:
        result = blend(blend(a, c, y_weights), blend(b, d, y_weights), x_weights)
    result = apply_epilogue(f, result, resize.epilogue)
    return (
        result
        if resize.out_affine is None
        else quantize_to_uint8(f, result, resize.out_affine, resize.low, resize.high)
    )


@dataclass(frozen=True)
class SeparableFilterSpec:
    """From ``size`` elements with stride ``inner`` to ``count`` results of at most ``taps`` taps each."""

    size: int
    inner: int
    count: int
    taps: int


def emit_separable_filter(module: Module, name: str, spec: SeparableFilterSpec, lanes: int) -> None:
    """Work units are rows of ``inner`` results. Arguments: data, output, first taps and tap counts (int32), weights."""
    f = module.kernel(name)
    data, out, starts, counts, weights = (f.load_arg(PTR, i) for i in range(5))
    row = 4 * spec.inner
    width = lanes if spec.inner >= lanes else 1

    def unit(index: Reg) -> None:
        outer, position = f.op("udiv", index, spec.count), f.op("urem", index, spec.count)
        start, tap_count = (f.cast("zext", f.load("i32", f.gep(p, f.mul(position, 4)), align=4), I64)
                            for p in (starts, counts))  # fmt: skip
        first = f.add(f.mul(outer, spec.size), start)
        source, target = f.gep(data, f.mul(first, row)), f.gep(out, f.mul(index, row))
        factors = f.gep(weights, f.mul(position, 4 * spec.taps))

        def block(at: Reg, _: list[Reg]) -> list[Reg]:
            # The last block overlaps the one before it.
            column = f.mul(f.call("llvm.umin.i64", I64, at, const(spec.inner - width, I64)), 4)
            total = _weighted_sum(f, f.gep(source, column), factors, tap_count, row, width)
            f.store(total, f.gep(target, column))
            return []

        f.loop(spec.inner, [], block, width)

    f.for_range(f.arg("begin"), f.arg("end"), unit)
    f.ret()


def _weighted_sum(f: Function, source: Reg, factors: Reg, times: Reg, row: int, width: int) -> Reg:
    kind = vec(width, "float")

    def tap(k: Reg, now: list[Reg]) -> list[Reg]:
        weight = f.splat(f.load("float", f.gep(factors, f.mul(k, 4))), width)
        return [f.gep(now[0], row), call_intrinsic(f, "fma", weight, f.load(kind, now[0]), now[1])]

    return f.loop(times, [source, const(0, kind)], tap)[1]
