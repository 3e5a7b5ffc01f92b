"""Matrix products with a second operand that is computed at run time: packed into panels, or read in place by a few
rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, lane_count, vec
from edgewright.engine.codegen.epilogue import Epilogue, apply_epilogue, reads_second_operand
from edgewright.engine.codegen.requant import Affine
from edgewright.engine.codegen.vector import Int8Dot, fma, transpose
from edgewright.engine.isa import ISA
from edgewright.engine.kernels.elementwise import first_lanes_mask, masked_load, masked_store
from edgewright.engine.kernels.gemm import Panel, max_tile_pixels
from edgewright.engine.kernels.tile_loops import for_each_tile, tile_sizes

# --------------------------------------------------------------------------------------------------------- pack operand

# Packs a gemm operand computed at run time into panels, so that the micro-kernels for constant weights can read it.


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


# ------------------------------------------------------------------------------------------------------- dynamic matmul

# Matmul of two run-time operands with dynamic shapes.
#
# The second operand is packed first into panels, one row per depth element, zero-padded to full vectors. Masked loads
# and stores keep all accesses within the tensors.

PANEL_VECTORS = 2  # per panel


def panel_columns(isa: ISA) -> int:
    return PANEL_VECTORS * isa.lanes


def max_tile_rows(isa: ISA) -> int:
    return max_tile_pixels(isa, PANEL_VECTORS)


@dataclass(frozen=True)
class MatmulShape:
    """The shape of one matrix product."""

    rows: int
    depth: int
    columns: int

    def panels(self, isa: ISA) -> int:
        return -(-self.columns // panel_columns(isa))

    def panel(self, isa: ISA) -> int:
        """Size of a packed panel in bytes; the depth is rounded up to full transposition tiles."""
        return 4 * panel_columns(isa) * (-(-self.depth // isa.lanes) * isa.lanes)

    def packed(self, isa: ISA) -> int:
        return self.panels(isa) * self.panel(isa)


def emit_dynamic_packing(module: Module, name: str, isa: ISA, contiguous: str) -> None:
    """Work units are panels, matrix by matrix. ``contiguous``: ``rows``, ``columns`` or ``neither``.

    Arguments: matrices, panels, depth, columns, strides of rows, columns, matrices, panels; panels per matrix.
    """
    f, lanes = module.kernel(name), isa.lanes
    source, target = f.load_arg(PTR, 0), f.load_arg(PTR, 1)
    depth, columns, step, col_stride, matrix, panel, panels = (f.load_arg(I64, i) for i in range(2, 9))

    def unit(index: Reg) -> None:
        matrix_index, panel_index = f.op("udiv", index, panels), f.op("urem", index, panels)
        panel_target, matrix_source = (
            f.gep(target, f.op("mul", index, panel)),
            f.gep(source, f.op("mul", matrix_index, matrix)),
        )
        start = f.mul(panel_index, panel_columns(isa))
        for v in range(PANEL_VECTORS):
            column = f.add(start, v * lanes)
            packed = f.gep(panel_target, 4 * v * lanes)
            if contiguous == "columns":
                _pack_dynamic_columns(f, isa, (matrix_source, packed, column), (depth, columns, col_stride))
            elif contiguous == "rows":
                _pack_dynamic_rows(f, isa, (matrix_source, packed, column), (depth, columns, step))
            else:
                _pack_strided(f, isa, (matrix_source, packed, column), (depth, columns, step, col_stride))

    f.for_range(f.arg("begin"), f.arg("end"), unit)
    f.ret()


def _pack_dynamic_rows(f: Function, isa: ISA, pointers: tuple[Reg, Reg, Reg], numbers: tuple[Reg, Reg, Reg]) -> None:
    (source, packed, column), (depth, columns, step) = pointers, numbers
    mask = first_lanes_mask(f, f.op("sub", columns, column), isa.lanes)
    start = f.gep(source, f.mul(column, 4))

    def row(k: Reg) -> None:
        x = masked_load(f, vec(isa.lanes, "float"), f.gep(start, f.op("mul", k, step)), mask)
        f.store(x, f.gep(packed, f.mul(k, 4 * panel_columns(isa))))

    f.for_range(const(0, I64), depth, row)


def _pack_dynamic_columns(f: Function, isa: ISA, pointers: tuple[Reg, Reg, Reg], numbers: tuple[Reg, Reg, Reg]) -> None:
    """Transpose square tiles in registers; missing columns are 0."""
    (source, packed, column), (depth, columns, col_stride) = pointers, numbers
    lanes, kind = isa.lanes, vec(isa.lanes, "float")

    def square(k: Reg) -> None:
        mask, rows = first_lanes_mask(f, f.op("sub", depth, k), lanes), []
        for i in range(lanes):
            index = f.add(column, i)
            in_range = f.splat(f.compare("slt", index, columns), lanes)
            valid = f.op("and", mask, in_range)
            rows.append(masked_load(f, kind, f.gep(f.gep(source, f.op("mul", index, col_stride)), f.mul(k, 4)), valid))
        for i, x in enumerate(transpose(f, rows)):
            f.store(x, f.gep(packed, f.mul(f.add(k, i), 4 * panel_columns(isa))))

    f.for_range(const(0, I64), depth, square, lanes)


def _pack_strided(f: Function, isa: ISA, pointers: tuple[Reg, Reg, Reg], numbers: tuple[Reg, Reg, Reg, Reg]) -> None:
    (source, packed, column), (depth, columns, step, col_stride) = pointers, numbers

    def row(k: Reg) -> None:
        row_address = f.gep(packed, f.mul(k, 4 * panel_columns(isa)))
        f.store(const(0, vec(isa.lanes, "float")), row_address)
        count = f.call("llvm.smin.i64", I64, f.op("sub", columns, column), const(isa.lanes, I64))

        def element(i: Reg) -> None:
            offset = f.op("add", f.op("mul", k, step), f.op("mul", f.op("add", column, i), col_stride))
            f.store(f.load("float", f.gep(source, offset)), f.gep(row_address, f.mul(i, 4)))

        f.for_range(const(0, I64), count, element)

    f.for_range(const(0, I64), depth, row)


# A tile's arguments after its pointers: depth, row strides of data, output and second operand, remaining columns.
_TILE_PARAMS = ("depth", "data_step", "out_step", "second_step", "left")


def emit_dynamic_matmul(module: Module, name: str, isa: ISA, epilogue: Epilogue) -> None:
    """Work units are tiles of rows, matrix by matrix.

    Arguments: data, panels, output, second operand; rows, depth, columns; row strides of data, output and second
    operand, then their matrix strides and that of the panels; panel size in bytes; tiles and panels per matrix.
    """
    tile_functions = {size: _emit_tile(module, isa, size, epilogue) for size in tile_sizes(max_tile_rows(isa))}
    f, wide = module.kernel(name), panel_columns(isa)
    addresses = [f.load_arg(PTR, i) for i in range(4)]
    rows, depth, columns, *rest = (f.load_arg(I64, i) for i in range(4, 17))
    steps, (per_data, per_out, per_second, per_packed), (panel, tiles, panels) = rest[:3], rest[3:7], rest[7:]

    def unit(index: Reg) -> None:
        product, tile = f.op("udiv", index, tiles), f.op("urem", index, tiles)
        moves = (per_data, per_packed, per_out, per_second)
        data, packed, out, second = (f.gep(a, f.op("mul", product, m)) for a, m in zip(addresses, moves, strict=True))

        def multiply_panel(panel_index: Reg) -> None:
            start = f.mul(panel_index, wide)
            left, column_offset = f.op("sub", columns, start), f.mul(start, 4)
            weights = f.gep(packed, f.op("mul", panel_index, panel))

            def call(size: int, row: Reg) -> None:
                row_pointers = [f.gep(p, f.op("mul", row, s)) for p, s in zip((data, out, second), steps, strict=True)]
                pointers = (
                    row_pointers[0],
                    weights,
                    f.gep(row_pointers[1], column_offset),
                    f.gep(row_pointers[2], column_offset),
                )
                f.call_void(tile_functions[size], *pointers, depth, *steps, left)

            for_each_tile(f, rows, max_tile_rows(isa), tile, call)

        f.for_range(const(0, I64), panels, multiply_panel)

    f.for_range(f.arg("begin"), f.arg("end"), unit)
    f.ret()


def _emit_tile(module: Module, isa: ISA, rows: int, epilogue: Epilogue) -> Function:
    names = ("data", "weights", "out", "second")
    f = module.function(f"open_{rows}", [*((PTR, n) for n in names), *((I64, n) for n in _TILE_PARAMS)])
    kind = vec(isa.lanes, "float")
    offsets = [f.mul(f.arg("data_step"), r) if r else const(0, I64) for r in range(rows)]

    def multiply(_: Reg, now: list[Reg]) -> list[Reg]:
        data, weights, *sums = now
        weight_row = [f.load(kind, weights, 4 * v * isa.lanes) for v in range(PANEL_VECTORS)]
        for r in range(rows):
            x = f.splat(f.load("float", f.gep(data, offsets[r])), isa.lanes)
            for v, w in enumerate(weight_row):
                sums[r * PANEL_VECTORS + v] = fma(f, x, w, sums[r * PANEL_VECTORS + v])
        return [f.gep(data, 4), f.gep(weights, 4 * panel_columns(isa)), *sums]

    zeros = [const(0, kind)] * (rows * PANEL_VECTORS)
    sums = f.loop(f.arg("depth"), [f.arg("data"), f.arg("weights"), *zeros], multiply)[2:]
    masks = [first_lanes_mask(f, f.add(f.arg("left"), -v * isa.lanes), isa.lanes) for v in range(PANEL_VECTORS)]
    for r in range(rows):
        out, second = (f.gep(f.arg(n), f.mul(f.arg(f"{n}_step"), r)) if r else f.arg(n) for n in ("out", "second"))
        for v, mask in enumerate(masks):
            second_value = (
                masked_load(f, kind, f.gep(second, 4 * v * isa.lanes), mask) if reads_second_operand(epilogue) else None
            )
            load = None if second_value is None else lambda b=second_value: b
            total = apply_epilogue(f, sums[r * PANEL_VECTORS + v], epilogue, load)
            masked_store(f, total, f.gep(out, 4 * v * isa.lanes), mask)
    f.ret()
    return f


# ---------------------------------------------------------------------------------------------------------- skinny gemm

# Skinny gemm: few rows by a matrix computed at run time, read in place.
#
# Packing the matrix reads and writes each element once, which pays off only if many rows reuse it. With a few rows the
# product is bound by memory, so the kernel reads the matrix exactly once, in whichever direction is contiguous:
#
# - Row-major: broadcast an activation and multiply it by a row of the matrix; accumulators are along the columns.
# - Column-major (a transposed operand, as in q @ k.T): dot products along the contiguous depth, four columns at a time
#   to
#   hide the FMA latency, then horizontal sums by transposing the partial sums in registers.


@dataclass(frozen=True)
class SkinnyGemmSpec:
    """``rows`` by ``depth`` by ``columns``. Strides in bytes: ``step`` and ``col_stride`` between rows and columns of
    the matrix, ``data``, ``out`` and ``residual`` between rows of the other operands. ``strides``: of the ``batch``
    dimensions, for data, matrix, output and residual.
    """

    rows: int
    depth: int
    columns: int
    step: int
    col_stride: int
    data: int
    out: int
    residual: int
    batch: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    epilogue: Epilogue


def unit_columns(lanes: int, spec: SkinnyGemmSpec) -> int:
    """Columns per work unit."""
    return lanes * (4 if spec.rows <= 4 and lanes == 16 else 2) if spec.col_stride == 4 else lanes


def units(lanes: int, spec: SkinnyGemmSpec) -> int:
    """Work units of one matrix product."""
    return -(-spec.columns // unit_columns(lanes, spec))


def emit_skinny_gemm(module: Module, name: str, lanes: int, spec: SkinnyGemmSpec) -> None:
    """Work units are blocks of columns, matrix by matrix. Arguments: data, matrix, output, second operand."""
    size, blocks = unit_columns(lanes, spec), units(lanes, spec)
    emit = _emit_row_major if spec.col_stride == 4 else _emit_column_major
    full_block = emit(module, lanes, spec, min(size, spec.columns))
    last = emit(module, lanes, spec, spec.columns - (blocks - 1) * size)
    f = module.kernel(name)
    pointers = [f.load_arg(PTR, i) for i in range(4)]

    def unit(index: Reg) -> None:
        column, addresses = f.op("urem", index, blocks), list(pointers)
        product = f.op("udiv", index, blocks)
        for d in range(len(spec.batch) - 1, -1, -1):
            position = f.op("urem", product, spec.batch[d])
            product = f.op("udiv", product, spec.batch[d])
            addresses = [
                f.gep(p, f.mul(position, s[d])) if s[d] else p for p, s in zip(addresses, spec.strides, strict=True)
            ]
        moves = (0, size * spec.col_stride, 4 * size, 4 * size)
        addresses = [f.gep(p, f.mul(column, m)) if m else p for p, m in zip(addresses, moves, strict=True)]
        functions = [Reg(f"@{g.name}", PTR) for g in (last, full_block)]
        function = functions[0] if full_block is last else f.select(f.compare("eq", column, blocks - 1), *functions)
        f.call_void(function, *addresses)

    f.for_range(f.arg("begin"), f.arg("end"), unit)
    f.ret()


def _function(module: Module, name: str) -> tuple[Function, bool]:
    """The function of this name, and whether it is new and must be emitted."""
    if name in module.functions:
        return module.functions[name], False
    return module.function(name, [(PTR, n) for n in ("data", "matrix", "out", "second")]), True


def _store(f: Function, spec: SkinnyGemmSpec, row: int, start: int, total: Reg) -> None:
    """Apply the epilogue to a row's sums and store them from column ``start`` on."""
    second = lambda: f.load(total.type, f.arg("second"), row * spec.residual + 4 * start)  # noqa: E731
    f.store(apply_epilogue(f, total, spec.epilogue, second), f.arg("out"), row * spec.out + 4 * start)


def _emit_row_major(module: Module, lanes: int, spec: SkinnyGemmSpec, columns: int) -> Function:
    """Rows are contiguous: accumulate broadcast activations times matrix rows."""
    f, new = _function(module, f"straight_{columns}")
    if not new:
        return f
    parts = power_of_two_chunks(columns, lanes)
    zeros = [const(0, vec(n, "float")) for _ in range(spec.rows) for _, n in parts]

    def step(_: Reg, now: list[Reg]) -> list[Reg]:
        data, matrix, *sums = now
        row = [f.load(vec(n, "float"), matrix, 4 * start) for start, n in parts]
        for r in range(spec.rows):
            x = f.load("float", data, r * spec.data)
            for j, w in enumerate(row):
                at = r * len(row) + j
                sums[at] = fma(f, f.splat(x, parts[j][1]), w, sums[at])
        return [f.gep(data, 4), f.gep(matrix, spec.step), *sums]

    sums = f.loop(spec.depth, [f.arg("data"), f.arg("matrix"), *zeros], step)[2:]
    for r in range(spec.rows):
        for (start, _), total in zip(parts, sums[r * len(parts) : (r + 1) * len(parts)], strict=True):
            _store(f, spec, r, start, total)
    f.ret()
    return f


def _emit_column_major(module: Module, lanes: int, spec: SkinnyGemmSpec, columns: int) -> Function:
    """Columns are contiguous: vector dot products along the depth, summed across lanes at the end."""
    f, new = _function(module, f"turned_{columns}")
    if not new:
        return f
    for r in range(spec.rows):
        for start, n in power_of_two_chunks(columns, lanes):
            sums = []
            for first in range(start, start + n, 4):  # four columns at a time: as many sums hide the latency
                sums += _partial_dots(f, lanes, spec, r, first, min(4, start + n - first))
            _store(f, spec, r, start, _reduce_and_join(f, sums))
    f.ret()
    return f


def _partial_dots(f: Function, lanes: int, spec: SkinnyGemmSpec, row: int, first: int, columns: int) -> list[Reg]:
    """Dot products of a row with some columns, each as a vector of partial sums."""
    wide = next(n for n in (lanes, 8, 4, 2, 1) if n <= min(lanes, spec.depth))
    kind, vectorized = vec(wide, "float"), spec.depth // wide * wide

    def multiply(at: Reg, now: list[Reg], covered: int = 0) -> list[Reg]:
        """Accumulate one vector; the first ``covered`` lanes, which the loop has processed, are masked out."""
        offset = f.mul(at, 4)
        x = f.load(kind, f.gep(f.gep(f.arg("data"), offset), row * spec.data))
        if covered:
            listed = ", ".join(f"i1 {int(lane >= covered)}" for lane in range(wide))
            mask = Reg(f"<{listed}>", vec(wide, "i1"))
        totals = []
        for c in range(columns):
            w = f.load(kind, f.gep(f.gep(f.arg("matrix"), offset), (first + c) * spec.col_stride))
            total = fma(f, x, w, now[c])
            totals.append(f.select(mask, total, now[c]) if covered else total)
        return totals

    sums = f.loop(vectorized, [const(0, kind)] * columns, multiply, wide)
    if spec.depth > vectorized:
        sums = multiply(const(spec.depth - wide, I64), sums, wide - (spec.depth - vectorized))
    return sums


def _reduce_and_join(f: Function, sums: list[Reg]) -> Reg:
    """Reduce a power-of-two number of vectors across lanes, into one vector of their sums."""
    parts, wide = sums, lane_count(sums[0].type)
    while wide > max(len(parts), 1):
        wide //= 2
        parts = [f.op("fadd", f.shuffle(p, p, range(wide)), f.shuffle(p, p, range(wide, 2 * wide))) for p in parts]
    if len(parts) == 1:
        return parts[0]
    if wide < len(parts):  # too few lanes for a square transpose
        return _reduce_each(f, parts)
    columns = transpose(f, parts)
    while len(columns) > 1:
        columns = [f.op("fadd", a, b) for a, b in zip(columns[::2], columns[1::2], strict=True)]
    return columns[0]


def _reduce_each(f: Function, parts: list[Reg]) -> Reg:
    kind = vec(len(parts), "float")
    result = Reg("poison", kind)
    for i, p in enumerate(parts):
        while lane_count(p.type) > 1:
            half = lane_count(p.type) // 2
            p = f.op("fadd", f.shuffle(p, p, range(half)), f.shuffle(p, p, range(half, 2 * half)))
        result = f.emit(kind, f"insertelement {kind} {result}, float {p}, i32 {i}")
    return result
