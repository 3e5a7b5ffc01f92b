"""Attention by blocks of queries: scores, softmax and the product with values, while the scores are in the cache.

Keys and values are packed before, as other products' weights are. Scores of a block lie in the thread's scratch: a row
for each query, then, for each query again, one over the sum of its powers, as often as a panel of values is wide.
Shares are never divided: their products are, which are fewer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, vec
from edgewright.engine.codegen.epilogue import Epilogue, TensorStep
from edgewright.engine.codegen.math_float32 import exp2_nonpositive
from edgewright.engine.codegen.vector import Int8Dot, fast_max, int_max, to_float32
from edgewright.engine.isa import ISA
from edgewright.engine.kernels import gemm, int8_gemm
from edgewright.engine.kernels.row_reduce import reduce_lanes
from edgewright.engine.kernels.softmax import LOG2E

_ROWS_AT_ONCE = 4  # rows of scores: as many hide each other's latency


@dataclass(frozen=True)
class BatchStrides:
    """Bytes to the next matrix along each dimension of a batch, and from a row to the next."""

    batch: tuple[int, ...]
    strides: tuple[int, ...]
    row: int

    def at(self, f: Function, pointer: Reg, index: Reg) -> Reg:
        """Where matrix number ``index`` starts."""
        for n, stride in zip(reversed(self.batch), reversed(self.strides), strict=True):
            pointer = f.gep(pointer, f.mul(f.op("urem", index, n), stride)) if stride and n > 1 else pointer
            index = f.op("udiv", index, n) if n > 1 else index
        return pointer


@dataclass(frozen=True)
class AttentionSpec:
    """``queries`` by ``keys``, in tiles of at most ``largest`` queries; ``depth`` of both.

    ``factor``: queries and keys are bytes, and the sums of their products are so many times too small; else 0.
    ``safe``: queries all of whose keys are masked get zeros.
    """

    queries: int
    keys: int
    depth: int
    largest: int
    query: BatchStrides
    out: BatchStrides
    mask: BatchStrides | None
    key_panels: tuple[gemm.Panel, ...]
    value_panels: tuple[gemm.Panel, ...]
    tail: Epilogue  # of scores
    factor: float = 0.0
    safe: bool = False

    @property
    def tiles(self) -> int:
        return -(-self.queries // self.largest)

    @property
    def key_size(self) -> int:
        """Bytes of one matrix of packed keys."""
        return gemm.packed_size(self.key_panels, self.depth // 4 if self.factor else self.depth)

    @property
    def value_size(self) -> int:
        return gemm.packed_size(self.value_panels, self.keys)

    def pitch(self, isa: ISA) -> int:
        """Bytes from a row of scores to the next: whole vectors, and one more that stands for what is no key."""
        return isa.bytes * (-(-self.keys // isa.lanes) + 1)

    def width(self, isa: ISA) -> int:
        """Bytes of a query's factors."""
        return isa.bytes * max(len(p.widths) for p in self.value_panels)

    def scratch(self, isa: ISA) -> int:
        return self.largest * (self.pitch(isa) + self.width(isa))


def emit_attention(module: Module, name: str, isa: ISA, given: AttentionSpec) -> None:
    """Units are tiles of queries, of one matrix after the other. Slots: queries, packed keys, values, output, mask."""
    small, longer = divmod(given.queries, given.tiles)
    made = [_emit_tile(module, isa, given, size) for size in ((small + 1, small) if longer else (small,))]
    f = module.kernel(name)
    query, keys, values, out, mask = (f.load_arg(PTR, i) for i in range(5))

    def unit(index: Reg) -> None:
        place, matrix = f.op("urem", index, given.tiles), f.op("udiv", index, given.tiles)
        first = f.mul(place, small)
        chosen = Reg(f"@{made[-1].name}", PTR)
        if longer:
            first = f.op("add", first, f.call("llvm.umin.i64", I64, place, const(longer, I64)))
            chosen = f.select(f.compare("ult", place, longer), Reg(f"@{made[0].name}", PTR), chosen)
        rows = [(query, given.query), (out, given.out), (mask, given.mask or given.query)]
        here, there, beside = (f.gep(walk.at(f, p, matrix), f.mul(first, walk.row)) for p, walk in rows)
        packed = [f.gep(p, f.mul(matrix, size)) for p, size in ((keys, given.key_size), (values, given.value_size))]
        f.call_void(chosen, here, *packed, there, beside, f.arg("scratch"))

    f.for_range(f.arg("begin"), f.arg("end"), unit)
    f.ret()


def _emit_tile(module: Module, isa: ISA, given: AttentionSpec, size: int) -> Function:
    """``tile(query, keys, values, out, mask, scratch)`` of so many queries."""
    names = ("query", "keys", "values", "out", "mask", "scratch")
    f = module.function(f"attend_{size}", [(PTR, n) for n in names])
    pitch, width = given.pitch(isa), given.width(isa)
    query, keys, values, out, mask, scratch = (f.arg(n) for n in names)
    factors = f.gep(scratch, size * pitch)
    depth = given.depth // 4 if given.factor else given.depth

    def scores(panel: gemm.Panel) -> Function:
        window = gemm.Window((), depth, given.query.row)
        if given.factor:
            return _emit_int8_scores(module, isa, size, panel, window, pitch)
        beside = given.mask.row if given.mask else 0
        return gemm.emit_tile(module, size, panel, window, pitch, beside, given.tail, "score_")

    def products(panel: gemm.Panel) -> Function:
        window = gemm.Window((), given.keys, pitch)
        return gemm.emit_tile(module, size, panel, window, given.out.row, width, (TensorStep("mul"),), "product_")

    _for_each_panel(f, given.key_panels, depth, scores, [query, keys, scratch, mask], (0, 4, 4 if given.mask else 0))
    here = [scratch, factors]
    for rows, times in ((_ROWS_AT_ONCE, size // _ROWS_AT_ONCE), (size % _ROWS_AT_ONCE, 1)):
        if rows and times:
            here = _call_in_loop(f, _emit_softmax(module, isa, given, rows), times, here, (rows * pitch, rows * width))
    _for_each_panel(f, given.value_panels, given.keys, products, [scratch, values, out, factors], (0, 4, 0))
    f.ret()
    return f


def _call_in_loop(f: Function, function: Function, times: int, places: list[Reg], steps: tuple[int, ...]) -> list[Reg]:
    """A function so many times, on places so far apart."""

    def once(_: Reg, now: list[Reg]) -> list[Reg]:
        f.call_void(function, *now)
        return [f.gep(p, n) for p, n in zip(now, steps, strict=True)]

    return f.loop(times, places, once)


def _for_each_panel(f: Function, panels: Sequence[gemm.Panel], elements: int, tile: Callable[[gemm.Panel], Function],
                places: list[Reg], moves: tuple[int, int, int]) -> None:  # fmt: skip
    """``tile(data, weights, out, second)`` of all panels; ``moves``: how far a column moves all but the weights."""
    for panel, run in groupby(panels):
        weights = 4 * panel.columns * (elements + 1)
        steps = (moves[0] * panel.used, weights, moves[1] * panel.used, moves[2] * panel.used)
        places = _call_in_loop(f, tile(panel), len(list(run)), places, steps)


def _emit_int8_scores(module: Module, isa: ISA, size: int, panel: gemm.Panel, window: gemm.Window,
                      pitch: int) -> Function:  # fmt: skip
    """Sums of 32 bits; all of the panel's columns are stored."""
    f = module.function(
        f"score_{size}_{panel.columns}_{len(panel.widths)}", [(PTR, n) for n in ("data", "weights", "out", "second")]
    )
    start = 4 * panel.columns
    bias, at = [], 0
    for width in panel.widths:
        bias.append(f.load(vec(width, "i32"), f.arg("weights"), 4 * at, 4))
        at += width
    sums = int8_gemm.accumulate_tile(f, Int8Dot(f, isa), size, window, f.gep(f.arg("weights"), start), bias)
    for p in range(size):
        at = 0
        for total, width in zip(sums[p * len(bias) : (p + 1) * len(bias)], panel.widths, strict=True):
            f.store(total, f.arg("out"), p * pitch + 4 * at, 4)
            at += width
    f.ret()
    return f


def _emit_softmax(module: Module, isa: ISA, given: AttentionSpec, rows: int) -> Function:
    """``softmax(scores, factors)`` of some rows at a time: powers in their place, and one over their sums.

    Powers are within 3e-7 of the largest; of scores that are bytes' products, differences are exact before.
    """
    name = f"softmax_{rows}"
    if name in module.functions:
        return module.functions[name]
    f = module.function(name, [(PTR, "scores"), (PTR, "factors")])
    lanes, whole = isa.lanes, bool(given.factor)
    kind, real = vec(lanes, "i32" if whole else "float"), vec(lanes, "float")
    lines = [f.gep(f.arg("scores"), r * given.pitch(isa)) for r in range(rows)]
    tops = _row_maxima(f, isa, given, lines, kind)

    def powers(i: Reg, now: list[Reg]) -> list[Reg]:
        totals = []
        for line, top, total in zip(lines, tops, now, strict=True):
            x = f.load(kind, f.gep(line, i))
            less = to_float32(f, f.op("sub", x, top)) if whole else f.op("fsub", x, top)
            made = exp2_nonpositive(f, f.op("fmul", less, const(LOG2E * (given.factor or 1), real)))
            f.store(made, f.gep(line, i))
            totals.append(f.op("fadd", total, made))
        return totals

    length = -(-given.keys // lanes) * isa.bytes
    for r, sums in enumerate(f.loop(length, [const(0, real)] * rows, powers, isa.bytes)):
        total = reduce_lanes(f, sums, lambda a, b: f.op("fadd", a, b))
        inverse = f.op("fdiv", const(1, "float"), total)
        if given.safe:
            inverse = f.select(f.compare("oeq", total, const(0, "float")), const(0, "float"), inverse)
        inverse = f.splat(inverse, lanes)
        for at in range(0, given.width(isa), isa.bytes):
            f.store(inverse, f.arg("factors"), r * given.width(isa) + at)
    f.ret()
    return f


def _row_maxima(f: Function, isa: ISA, given: AttentionSpec, lines: list[Reg], kind: str) -> list[Reg]:
    """Of each line, in all lanes; what lies behind a line is made as low as can be before."""
    whole = bool(given.factor)
    none = const(-(1 << 30) if whole else float("-inf"), kind)  # no sum of bytes' products is as low
    for line in lines:
        f.store(none, line, 4 * given.keys)

    def most(a: Reg, b: Reg) -> Reg:
        return int_max(f, a, b) if whole else fast_max(f, a, b)

    def greater(i: Reg, now: list[Reg]) -> list[Reg]:
        return [most(n, f.load(kind, f.gep(line, i))) for n, line in zip(now, lines, strict=True)]

    length = -(-given.keys // isa.lanes) * isa.bytes
    found = [reduce_lanes(f, x, most) for x in f.loop(length, [none] * len(lines), greater, isa.bytes)]
    if given.safe and not whole:
        found = [f.select(f.compare("oeq", x, const(-math.inf, "float")), const(0, "float"), x) for x in found]
    return [f.splat(x, isa.lanes) for x in found]
