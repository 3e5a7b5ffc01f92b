"""Slices at a run-time position, and attention over a cache of keys and values.

Attention is FlashAttention (Dao et al., 2022): a unit of work takes a tile of queries over blocks of keys with an
online softmax, so memory does not grow with the number of keys, and only keys that count are read. The queries of all
heads that share a head of keys are the rows of one tile (grouped-query attention). Scores are in base 2: queries are
multiplied by scale * log2(e) once. A single position, as in decoding, has few rows; there the work is divided along the
keys instead of the heads, so that the cache is read from one end to the other, and a second step merges the parts (Dao
et al., "Flash-Decoding", 2023).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, vec
from edgewright.engine.codegen.math_float32 import exp2_nonpositive
from edgewright.engine.codegen.vector import CACHE_LINE, fast_max, fma, prefetch, transpose
from edgewright.engine.isa import ISA
from edgewright.engine.kernels.gather import copy_row
from edgewright.engine.kernels.norm_softmax import LOG2E, reduce_lanes

# -------------------------------------------------------------------------------------------------------------- slices


def load_position(f: Function, pointer: Reg, item: int, last: Reg) -> Reg:
    """The position, an integer of ``item`` bytes, clamped to 0..last."""
    position = f.cast("sext", f.load(f"i{8 * item}", pointer), I64)
    return f.call("llvm.smin.i64", I64, f.call("llvm.smax.i64", I64, position, const(0, I64)), last)


def emit_position_copy(module: Module, name: str, run: int, item: int, update: bool) -> None:
    """Work units are rows of ``run`` bytes: copied from a tensor at a position, or to it (``update``).

    Arguments: tensor, rows, position; rows per batch, rows per batch of the tensor.
    """
    f = module.kernel(name)
    tensor, rows, pointer = (f.load_arg(PTR, i) for i in range(3))
    count, size = f.load_arg(I64, 3), f.load_arg(I64, 4)
    position = load_position(f, pointer, item, f.op("sub", size, count))

    def row(unit: Reg) -> None:
        batch, at = f.op("udiv", unit, count), f.op("urem", unit, count)
        index = f.op("add", f.op("mul", batch, size), f.op("add", position, at))
        inside, outside = f.gep(tensor, f.mul(index, run)), f.gep(rows, f.mul(unit, run))
        copy_row(f, run, *((outside, inside) if update else (inside, outside)))

    f.for_range(f.arg("begin"), f.arg("end"), row)
    f.ret()


# ----------------------------------------------------------------------------------------------------------- attention

KEY_BLOCK = 64  # parts of the keys start at multiples of it


@dataclass(frozen=True)
class CachedAttentionSpec:
    """``shared`` heads of queries for each of ``groups`` heads of keys, of ``width`` elements.

    ``tile``: positions of a unit. ``parts``: into which the keys are divided; with more than one, ``tile`` is 1, and a
    unit takes all heads over its part and writes unnormalized results to temporary memory. ``mask``: all keys count,
    and a mask is added.
    """

    groups: int
    shared: int
    width: int
    scale: float
    causal: bool
    item: int  # bytes of the position
    tile: int
    parts: int = 1
    mask: bool = False
    clamp: bool = False  # the cache's length is no multiple of ``KEY_BLOCK``

    @property
    def block(self) -> int:
        """Keys at a time: a multiple of ``KEY_BLOCK``."""
        return KEY_BLOCK

    @property
    def rows(self) -> int:
        return self.tile * self.shared

    def row_tile(self, isa: ISA) -> int:
        """Rows of the micro-kernel, balanced so that few are padding."""
        tiles = -(-self.rows // (6 if isa.registers >= 32 else 4))
        return -(-self.rows // tiles)

    def padded(self, isa: ISA) -> int:
        """Rows in scratch: a multiple of those of the micro-kernel."""
        return -(-self.rows // self.row_tile(isa)) * self.row_tile(isa)

    def lanes(self, isa: ISA) -> int:
        return next((n for n in (isa.lanes, 8, 4) if n <= isa.lanes and self.width % n == 0), 0)

    @property
    def by_dots(self) -> bool:
        """Whether scores are dot products of rows as they are stored; else keys are transposed first, which pays off
        for many rows."""
        return self.parts > 1

    def row_sizes(self) -> dict[str, int]:
        """Numbers that a row of the tile has in scratch."""
        return {"query": self.width, "weights": self.block, "sums": self.width, "top": 1, "total": 1, "factor": 1}

    def group_sizes(self, isa: ISA) -> dict[str, int]:
        """Numbers in scratch, of one group where a unit takes all of them."""
        rows = self.padded(isa)
        sizes = {name: rows * size for name, size in self.row_sizes().items()}
        return {**sizes, "keys": 0 if self.by_dots else self.width * self.block}

    def offsets(self, isa: ISA) -> dict[str, int]:
        """Byte offsets in scratch, and its size as ``end``."""
        offsets, at = {}, 0
        for name, size in self.group_sizes(isa).items():
            offsets[name] = at
            at += -(-4 * size * (self.groups if self.by_dots else 1) // 64) * 64
        return {**offsets, "end": at}

    @property
    def part_size(self) -> int:
        """Bytes of a group's result in a part: sums, then the largest score and the total of each row."""
        return -(-4 * self.shared * (self.width + 2) // 64) * 64


class AttentionUnit:
    """Emits the work of one unit: a tile of rows over a range of keys."""

    cache_item = 4  # bytes of an element of keys and values

    def __init__(self, f: Function, isa: ISA, spec: CachedAttentionSpec) -> None:
        self.f, self.isa, self.spec = f, isa, spec
        self.lanes = spec.lanes(isa)
        self.vector = vec(self.lanes, "float")
        self.row_tile = spec.row_tile(isa)
        self.at = {name: f.gep(f.arg("scratch"), offset) for name, offset in spec.offsets(isa).items()}
        self.query, self.key, self.value, self.out, pointer, self.mask = (f.load_arg(PTR, i) for i in range(6))
        self.count, self.size = f.load_arg(I64, 6), f.load_arg(I64, 7)
        self.tiles, self.parts_memory = f.load_arg(I64, 8), f.load_arg(PTR, 9)
        self.start = load_position(f, pointer, spec.item, f.op("sub", self.size, self.count))
        self.key_stride = self.value_stride = self.cache_item * spec.groups * spec.width
        self.query_stride = 4 * spec.groups * spec.shared * spec.width

    # ---------------------------------------------------------------------------------------------------- one unit

    def emit(self, unit: Reg) -> None:
        """A tile of positions of one group."""
        f, spec = self.f, self.spec
        group, rest = f.op("urem", unit, spec.groups), f.op("udiv", unit, spec.groups)
        tile, batch = f.op("urem", rest, self.tiles), f.op("udiv", rest, self.tiles)
        first = f.mul(tile, spec.tile)
        positions = self._begin(first)
        rows = f.op("add", f.op("mul", batch, self.count), first)
        index = f.add(f.mul(rows, spec.groups * spec.shared), f.mul(group, spec.shared))
        self._load_queries(index, positions)
        begin, self.end = self._range(positions, const(0, I64))
        keys, values = self._cache_rows(batch, group)
        f.for_range(begin, self.end, lambda k: self._block(keys, values, k), spec.block)
        self._store_rows(f.gep(self.out, f.mul(index, 4 * spec.width)), positions)

    def emit_part(self, unit: Reg) -> None:
        """A part of the keys, all groups."""
        f, spec = self.f, self.spec
        part, batch = f.op("urem", unit, spec.parts), f.op("udiv", unit, spec.parts)
        positions = self._begin(const(0, I64))
        begin, self.end = self._range(positions, part)
        queries = f.mul(batch, spec.groups * spec.shared)
        self._for_each_group(lambda group: self._load_queries(f.add(queries, f.mul(group, spec.shared)), positions))

        f.for_range(begin, self.end, lambda k: self._block_of_all_groups(batch, k), spec.block)
        target = f.gep(self.parts_memory, f.mul(unit, spec.groups * spec.part_size))
        self._for_each_group(lambda group: self._store_part(f.gep(target, f.mul(group, spec.part_size))))

    def _begin(self, first: Reg) -> Reg:
        """Start a tile of positions; returns how many there are."""
        f, spec = self.f, self.spec
        self.rest = f.op("sub", self.count, first)
        positions = f.call("llvm.umin.i64", I64, self.rest, const(spec.tile, I64))
        tiles = f.op("udiv", f.add(f.mul(positions, spec.shared), self.row_tile - 1), self.row_tile)
        self.rows = f.mul(tiles, self.row_tile)  # those beyond the tile's positions are padding
        self.position = f.op("add", self.start, first)
        self.mask_row = f.gep(self.mask, f.mul(f.op("mul", first, self.size), 4))
        return positions

    def _for_each_group(self, body: Callable[[Reg], None]) -> None:
        """``body(group)`` with the group's rows of scratch."""
        f, at, sizes = self.f, self.at, {"end": 0, **self.spec.group_sizes(self.isa)}

        def once(group: Reg, _: list[Reg]) -> list[Reg]:
            self.at = {name: f.gep(p, f.mul(group, 4 * sizes[name])) for name, p in at.items()}
            body(group)
            return []

        f.loop(self.spec.groups, [], once)
        self.at = at

    def _cache_rows(self, batch: Reg, group: Reg) -> tuple[Reg, Reg]:
        """The group's first key and value."""
        f = self.f
        offset = f.mul(group, self.cache_item * self.spec.width)
        base = f.add(f.mul(f.op("mul", batch, self.size), self.key_stride), offset)
        return f.gep(self.key, base), f.gep(self.value, base)

    def _range(self, positions: Reg, part: Reg) -> tuple[Reg, Reg]:
        """The keys of a unit."""
        f, spec = self.f, self.spec
        last = self.position if spec.causal else f.op("add", self.start, f.op("sub", self.count, positions))
        end = self.size if spec.mask else f.op("add", last, positions)
        if spec.parts == 1:
            return const(0, I64), end
        blocks = f.op("udiv", f.add(end, KEY_BLOCK - 1), KEY_BLOCK)
        share = f.mul(f.op("udiv", f.add(blocks, spec.parts - 1), spec.parts), KEY_BLOCK)
        begin = f.op("mul", part, share)
        return begin, f.call("llvm.umin.i64", I64, end, f.op("add", begin, share))

    def _block_of_all_groups(self, batch: Reg, first: Reg) -> None:
        self._for_each_group(lambda group: self._block(*self._cache_rows(batch, group), first))

    def _load_queries(self, index: Reg, positions: Reg) -> None:
        """Queries of the tile, from row ``index`` on, scaled; rows beyond its positions are zeros. Resets the state of
        the softmax."""
        f, spec, width = self.f, self.spec, 4 * self.spec.width
        source = f.gep(self.query, f.mul(index, width))
        factor = const(spec.scale * LOG2E, self.vector)
        zero, low = const(0, self.vector), const(float("-inf"), "float")

        def row(j: Reg, _: list[Reg]) -> list[Reg]:
            position = f.op("udiv", j, spec.shared)
            inside = f.compare("ult", position, positions)
            head = f.op("urem", j, spec.shared)
            address = f.gep(source, f.add(f.mul(position, self.query_stride), f.mul(head, width)))
            address = f.select(inside, address, source)
            for v in range(0, width, 4 * self.lanes):
                x = f.op("fmul", f.load(self.vector, address, v), factor)
                target = f.add(f.mul(j, width), v)
                f.store(f.select(inside, x, zero), f.gep(self.at["query"], target))
                f.store(zero, f.gep(self.at["sums"], target))
            f.store(low, f.gep(self.at["top"], f.mul(j, 4)))
            f.store(const(0, "float"), f.gep(self.at["total"], f.mul(j, 4)))
            return []

        f.loop(self.rows, [], row)

    def _block(self, keys: Reg, values: Reg, first: Reg) -> None:
        f, spec = self.f, self.spec
        if not spec.by_dots:
            self._transpose_keys(keys, first)
        value_rows = self._value_rows(values, first)
        count = f.call("llvm.umin.i64", I64, f.op("sub", self.end, first), const(spec.block, I64))
        if spec.by_dots:
            self._dot_scores(keys, first)

        def tile(j: Reg, _: list[Reg]) -> list[Reg]:
            scores = f.gep(self.at["weights"], f.mul(j, 4 * spec.block))
            if not spec.by_dots:
                self._multiply_keys(f.gep(self.at["query"], f.mul(j, 4 * spec.width)), scores)
            f.loop(self.row_tile, [], lambda r, _: self._softmax(f.op("add", j, r), first))
            self._multiply_values(j, scores, value_rows, count)
            return []

        f.loop(self.rows, [], tile, self.row_tile)

    def _value_rows(self, values: Reg, first: Reg) -> Reg:
        """The rows of values of a block of keys, ``value_stride`` bytes apart."""
        return self.f.gep(values, self.f.mul(first, self.key_stride))

    # ------------------------------------------------------------------------------------------------------ scores

    def _key_address(self, keys: Reg, first: Reg) -> Callable[[int], Reg]:
        """The address of key ``first + i``, at most the last of the cache."""
        f = self.f
        if not self.spec.clamp:
            base = f.gep(keys, f.mul(first, self.key_stride))
            return lambda i: f.gep(base, i * self.key_stride)
        last = f.add(self.size, -1)

        def address(i: int) -> Reg:
            index = f.call("llvm.umin.i64", I64, f.add(first, i), last)
            return f.gep(keys, f.mul(index, self.key_stride))

        return address

    def _dot_scores(self, keys: Reg, first: Reg) -> None:
        """Scores of all rows: products of a row with as many keys as a vector has lanes, then sums of their lanes."""
        f, spec, lanes = self.f, self.spec, self.lanes

        def some(k: Reg, _: list[Reg]) -> list[Reg]:
            address = self._key_address(keys, f.op("add", first, k))
            addresses = [address(i) for i in range(lanes)]
            for key in addresses:
                self._prefetch(key)

            def row(j: Reg, _: list[Reg]) -> list[Reg]:
                query = f.gep(self.at["query"], f.mul(j, 4 * spec.width))
                sums = [const(0, self.vector)] * lanes
                for v in range(0, 4 * spec.width, 4 * lanes):
                    q = f.load(self.vector, query, v)
                    sums = [fma(f, q, f.load(self.vector, a, v), s) for a, s in zip(addresses, sums, strict=True)]
                at = f.add(f.mul(j, 4 * spec.block), f.mul(k, 4))
                f.store(sum_lanes_of(f, sums), f.gep(self.at["weights"], at))
                return []

            f.loop(spec.rows, [], row)
            return []

        f.loop(spec.block, [], some, lanes)

    def _prefetch(self, row: Reg) -> None:
        """Prefetch the row of the next block that corresponds to a key or value of this one."""
        for line in range(0, self.cache_item * self.spec.width, CACHE_LINE):
            prefetch(self.f, row, self.spec.block * self.key_stride + line, into_l1=False)

    def _prefetch_value(self, values: Reg, k: Reg) -> list[Reg]:
        self._prefetch(self.f.gep(values, self.f.mul(k, self.key_stride)))
        return []

    def _transpose_keys(self, keys: Reg, first: Reg) -> None:
        """A block of keys as [width, block]."""
        f, spec, lanes = self.f, self.spec, self.lanes

        def some(k: Reg, _: list[Reg]) -> list[Reg]:
            load = self._key_loader(keys, f.add(first, k))

            def columns(d: Reg, _: list[Reg]) -> list[Reg]:
                target = f.gep(self.at["keys"], f.add(f.mul(d, 4 * spec.block), f.mul(k, 4)))
                for i, column in enumerate(transpose(f, load(d))):
                    f.store(column, target, 4 * i * spec.block)
                return []

            f.loop(spec.width, [], columns, lanes)
            return []

        f.loop(spec.block, [], some, lanes)

    def _key_loader(self, keys: Reg, start: Reg) -> Callable[[Reg], list[Reg]]:
        """Loads a vector of each key from ``start`` on, at an element."""
        f, address = self.f, self._key_address(keys, start)
        addresses = [address(i) for i in range(self.lanes)]
        return lambda d: [f.load(self.vector, f.gep(a, f.mul(d, 4))) for a in addresses]

    def _multiply_keys(self, queries: Reg, scores: Reg) -> None:
        f, spec = self.f, self.spec
        vectors = self._vectors(spec.block)

        def columns(c: Reg, _: list[Reg]) -> list[Reg]:
            start = [const(0, self.vector)] * (self.row_tile * vectors)
            sums = self._multiply(
                queries, 4 * spec.width, f.gep(self.at["keys"], f.mul(c, 4)), 4 * spec.block,
                const(spec.width, I64), start,
            )  # fmt: skip
            for at, total in enumerate(sums):
                r, v = divmod(at, vectors)
                f.store(total, f.gep(scores, f.mul(c, 4)), 4 * (r * spec.block + v * self.lanes))
            return []

        f.loop(spec.block, [], columns, vectors * self.lanes)

    def _vectors(self, columns: int) -> int:
        """Vectors of columns of the micro-kernel: as many as the registers hold, and a divisor."""
        available = columns // self.lanes
        most = 4 if self.isa.registers >= 32 else 2
        return next(n for n in range(min(most, available), 0, -1) if available % n == 0)

    def _multiply(
        self, left: Reg, left_stride: int, right: Reg, right_stride: int, depth: Reg, sums: list[Reg]
    ) -> list[Reg]:
        """The micro-kernel: ``sums`` plus the product of [rows, depth] and [depth, vectors]."""
        f, rows = self.f, self.row_tile
        vectors = len(sums) // rows

        def step(_: Reg, now: list[Reg]) -> list[Reg]:
            left, right, *totals = now
            loaded = [f.load(self.vector, right, 4 * self.lanes * v) for v in range(vectors)]
            for r in range(rows):
                x = f.splat(f.load("float", left, r * left_stride), self.lanes)
                for v in range(vectors):
                    totals[r * vectors + v] = fma(f, x, loaded[v], totals[r * vectors + v])
            return [f.gep(left, 4), f.gep(right, right_stride), *totals]

        return f.loop(depth, [left, right, *sums], step)[2:]

    # ----------------------------------------------------------------------------------------------------- softmax

    def _softmax(self, j: Reg, first: Reg) -> list[Reg]:
        """Scores of row ``j`` to weights, relative to the largest score so far."""
        f, spec, lanes = self.f, self.spec, self.lanes
        row = f.gep(self.at["weights"], f.mul(j, 4 * spec.block))
        scores = [self._visible(j, first, v, f.load(self.vector, row, 4 * v)) for v in range(0, spec.block, lanes)]
        best = scores[0]
        for x in scores[1:]:
            best = fast_max(f, best, x)
        old = f.load("float", f.gep(self.at["top"], f.mul(j, 4)))
        top = fast_max(f, reduce_lanes(f, best, lambda a, b: fast_max(f, a, b)), old)
        f.store(top, f.gep(self.at["top"], f.mul(j, 4)))
        # A row without a visible key yet: its weights are 0, not NaN.
        top = f.select(f.compare("oeq", top, const(-math.inf, "float")), const(0, "float"), top)
        wide = f.splat(top, lanes)
        weights = [exp2_nonpositive(f, f.op("fsub", x, wide)) for x in scores]
        total = weights[0]
        for x in weights[1:]:
            total = f.op("fadd", total, x)
        for v, x in enumerate(weights):
            f.store(x, row, 4 * v * lanes)
        factor = reduce_first(f, exp2_nonpositive(f, f.splat(f.op("fsub", old, top), lanes)))
        f.store(factor, f.gep(self.at["factor"], f.mul(j, 4)))
        address = f.gep(self.at["total"], f.mul(j, 4))
        added = reduce_lanes(f, total, lambda a, b: f.op("fadd", a, b))
        f.store(fma(f, f.load("float", address), factor, added), address)
        return []

    def _visible(self, j: Reg, first: Reg, v: int | Reg, scores: Reg) -> Reg:
        """Scores of keys ``first + v`` on, with the mask added; -inf for keys that do not count."""
        f, spec = self.f, self.spec
        position = f.op("udiv", j, spec.shared)
        if spec.mask:
            row = f.call("llvm.umin.i64", I64, position, f.add(self.rest, -1))  # of padding: any
            address = f.gep(self.mask_row, f.mul(f.add(f.op("mul", row, self.size), f.add(first, v)), 4))
            if not spec.clamp:
                return fma(f, f.load(self.vector, address), const(LOG2E, self.vector), scores)
            inside = self._below(f.op("sub", self.size, f.add(first, v)))
            low = const(-math.inf, self.vector)
            name, align = f"llvm.masked.load.v{self.lanes}f32.p0", const(4, "i32")
            added = f.call(name, self.vector, address, align, inside, low)
            return f.select(inside, fma(f, added, const(LOG2E, self.vector), scores), low)
        end = f.op("add", f.op("add", self.position, position), const(1, I64)) if spec.causal else self.end
        return f.select(self._below(f.op("sub", end, f.add(first, v))), scores, const(-math.inf, self.vector))

    def _below(self, limit: Reg) -> Reg:
        """Which lanes have a number below ``limit``."""
        f = self.f
        narrow = f.cast("trunc", f.call("llvm.smin.i64", I64, limit, const(self.lanes, I64)), "i32")
        indices = Reg("<" + ", ".join(f"i32 {i}" for i in range(self.lanes)) + ">", vec(self.lanes, "i32"))
        return f.compare("slt", indices, f.splat(narrow, self.lanes))

    # ----------------------------------------------------------------------------------------------------- results

    def _multiply_values(self, j: Reg, weights: Reg, values: Reg, count: Reg) -> None:
        f, spec = self.f, self.spec
        vectors, rows = self._vectors(spec.width), range(self.row_tile)

        if spec.by_dots:
            f.loop(spec.block, [], lambda k, _: self._prefetch_value(values, k))

        def columns(c: Reg, _: list[Reg]) -> list[Reg]:
            sums = f.gep(self.at["sums"], f.add(f.mul(j, 4 * spec.width), f.mul(c, 4)))
            start = []
            for r in rows:
                factor = f.splat(f.load("float", f.gep(self.at["factor"], f.mul(j, 4)), 4 * r), self.lanes)
                for v in range(vectors):
                    old = f.load(self.vector, sums, 4 * (r * spec.width + v * self.lanes))
                    start.append(f.op("fmul", old, factor))
            results = self._multiply(
                weights, 4 * spec.block, f.gep(values, f.mul(c, 4)), self.value_stride, count, start
            )  # fmt: skip
            for at, total in enumerate(results):
                r, v = divmod(at, vectors)
                f.store(total, sums, 4 * (r * spec.width + v * self.lanes))
            return []

        f.loop(spec.width, [], columns, vectors * self.lanes)

    def _store_rows(self, target: Reg, positions: Reg) -> None:
        """Divide by the sums of weights, and store the rows of the tile's positions."""
        f, spec, width = self.f, self.spec, 4 * self.spec.width

        def row(j: Reg, _: list[Reg]) -> list[Reg]:
            position, head = f.op("udiv", j, spec.shared), f.op("urem", j, spec.shared)
            total = f.load("float", f.gep(self.at["total"], f.mul(j, 4)))
            inverse = f.splat(f.op("fdiv", const(1, "float"), total), self.lanes)
            address = f.gep(target, f.add(f.mul(position, self.query_stride), f.mul(head, width)))
            for v in range(0, width, 4 * self.lanes):
                x = f.load(self.vector, f.gep(self.at["sums"], f.mul(j, width)), v)
                f.store(f.op("fmul", x, inverse), address, v)
            return []

        f.loop(f.mul(positions, spec.shared), [], row)

    def _store_part(self, target: Reg) -> None:
        f, spec = self.f, self.spec
        rows = 4 * spec.shared
        for v in range(0, rows * spec.width, 4 * self.lanes):
            f.store(f.load(self.vector, self.at["sums"], v), target, v)
        for r in range(0, rows, 4):
            f.store(f.load("float", self.at["top"], r), target, rows * spec.width + r)
            f.store(f.load("float", self.at["total"], r), target, rows * (spec.width + 1) + r)


def reduce_first(f: Function, x: Reg) -> Reg:
    """The first lane."""
    return f.shuffle(x, x, [0])


def sum_lanes_of(f: Function, vectors: list[Reg]) -> Reg:
    """The sum of the lanes of each vector; there are as many as each has lanes.

    Each round adds the halves of two vectors, interleaved: after log2(n) rounds lane i is the sum of vector i.
    """
    lanes = len(vectors)
    low = [index for i in range(lanes // 2) for index in (i, lanes + i)]
    high = [index + lanes // 2 for index in low]
    while len(vectors) > 1:
        half = len(vectors) // 2
        pairs = zip(vectors[:half], vectors[half:], strict=True)
        vectors = [f.op("fadd", f.shuffle(a, b, low), f.shuffle(a, b, high)) for a, b in pairs]
    return vectors[0]


def emit_cached_attention(module: Module, name: str, isa: ISA, spec: CachedAttentionSpec) -> None:
    """Work units are tiles of positions by groups of heads, or parts of the keys.

    Arguments: queries, keys, values, output, position, mask; positions, length of the cache, tiles, parts.
    """
    f = module.kernel(name)
    unit = AttentionUnit(f, isa, spec)
    f.for_range(f.arg("begin"), f.arg("end"), unit.emit_part if spec.parts > 1 else unit.emit)
    f.ret()


def emit_merge_attention(module: Module, name: str, isa: ISA, spec: CachedAttentionSpec) -> None:
    """Work units are heads of queries. Arguments: parts, output."""
    f = module.kernel(name)
    parts, out = f.load_arg(PTR, 0), f.load_arg(PTR, 1)
    lanes, width = spec.lanes(isa), 4 * spec.width
    kind, rows = vec(lanes, "float"), 4 * spec.shared

    def head(unit: Reg) -> None:
        row, rest = f.op("urem", unit, spec.shared), f.op("udiv", unit, spec.shared)
        group, batch = f.op("urem", rest, spec.groups), f.op("udiv", rest, spec.groups)
        first = f.op("add", f.mul(batch, spec.parts * spec.groups), group)
        memory = [f.gep(parts, f.mul(f.add(first, p * spec.groups), spec.part_size)) for p in range(spec.parts)]
        tops = [f.load("float", f.gep(m, f.add(f.mul(row, 4), rows * spec.width))) for m in memory]
        totals = [f.load("float", f.gep(m, f.add(f.mul(row, 4), rows * (spec.width + 1)))) for m in memory]
        best = tops[0]
        for top in tops[1:]:
            best = fast_max(f, best, top)
        best = f.select(f.compare("oeq", best, const(-math.inf, "float")), const(0, "float"), best)
        factors = [exp2_nonpositive(f, f.splat(f.op("fsub", top, best), lanes)) for top in tops]
        total = const(0, kind)
        for factor, part in zip(factors, totals, strict=True):
            total = fma(f, f.splat(part, lanes), factor, total)
        inverse = f.op("fdiv", const(1, kind), total)
        for v in range(0, width, 4 * lanes):
            result = const(0, kind)
            for m, factor in zip(memory, factors, strict=True):
                result = fma(f, f.load(kind, f.gep(m, f.mul(row, width)), v), factor, result)
            f.store(f.op("fmul", result, inverse), f.gep(out, f.mul(unit, width)), v)

    f.for_range(f.arg("begin"), f.arg("end"), head)
    f.ret()
