"""Fused scaled dot-product attention, blocked by queries.

A tile of queries computes its rows of scores Q K^T into the thread's scratch, turns them into exp(score - max), and
multiplies by V, while the scores are in cache; the full score matrix is never stored. As in FlashAttention, the
division by the softmax denominator is deferred to the output, which has fewer elements than the scores. Unlike it, keys
are not blocked: a tile sees complete rows of scores, so the maximum is known before the exponentials and no online
rescaling is needed (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al.,
"FlashAttention", 2022). Scratch holds one row of scores per query, then per query 1 / sum, replicated over the width of
a panel of values so that the gemm's epilogue can load it as a second operand. K and V are packed like weights.
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
from edgewright.engine.kernels.norm_softmax import LOG2E, reduce_lanes

_ROWS_AT_ONCE = 4  # rows of scores interleaved to hide latency


@dataclass(frozen=True)
class BatchStrides:
    """Strides of a batch of matrices: of each batch dimension, and between rows, in bytes."""

    batch: tuple[int, ...]
    strides: tuple[int, ...]
    row: int

    def at(self, f: Function, pointer: Reg, index: Reg) -> Reg:
        """The address of matrix ``index``."""
        for n, stride in zip(reversed(self.batch), reversed(self.strides), strict=True):
            pointer = f.gep(pointer, f.mul(f.op("urem", index, n), stride)) if stride and n > 1 else pointer
            index = f.op("udiv", index, n) if n > 1 else index
        return pointer


@dataclass(frozen=True)
class AttentionSpec:
    """``queries`` by ``keys`` of ``depth`` elements, in tiles of at most ``largest`` queries.

    ``factor``: the scale of int8 scores if queries and keys are int8; else 0. ``safe``: a query whose keys are all
    masked yields zeros, not NaN.
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
    epilogue: Epilogue  # of scores
    factor: float = 0.0
    safe: bool = False

    @property
    def tiles(self) -> int:
        return -(-self.queries // self.largest)

    @property
    def key_size(self) -> int:
        """Size of one packed key matrix in bytes."""
        return gemm.packed_size(self.key_panels, self.depth // 4 if self.factor else self.depth)

    @property
    def value_size(self) -> int:
        return gemm.packed_size(self.value_panels, self.keys)

    def pitch(self, isa: ISA) -> int:
        """Stride between rows of scores in bytes: full vectors, and one more for padding."""
        return isa.bytes * (-(-self.keys // isa.lanes) + 1)

    def width(self, isa: ISA) -> int:
        """Size of a query's replicated 1 / sum in bytes."""
        return isa.bytes * max(len(p.widths) for p in self.value_panels)

    def scratch(self, isa: ISA) -> int:
        return self.largest * (self.pitch(isa) + self.width(isa))


def emit_attention(module: Module, name: str, isa: ISA, spec: AttentionSpec) -> None:
    """Work units are tiles of queries, matrix by matrix. Arguments: queries, packed keys and values, output, mask."""
    small, longer = divmod(spec.queries, spec.tiles)
    tiles = [_emit_tile(module, isa, spec, size) for size in ((small + 1, small) if longer else (small,))]
    f = module.kernel(name)
    query, keys, values, out, mask = (f.load_arg(PTR, i) for i in range(5))

    def unit(index: Reg) -> None:
        tile_index, matrix = f.op("urem", index, spec.tiles), f.op("udiv", index, spec.tiles)
        first = f.mul(tile_index, small)
        tile_function = Reg(f"@{tiles[-1].name}", PTR)
        if longer:
            first = f.op("add", first, f.call("llvm.umin.i64", I64, tile_index, const(longer, I64)))
            tile_function = f.select(f.compare("ult", tile_index, longer), Reg(f"@{tiles[0].name}", PTR), tile_function)
        rows = [(query, spec.query), (out, spec.out), (mask, spec.mask or spec.query)]
        query_rows, out_rows, mask_rows = (f.gep(walk.at(f, p, matrix), f.mul(first, walk.row)) for p, walk in rows)
        packed = [f.gep(p, f.mul(matrix, size)) for p, size in ((keys, spec.key_size), (values, spec.value_size))]
        f.call_void(tile_function, query_rows, *packed, out_rows, mask_rows, f.arg("scratch"))

    f.for_range(f.arg("begin"), f.arg("end"), unit)
    f.ret()


def _emit_tile(module: Module, isa: ISA, spec: AttentionSpec, size: int) -> Function:
    """Emit ``tile(query, keys, values, out, mask, scratch)`` for ``size`` queries."""
    names = ("query", "keys", "values", "out", "mask", "scratch")
    f = module.function(f"attend_{size}", [(PTR, n) for n in names])
    pitch, width = spec.pitch(isa), spec.width(isa)
    query, keys, values, out, mask, scratch = (f.arg(n) for n in names)
    factors = f.gep(scratch, size * pitch)
    depth = spec.depth // 4 if spec.factor else spec.depth

    def scores(panel: gemm.Panel) -> Function:
        window = gemm.Window((), depth, spec.query.row)
        if spec.factor:
            return _emit_int8_scores(module, isa, size, panel, window, pitch)
        mask_stride = spec.mask.row if spec.mask else 0
        return gemm.emit_tile(module, size, panel, window, pitch, mask_stride, spec.epilogue, "score_")

    def products(panel: gemm.Panel) -> Function:
        window = gemm.Window((), spec.keys, pitch)
        return gemm.emit_tile(module, size, panel, window, spec.out.row, width, (TensorStep("mul"),), "product_")

    _for_each_panel(f, spec.key_panels, depth, scores, [query, keys, scratch, mask], (0, 4, 4 if spec.mask else 0))
    softmax_args = [scratch, factors]
    for rows, times in ((_ROWS_AT_ONCE, size // _ROWS_AT_ONCE), (size % _ROWS_AT_ONCE, 1)):
        if rows and times:
            softmax_args = _call_in_loop(
                f, _emit_softmax(module, isa, spec, rows), times, softmax_args, (rows * pitch, rows * width)
            )
    _for_each_panel(f, spec.value_panels, spec.keys, products, [scratch, values, out, factors], (0, 4, 0))
    f.ret()
    return f


def _call_in_loop(
    f: Function, function: Function, times: int, pointers: list[Reg], steps: tuple[int, ...]
) -> list[Reg]:
    """Call a function ``times`` times, advancing its pointers by ``steps``."""

    def once(_: Reg, now: list[Reg]) -> list[Reg]:
        f.call_void(function, *now)
        return [f.gep(p, n) for p, n in zip(now, steps, strict=True)]

    return f.loop(times, pointers, once)


def _for_each_panel(f: Function, panels: Sequence[gemm.Panel], elements: int, tile: Callable[[gemm.Panel], Function],
                args: list[Reg], moves: tuple[int, int, int]) -> None:  # fmt: skip
    """Call the tile function for all panels; ``moves``: bytes per column of data, output and second operand."""
    for panel, run in groupby(panels):
        weights = 4 * panel.columns * (elements + 1)
        steps = (moves[0] * panel.used, weights, moves[1] * panel.used, moves[2] * panel.used)
        args = _call_in_loop(f, tile(panel), len(list(run)), args, steps)


def _emit_int8_scores(module: Module, isa: ISA, size: int, panel: gemm.Panel, window: gemm.Window,
                      pitch: int) -> Function:  # fmt: skip
    """int32 scores of int8 queries and keys; all columns of the panel are stored."""
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


def _emit_softmax(module: Module, isa: ISA, spec: AttentionSpec, rows: int) -> Function:
    """Emit ``softmax(scores, factors)`` for some rows: exponentials in place, and the reciprocals of their sums.

    Exponentials are within 3e-7 of the largest. Differences of int8 scores are exact integers.
    """
    name = f"softmax_{rows}"
    if name in module.functions:
        return module.functions[name]
    f = module.function(name, [(PTR, "scores"), (PTR, "factors")])
    lanes, is_int8 = isa.lanes, bool(spec.factor)
    kind, real = vec(lanes, "i32" if is_int8 else "float"), vec(lanes, "float")
    rows_of_scores = [f.gep(f.arg("scores"), r * spec.pitch(isa)) for r in range(rows)]
    tops = _row_maxima(f, isa, spec, rows_of_scores, kind)

    def powers(i: Reg, now: list[Reg]) -> list[Reg]:
        totals = []
        for line, top, total in zip(rows_of_scores, tops, now, strict=True):
            x = f.load(kind, f.gep(line, i))
            less = to_float32(f, f.op("sub", x, top)) if is_int8 else f.op("fsub", x, top)
            exps = exp2_nonpositive(f, f.op("fmul", less, const(LOG2E * (spec.factor or 1), real)))
            f.store(exps, f.gep(line, i))
            totals.append(f.op("fadd", total, exps))
        return totals

    length = -(-spec.keys // lanes) * isa.bytes
    for r, sums in enumerate(f.loop(length, [const(0, real)] * rows, powers, isa.bytes)):
        total = reduce_lanes(f, sums, lambda a, b: f.op("fadd", a, b))
        inverse = f.op("fdiv", const(1, "float"), total)
        if spec.safe:
            inverse = f.select(f.compare("oeq", total, const(0, "float")), const(0, "float"), inverse)
        inverse = f.splat(inverse, lanes)
        for at in range(0, spec.width(isa), isa.bytes):
            f.store(inverse, f.arg("factors"), r * spec.width(isa) + at)
    f.ret()
    return f


def _row_maxima(f: Function, isa: ISA, spec: AttentionSpec, rows_of_scores: list[Reg], kind: str) -> list[Reg]:
    """The maximum of each row, in all lanes. Pads the rows with the lowest value first."""
    is_int8 = bool(spec.factor)
    none = const(-(1 << 30) if is_int8 else float("-inf"), kind)  # below any int8 dot product
    for line in rows_of_scores:
        f.store(none, line, 4 * spec.keys)

    def maximum(a: Reg, b: Reg) -> Reg:
        return int_max(f, a, b) if is_int8 else fast_max(f, a, b)

    def greater(i: Reg, now: list[Reg]) -> list[Reg]:
        return [maximum(n, f.load(kind, f.gep(line, i))) for n, line in zip(now, rows_of_scores, strict=True)]

    length = -(-spec.keys // isa.lanes) * isa.bytes
    maxima = [reduce_lanes(f, x, maximum) for x in f.loop(length, [none] * len(rows_of_scores), greater, isa.bytes)]
    if spec.safe and not is_int8:
        maxima = [f.select(f.compare("oeq", x, const(-math.inf, "float")), const(0, "float"), x) for x in maxima]
    return [f.splat(x, isa.lanes) for x in maxima]
