"""Products of few rows with a matrix that the graph makes: packing it would take longer than the product."""

from __future__ import annotations

from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, lane_count, vec
from edgewright.engine.codegen.epilogue import Epilogue, apply_epilogue
from edgewright.engine.codegen.vector import fma, transpose
from edgewright.engine.kernels.pack_operand import power_of_two_chunks


@dataclass(frozen=True)
class SkinnyGemmSpec:
    """``rows`` by ``depth`` by ``columns``. Bytes: ``step`` and ``along`` between rows and columns of the matrix,
    ``data``, ``out`` and ``second`` between rows of the others. ``batch`` products have ``strides`` of data, matrix,
    output and second operand, for each dimension.
    """

    rows: int
    depth: int
    columns: int
    step: int
    along: int
    data: int
    out: int
    second: int
    batch: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    tail: Epilogue


def unit_columns(lanes: int, thin: SkinnyGemmSpec) -> int:
    """Columns of a unit."""
    return lanes * (4 if thin.rows <= 4 and lanes == 16 else 2) if thin.along == 4 else lanes


def units(lanes: int, thin: SkinnyGemmSpec) -> int:
    """Of one product."""
    return -(-thin.columns // unit_columns(lanes, thin))


def emit_skinny_gemm(module: Module, name: str, lanes: int, thin: SkinnyGemmSpec) -> None:
    """Units are blocks of columns, of one product after the other. Slots: data, matrix, output, second operand."""
    size, blocks = unit_columns(lanes, thin), units(lanes, thin)
    emit = _emit_row_major if thin.along == 4 else _emit_column_major
    whole = emit(module, lanes, thin, min(size, thin.columns))
    last = emit(module, lanes, thin, thin.columns - (blocks - 1) * size)
    f = module.kernel(name)
    pointers = [f.load_arg(PTR, i) for i in range(4)]

    def unit(index: Reg) -> None:
        column, places = f.op("urem", index, blocks), list(pointers)
        product = f.op("udiv", index, blocks)
        for d in range(len(thin.batch) - 1, -1, -1):
            here = f.op("urem", product, thin.batch[d])
            product = f.op("udiv", product, thin.batch[d])
            places = [f.gep(p, f.mul(here, s[d])) if s[d] else p for p, s in zip(places, thin.strides, strict=True)]
        moves = (0, size * thin.along, 4 * size, 4 * size)
        places = [f.gep(p, f.mul(column, m)) if m else p for p, m in zip(places, moves, strict=True)]
        made = [Reg(f"@{g.name}", PTR) for g in (last, whole)]
        chosen = made[0] if whole is last else f.select(f.compare("eq", column, blocks - 1), *made)
        f.call_void(chosen, *places)

    f.for_range(f.arg("begin"), f.arg("end"), unit)
    f.ret()


def _function(module: Module, name: str) -> tuple[Function, bool]:
    """A function of data, matrix, output and second operand; and whether it is still to be written."""
    if name in module.functions:
        return module.functions[name], False
    return module.function(name, [(PTR, n) for n in ("data", "matrix", "out", "second")]), True


def _store(f: Function, thin: SkinnyGemmSpec, row: int, start: int, total: Reg) -> None:
    """Sums of a row, from column ``start`` on."""
    second = lambda: f.load(total.type, f.arg("second"), row * thin.second + 4 * start)  # noqa: E731
    f.store(apply_epilogue(f, total, thin.tail, second), f.arg("out"), row * thin.out + 4 * start)


def _emit_row_major(module: Module, lanes: int, thin: SkinnyGemmSpec, columns: int) -> Function:
    """Columns lie side by side: a row of the matrix, times a number, is added to the sums."""
    f, new = _function(module, f"straight_{columns}")
    if not new:
        return f
    parts = power_of_two_chunks(columns, lanes)
    zeros = [const(0, vec(n, "float")) for _ in range(thin.rows) for _, n in parts]

    def step(_: Reg, now: list[Reg]) -> list[Reg]:
        data, matrix, *sums = now
        line = [f.load(vec(n, "float"), matrix, 4 * start) for start, n in parts]
        for r in range(thin.rows):
            x = f.load("float", data, r * thin.data)
            for j, w in enumerate(line):
                at = r * len(line) + j
                sums[at] = fma(f, f.splat(x, parts[j][1]), w, sums[at])
        return [f.gep(data, 4), f.gep(matrix, thin.step), *sums]

    sums = f.loop(thin.depth, [f.arg("data"), f.arg("matrix"), *zeros], step)[2:]
    for r in range(thin.rows):
        for (start, _), total in zip(parts, sums[r * len(parts) : (r + 1) * len(parts)], strict=True):
            _store(f, thin, r, start, total)
    f.ret()
    return f


def _emit_column_major(module: Module, lanes: int, thin: SkinnyGemmSpec, columns: int) -> Function:
    """Each column lies in a row: its elements are multiplied many at a time and summed at the end."""
    f, new = _function(module, f"turned_{columns}")
    if not new:
        return f
    for r in range(thin.rows):
        for start, n in power_of_two_chunks(columns, lanes):
            sums = []
            for first in range(start, start + n, 4):  # four columns at a time: as many sums hide the latency
                sums += _partial_dots(f, lanes, thin, r, first, min(4, start + n - first))
            _store(f, thin, r, start, _reduce_and_join(f, sums))
    f.ret()
    return f


def _partial_dots(f: Function, lanes: int, thin: SkinnyGemmSpec, row: int, first: int, together: int) -> list[Reg]:
    """Sums of products of a row with some columns; each still in several parts."""
    wide = next(n for n in (lanes, 8, 4, 2, 1) if n <= min(lanes, thin.depth))
    kind, whole = vec(wide, "float"), thin.depth // wide * wide

    def multiply(at: Reg, now: list[Reg], keep: int = 0) -> list[Reg]:
        """The first ``keep`` elements do not count."""
        offset = f.mul(at, 4)
        x = f.load(kind, f.gep(f.gep(f.arg("data"), offset), row * thin.data))
        if keep:
            listed = ", ".join(f"i1 {int(lane >= keep)}" for lane in range(wide))
            mask = Reg(f"<{listed}>", vec(wide, "i1"))
        made = []
        for c in range(together):
            w = f.load(kind, f.gep(f.gep(f.arg("matrix"), offset), (first + c) * thin.along))
            total = fma(f, x, w, now[c])
            made.append(f.select(mask, total, now[c]) if keep else total)
        return made

    sums = f.loop(whole, [const(0, kind)] * together, multiply, wide)
    if thin.depth > whole:
        sums = multiply(const(thin.depth - wide, I64), sums, wide - (thin.depth - whole))
    return sums


def _reduce_and_join(f: Function, sums: list[Reg]) -> Reg:
    """One vector of all sums, each added up: a power of two of them."""
    parts, wide = sums, lane_count(sums[0].type)
    while wide > max(len(parts), 1):
        wide //= 2
        parts = [f.op("fadd", f.shuffle(p, p, range(wide)), f.shuffle(p, p, range(wide, 2 * wide))) for p in parts]
    if len(parts) == 1:
        return parts[0]
    if wide < len(parts):  # fewer parts than sums: each is added up, and put in its place
        return _reduce_each(f, parts)
    turned = transpose(f, parts)
    while len(turned) > 1:
        turned = [f.op("fadd", a, b) for a, b in zip(turned[::2], turned[1::2], strict=True)]
    return turned[0]


def _reduce_each(f: Function, parts: list[Reg]) -> Reg:
    kind = vec(len(parts), "float")
    made = Reg("poison", kind)
    for i, p in enumerate(parts):
        while lane_count(p.type) > 1:
            half = lane_count(p.type) // 2
            p = f.op("fadd", f.shuffle(p, p, range(half)), f.shuffle(p, p, range(half, 2 * half)))
        made = f.emit(kind, f"insertelement {kind} {made}, float {p}, i32 {i}")
    return made
