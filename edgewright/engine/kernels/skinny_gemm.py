"""Skinny gemm: few rows by a matrix computed at run time, read in place.

Packing the matrix reads and writes each element once, which pays off only if many rows reuse it. With a few rows the
product is bound by memory, so the kernel reads the matrix exactly once, in whichever direction is contiguous:

- Row-major: broadcast an activation and multiply it by a row of the matrix; accumulators are along the columns.
- Column-major (a transposed operand, as in q @ k.T): dot products along the contiguous depth, four columns at a time to
  hide the FMA latency, then horizontal sums by transposing the partial sums in registers.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, lane_count, vec
from edgewright.engine.codegen.epilogue import Epilogue, apply_epilogue
from edgewright.engine.codegen.vector import fma, transpose
from edgewright.engine.kernels.pack_operand import power_of_two_chunks


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
