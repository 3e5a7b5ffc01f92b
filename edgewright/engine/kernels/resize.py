"""Images between two sizes: each output pixel is a weighted sum of four."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Operand, Reg, vec
from edgewright.engine.codegen.epilogue import Epilogue, apply_epilogue
from edgewright.engine.codegen.requant import Affine, quantize_to_uint8
from edgewright.engine.kernels.channel_loop import byte_offset, for_each_channel_vector, vector_widths
from edgewright.ir.graph import Array

_ENTRY_BYTES = 24  # bytes: two offsets, two weights


@dataclass(frozen=True)
class ResizeSpec:
    """``across_first``: sums along rows are made before those of columns, as the reference rounds."""

    item: int
    columns: int
    channels: int
    out_row: int
    out_pixel: int
    across_first: bool
    tail: Epilogue = ()
    given: Affine | None = None
    made: Affine | None = None
    low: int = 0
    high: int = 255


def bilinear_table(places: tuple[Array, Array], weights: tuple[Array, Array], step: int) -> Array:
    """For each output along a dimension the bytes to its two inputs, and their weights."""
    made = np.zeros(len(places[0]), np.dtype([("at", np.int64, 2), ("weight", np.float32, 2)]))
    made["at"] = np.stack(places, 1) * step
    made["weight"] = np.stack(weights, 1)
    assert made.dtype.itemsize == _ENTRY_BYTES
    return made.view(np.uint8).reshape(-1)


def emit_resize(module: Module, name: str, lanes: int, resize: ResizeSpec) -> None:
    """Units are output rows of one image. Slots: data, output, the table of rows, of columns."""
    f = module.kernel(name)
    data, out, rows, columns = (f.load_arg(PTR, i) for i in range(4))

    def row(y: Reg) -> None:
        line = f.gep(out, f.mul(y, resize.out_row))
        (above, below), down = _load_entry(f, rows, y)
        sources = [f.gep(data, above), f.gep(data, below)]

        def pixel(x: Reg, _: list[Reg]) -> list[Reg]:
            (left, right), along = _load_entry(f, columns, x)
            four = [[f.gep(s, at) for at in (left, right)] for s in sources]
            place = f.gep(line, f.mul(x, resize.out_pixel))

            def vector(first: Operand, width: int, used: int) -> None:
                at = byte_offset(f, first, resize.item)
                result = _interpolate(f, resize, width, four, at, down, along)
                f.store_first(result, used, f.gep(place, at))

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
    four: list[list[Reg]],
    there: Operand,
    down: tuple[Reg, Reg],
    along: tuple[Reg, Reg],
) -> Reg:
    def load(at: Reg) -> Reg:
        if resize.given is None:
            return f.load(vec(width, "float"), at, there)
        return resize.given.real(f, f.load(vec(width, "i8"), at, there))

    def both(a: Reg, b: Reg, weights: tuple[Reg, Reg]) -> Reg:
        first, second = (f.splat(w, width) for w in weights)
        return f.op("fadd", f.op("fmul", a, first), f.op("fmul", b, second))

    (a, b), (c, d) = ((load(at) for at in line) for line in four)
    if resize.across_first:
        result = both(both(a, b, along), both(c, d, along), down)
    else:
        result = both(both(a, c, down), both(b, d, down), along)
    result = apply_epilogue(f, result, resize.tail)
    return result if resize.made is None else quantize_to_uint8(f, result, resize.made, resize.low, resize.high)
