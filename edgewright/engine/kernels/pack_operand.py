"""Packs a gemm operand computed at run time into panels, so that the micro-kernels for constant weights can read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, vec
from edgewright.engine.codegen.requant import Affine
from edgewright.engine.codegen.vector import Int8Dot, transpose
from edgewright.engine.isa import ISA
from edgewright.engine.kernels.gemm import Panel


@dataclass(frozen=True)
class PackSpec:
    """``batch`` matrices of ``depth`` rows in ``panels``; ``step`` and ``col_stride`` are strides in bytes.

    ``strides`` are those of the ``batch`` dimensions. ``affine``: the operand is 8-bit and is dequantized. With
    ``zero`` the operand stays int8, four bytes per element; since sum((x - zero) * w) = sum(x * w) - zero * sum(w),
    the bias row holds -zero * sum(w), the zero-point correction for the other operand.
    """

    batch: tuple[int, ...]
    strides: tuple[int, ...]
    depth: int
    step: int
    col_stride: int
    panels: tuple[Panel, ...]
    affine: Affine | None = None
    zero: int | None = None

    def size(self, panel: Panel) -> int:
        """Size of a packed panel in bytes, including the bias row, which is zero."""
        return 4 * panel.columns * (self.depth + 1)

    @property
    def matrix(self) -> int:
        return sum(self.size(p) for p in self.panels)


def emit_pack_operand(module: Module, name: str, isa: ISA, packing: PackSpec) -> None:
    """Work units are panels, matrix by matrix. Arguments: matrices, packed panels."""
    functions = {panel: _emit_panel(module, isa, packing, panel) for panel in dict.fromkeys(packing.panels)}
    f = module.kernel(name)
    source, target = f.load_arg(PTR, 0), f.load_arg(PTR, 1)
    count, first, rest = len(packing.panels), packing.panels[0], packing.panels[-1]

    def unit(index: Reg) -> None:
        panel, matrix = f.op("urem", index, count), f.op("udiv", index, count)
        panel_target = f.gep(target, f.add(f.mul(matrix, packing.matrix), f.mul(panel, packing.size(first))))
        panel_source = f.gep(_matrix_pointer(f, packing, source, matrix), f.mul(panel, first.used * packing.col_stride))
        full_function, last = (Reg(f"@{functions[p].name}", PTR) for p in (first, rest))
        function = full_function if first == rest else f.select(f.compare("eq", panel, count - 1), last, full_function)
        f.call_void(function, panel_source, panel_target)

    f.for_range(f.arg("begin"), f.arg("end"), unit)
    f.ret()


def _matrix_pointer(f: Function, packing: PackSpec, source: Reg, index: Reg) -> Reg:
    """The address of a matrix of the batch."""
    for n, stride in zip(reversed(packing.batch), reversed(packing.strides), strict=True):
        source = f.gep(source, f.mul(f.op("urem", index, n), stride))
        index = f.op("udiv", index, n)
    return source


def power_of_two_chunks(count: int, max_length: int) -> list[tuple[int, int]]:
    """Split ``count`` into chunks (start, length) whose lengths are powers of two.

    >>> power_of_two_chunks(21, 16)
    [(0, 16), (16, 4), (20, 1)]
    """
    chunks, start = [], 0
    while start < count:
        length = min(max_length, 1 << (count - start).bit_length() - 1)
        chunks.append((start, length))
        start += length
    return chunks


def _emit_panel(module: Module, isa: ISA, packing: PackSpec, panel: Panel) -> Function:
    """Emit ``pack(source, target)``; it reads no columns beyond the panel."""
    f = module.function(f"pack_{panel.columns}_{panel.used}", [(PTR, "source"), (PTR, "target")])
    start = 0
    for width in panel.widths:
        f.store(const(0, vec(width, "float")), f.arg("target"), 4 * start)
        start += width
    packed = f.gep(f.arg("target"), 4 * panel.columns)
    item = 4 if packing.affine is None and packing.zero is None else 1
    if packing.zero is not None:
        (_pack_int8_columns if packing.step == 1 else _pack_int8_scalar)(f, isa, packing, panel, packed)
    elif packing.col_stride == item:
        _pack_rows(f, isa.lanes, packing, panel, packed)
    elif packing.step == item == 4 and packing.depth >= 4:
        _pack_transposed(f, isa.lanes, packing, panel, packed)
    else:
        _pack_scalar(f, packing, panel, packed)
    f.ret()
    return f


def _pack_rows(f: Function, lanes: int, packing: PackSpec, panel: Panel, packed: Reg) -> None:
    def row(_: Reg, now: list[Reg]) -> list[Reg]:
        for start, length in power_of_two_chunks(panel.used, lanes):
            f.store(_load_float32(f, packing, now[0], length, start * packing.col_stride), now[1], 4 * start)
        return [f.gep(now[0], packing.step), f.gep(now[1], 4 * panel.columns)]

    f.loop(packing.depth, [f.arg("source"), packed], row)


def _load_float32(f: Function, packing: PackSpec, address: Reg, length: int, offset: int = 0) -> Reg:
    """Load ``length`` elements as float32, dequantized if 8-bit."""
    if packing.affine is None:
        return f.load(vec(length, "float"), address, offset)
    return packing.affine.real(f, f.load(vec(length, "i8"), address, offset))


def _pack_transposed(f: Function, lanes: int, packing: PackSpec, panel: Panel, packed: Reg) -> None:
    """Transpose square tiles in registers; the last tile overlaps the one before it."""
    side = next(n for n in (lanes, 8, 4) if n <= min(lanes, packing.depth))

    def square(at: Reg) -> None:
        for start in range(0, panel.used, side):
            width = min(side, panel.used - start)
            rows = [f.load(vec(side, "float"), f.gep(f.arg("source"), f.mul(at, 4)), (start + i) * packing.col_stride)
                    for i in range(width)]  # fmt: skip
            columns = transpose(f, [*rows, *rows[:1] * (side - width)])
            for i, x in enumerate(columns):
                row_address = f.gep(packed, f.mul(at, 4 * panel.columns))
                f.store_first(x, width, row_address, 4 * (i * panel.columns + start))

    def once(i: Reg, _: list[Reg]) -> list[Reg]:
        square(i)
        return []

    f.loop(packing.depth // side * side, [], once, side)
    if packing.depth % side:
        square(const(packing.depth - side, I64))


def _pack_scalar(f: Function, packing: PackSpec, panel: Panel, packed: Reg) -> None:
    def column(_: Reg, now: list[Reg]) -> list[Reg]:
        f.store(_load_float32(f, packing, now[0], 1), now[1])
        return [f.gep(now[0], packing.col_stride), f.gep(now[1], 4)]

    def row(_: Reg, now: list[Reg]) -> list[Reg]:
        f.loop(panel.used, now, column)
        return [f.gep(now[0], packing.step), f.gep(now[1], 4 * panel.columns)]

    f.loop(packing.depth, [f.arg("source"), packed], row)


_SIGN_BITS = -0x7F7F7F80  # 0x80808080 as int32: flips the sign bit of four bytes


def _pack_int8_columns(f: Function, isa: ISA, packing: PackSpec, panel: Panel, packed: Reg) -> None:
    """Columns are contiguous: transpose square tiles of 4-byte elements in registers."""
    assert packing.zero is not None
    side = next(n for n in (isa.lanes, 8, 4) if n <= isa.lanes and packing.depth % n == 0)
    kind, dots = vec(side, "i32"), Int8Dot(f, isa)
    zero = dots.data(const(packing.zero, vec(4 * side, "i8")))
    for start in range(0, panel.used, side):
        width = min(side, panel.used - start)

        def square(at: Reg, now: list[Reg], start: int = start, width: int = width) -> list[Reg]:
            source, total = f.gep(f.arg("source"), f.mul(at, 4)), now[0]
            loaded = [f.load(kind, source, (start + i) * packing.col_stride) for i in range(width)]
            rows = [f.op("xor", x, _SIGN_BITS) for x in loaded]
            for i, x in enumerate(transpose(f, [*rows, *rows[:1] * (side - width)])):
                f.store_first(x, width, f.gep(packed, f.mul(at, 4 * panel.columns)), 4 * (i * panel.columns + start))
                total = dots.add(total, zero, dots.weights(f.bitcast(x, vec(4 * side, "i8"))))
            return [total]

        total = f.loop(packing.depth, [const(0, kind)], square, side)[0]
        f.store_first(f.op("sub", const(0, kind), total), width, f.arg("target"), 4 * start)


def _pack_int8_scalar(f: Function, isa: ISA, packing: PackSpec, panel: Panel, packed: Reg) -> None:
    """Arbitrary strides: byte by byte."""
    assert packing.zero is not None

    def column(_: Reg, now: list[Reg]) -> list[Reg]:
        def four(_: Reg, inner: list[Reg]) -> list[Reg]:
            source, target, total = inner
            packed = const(0, "i32")
            for i in range(4):
                signed = f.op("xor", f.load("i8", source, i * packing.step), -128)
                total = f.op("add", total, f.cast("sext", signed, "i32"))
                packed = f.op("or", packed, f.op("shl", f.cast("zext", signed, "i32"), 8 * i))
            f.store(packed, target)
            return [f.gep(source, 4 * packing.step), f.gep(target, 4 * panel.columns), total]

        total = f.loop(packing.depth, [now[0], now[1], const(0, "i32")], four)[2]
        f.store(f.op("mul", total, -packing.zero), now[2])  # type: ignore[operator]
        return [f.gep(now[0], packing.col_stride), f.gep(now[1], 4), f.gep(now[2], 4)]

    f.loop(panel.used, [f.arg("source"), packed, f.arg("target")], column)


def merge_batch_dims(batch: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """Collapse adjacent batch dimensions that are contiguous for every operand; at least one dimension remains.

    >>> merge_batch_dims([2, 3], [[12, 4], [24, 8]])
    ([6], [[4], [8]])
    """
    kept_dims = [i for i, n in enumerate(batch) if n != 1] or [-1]
    sizes = [batch[i] for i in kept_dims] if batch else [1]
    steps = [[s[i] for i in kept_dims] if batch else [0] for s in strides]
    for i in range(len(sizes) - 2, -1, -1):
        if all(s[i] == s[i + 1] * sizes[i + 1] for s in steps):
            sizes[i] *= sizes.pop(i + 1)
            for s in steps:
                del s[i]
    return sizes, steps
