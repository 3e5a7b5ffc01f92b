"""Bilinear resize: each output pixel is a weighted sum of four, with offsets and weights from tables. And a
one-dimensional filter over a dense tensor, for separable resizes and window means."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Operand, Reg, const, vec
from edgewright.engine.codegen.epilogue import Epilogue, apply_epilogue
from edgewright.engine.codegen.math_float64 import call_intrinsic
from edgewright.engine.codegen.requant import Affine, quantize_to_uint8
from edgewright.engine.kernels.channel_loop import byte_offset, for_each_channel_vector, vector_widths
from edgewright.ir.graph import Array

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
