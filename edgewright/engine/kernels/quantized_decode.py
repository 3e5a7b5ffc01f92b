"""Attention of a single position over a cache of int8 rows.

A block of keys goes through three phases, each for several rows at once, so that their reductions and divisions
overlap:

1. Scores are int8 dot products. Four elements of a key are one lane of the dot product instruction, so 16 keys are
   transposed as a matrix of 32-bit words. With u = q + 128, which is unsigned,

       sum (q - zq) (k - zk) = sum u k - (128 + zq) sum k - zk sum (q - zq),

   where the sum of k is one more dot product for all heads that share the key. All sums are integers below 2**24,
   exact in float32, for rows of up to 256 elements.
2. Softmax weights, relative to the largest score so far, are multiplied by the scales of values and rounded to 16 bits:
   two planes of bytes. This adds at most 2**-17 of the block's largest weight to each weight, where rounding to int8
   has added up to 2**-9 of its range to each value.
3. Values are multiplied as they are stored, by two int8 dot products, of four keys each. Zero points are one sum for
   the block.

Keys are read from one end to the other, for all groups. Phase 1 prefetches the values of its keys, and the scales and
zero points of the next block. Phases 2 and 3 prefetch half of the keys of the next block each: memory is busy in all
phases. Longer blocks save instructions but lose time: caches come from memory, and nothing prefetches the keys of a
part's first block.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, Function, Module, Reg, const, lane_count, vec
from edgewright.engine.codegen.math_float32 import exp2_nonpositive
from edgewright.engine.codegen.vector import (
    CACHE_LINE,
    Int8Dot,
    fast_max,
    fma,
    interleave,
    prefetch,
    round_to_int,
    to_float32,
    transpose,
)
from edgewright.engine.isa import ISA
from edgewright.engine.kernels.cache import CachedAttentionSpec, reduce_first
from edgewright.engine.kernels.norm_softmax import LOG2E, lane_sum, reduce_lanes
from edgewright.engine.kernels.quantized_cache import QuantizedAttentionUnit

_DIGITS = 65535  # the largest weight in units of a block
_MAX_SHUFFLED_GROUPS = 8  # above, parameters are copied one by one
_PADDING = 16  # floats behind a row of scores or scales, at least the lanes of a vector
_PARAMETERS = ("key_scale", "key_zero", "value_scale", "value_zero")


@dataclass(frozen=True)
class QuantizedDecodeSpec(CachedAttentionSpec):
    """Attention of a single position over int8 rows, in parts of the keys."""

    def padded(self, isa: ISA) -> int:
        return self.rows

    def row_sizes(self) -> dict[str, int]:
        sizes = {**super().row_sizes(), "query": self.width // 4, "weights": self.block + _PADDING}
        return {**sizes, "bias": 1, "sum": 1, "gain": 1, "digits": self.block // 2}

    def group_sizes(self, isa: ISA) -> dict[str, int]:
        return {**super().group_sizes(isa), **dict.fromkeys(_PARAMETERS, self.block + _PADDING)}

    @property
    def row(self) -> int:
        """Bytes of a row of scores or parameters."""
        return 4 * (self.block + _PADDING)


class QuantizedDecodeUnit(QuantizedAttentionUnit):
    """Emits the work of one part of the keys, for all groups."""

    spec: QuantizedDecodeSpec

    def _load_queries(self, index: Reg, positions: Reg) -> None:
        """Rows as unsigned bytes, and what corrects their products. Resets the state of the softmax."""
        f, spec, width, lanes = self.f, self.spec, self.spec.width, self.lanes

        def row(j: Reg, _: list[Reg]) -> list[Reg]:
            at, of_row = f.add(index, j), f.mul(j, 4)
            scale, zero = f.load("float", f.gep(self.query_scale, f.mul(at, 4))), self._load_zero(self.query_zero, at)
            source, target = f.gep(self.query, f.mul(at, width)), f.gep(self.at["query"], f.mul(j, width))
            total = const(0, self.vector)
            for v in range(0, width, lanes):
                f.store(f.op("xor", f.load(self.int8, source, v), -128), target, v)
                total = f.op("fadd", total, f.op("fsub", self._load_int8(source, v), f.splat(zero, lanes)))
                f.store(const(0, self.vector), f.gep(self.at["sums"], f.mul(j, 4 * width)), 4 * v)
            numbers = {
                "bias": f.op("fsub", const(-128, "float"), zero),
                "sum": f.op("fsub", const(0, "float"), lane_sum(f, total)),
                "gain": f.op("fmul", scale, const(spec.scale * LOG2E, "float")),
                "top": const(float("-inf"), "float"),
                "total": const(0, "float"),
            }
            for name, number in numbers.items():
                f.store(number, f.gep(self.at[name], of_row))
            return []

        f.loop(spec.rows, [], row)

    def _block_of_all_groups(self, batch: Reg, first: Reg) -> None:
        f, spec = self.f, self.spec
        self.keys_in_block = f.call("llvm.umin.i64", I64, f.op("sub", self.end, first), const(spec.block, I64))
        self._load_parameters(batch, first)

        def some(k: Reg, _: list[Reg]) -> list[Reg]:
            self._prefetch_parameters(batch, f.add(first, f.add(k, spec.block)))
            self._for_each_group(lambda group: self._scores(*self._cache_rows(batch, group), first, k))
            return []

        f.loop(self.keys_in_block, [], some, self.lanes)
        most = 3 if self.isa.registers >= 32 else 1

        def group(g: Reg) -> None:
            keys, values = (f.gep(rows, f.mul(first, self.key_stride)) for rows in self._cache_rows(batch, g))
            next_keys = f.gep(keys, f.mul(self.keys_in_block, self.key_stride))
            for row in range(0, spec.rows, most):
                rows = range(row, min(row + most, spec.rows))
                units = self._weigh(rows, first, next_keys)
                multiply = self._multiply_digits if self._as_bytes else self._multiply_floats
                multiply(rows, values, units, next_keys)

        self._for_each_group(group)

    @property
    def _as_bytes(self) -> bool:
        """Whether values are multiplied as they are stored, by planes of bytes."""
        return self.spec.width % (4 * self.lanes) == 0

    # -------------------------------------------------------------------------------------------------- parameters

    def _prefetch_parameters(self, batch: Reg, first: Reg) -> None:
        """Scales and zero points of as many keys as a vector has lanes."""
        f, count = self.f, self.lanes * self.spec.groups
        index = f.mul(f.add(f.op("mul", batch, self.size), first), self.spec.groups)
        for name in ("key", "value"):
            for kind, item in (("scale", 4), ("zero", 1)):
                address = f.gep(getattr(self, f"{name}_{kind}"), f.mul(index, item))
                for offset in range(0, item * count, CACHE_LINE):
                    prefetch(f, address, offset, into_l1=False)

    def _load_parameters(self, batch: Reg, first: Reg) -> None:
        """Scales and zero points of the block, by group. Those of values that do not count may be anything, such as
        NaN, which a weight of 0 does not cancel; they are 0 here."""
        f, spec = self.f, self.spec
        index = f.mul(f.add(f.op("mul", batch, self.size), first), spec.groups)
        copy = self._copy_parameters if spec.clamp or spec.groups > _MAX_SHUFFLED_GROUPS else self._shuffle_parameters
        for name in ("key", "value"):
            copy(getattr(self, f"{name}_scale"), self.at[f"{name}_scale"], index, first, 4)
            copy(getattr(self, f"{name}_zero"), self.at[f"{name}_zero"], index, first, 1)
        for name in ("value_scale", "value_zero"):
            end = f.gep(self.at[name], f.mul(self.keys_in_block, 4))
            for group in range(spec.groups):
                f.store(const(0, self.vector), end, group * spec.row)

    def _shuffle_parameters(self, source: Reg, target: Reg, index: Reg, first: Reg, item: int) -> None:
        """[keys, groups] to [groups, keys], as many keys at a time as a vector has lanes."""
        f, spec, lanes = self.f, self.spec, self.lanes

        def some(k: Reg, _: list[Reg]) -> list[Reg]:
            address = f.gep(source, f.mul(f.add(index, f.mul(k, spec.groups)), item))
            vectors = [
                f.load(self.vector, address, 4 * lanes * v) if item == 4 else self._load_int8(address, lanes * v)
                for v in range(spec.groups)
            ]
            for group in range(spec.groups):
                positions = [divmod(i * spec.groups + group, lanes) for i in range(lanes)]
                x = pick_lanes(f, vectors, positions)
                f.store(x, f.gep(target, f.mul(k, 4)), group * spec.row)
            return []

        f.loop(self.keys_in_block, [], some, lanes)

    def _copy_parameters(self, source: Reg, target: Reg, index: Reg, first: Reg, item: int) -> None:
        f, spec = self.f, self.spec

        def key(k: Reg, _: list[Reg]) -> list[Reg]:
            at = f.add(index, f.mul(k, spec.groups))

            def one(group: Reg, _: list[Reg]) -> list[Reg]:
                place = f.add(at, group)
                x = f.load("float", f.gep(source, f.mul(place, 4))) if item == 4 else self._load_zero(source, place)
                f.store(x, f.gep(target, f.add(f.mul(group, spec.row), f.mul(k, 4))))
                return []

            f.loop(spec.groups, [], one)
            return []

        f.loop(self.keys_in_block, [], key)

    # ------------------------------------------------------------------------------------------------------ scores

    def _scores(self, keys: Reg, values: Reg, first: Reg, k: Reg) -> None:
        """Scores of all rows of a group, of as many keys as a vector has lanes."""
        f, spec, lanes = self.f, self.spec, self.lanes
        start = f.add(first, k)
        address, value = self._key_address(keys, start), f.gep(values, f.mul(start, self.key_stride))
        for i in range(lanes):
            for line in range(0, spec.width, CACHE_LINE):
                prefetch(f, value, i * self.key_stride + line, into_l1=False)
        total, *products = (to_float32(f, x) for x in self._dot_products([address(i) for i in range(lanes)]))
        scale, zero = (f.load(self.vector, f.gep(self.at[name], f.mul(k, 4))) for name in ("key_scale", "key_zero"))
        for r, product in enumerate(products):
            bias, row_sum, gain = (
                f.splat(f.load("float", self.at[name], 4 * r), lanes) for name in ("bias", "sum", "gain")
            )
            score = f.op("fmul", fma(f, zero, row_sum, fma(f, bias, total, product)), f.op("fmul", scale, gain))
            f.store(score, f.gep(self.at["weights"], f.mul(k, 4)), r * spec.row)

    def _dot_products(self, addresses: list[Reg]) -> list[Reg]:
        """The sums of keys, and the products of each row with them: a key in each lane."""
        f, spec, lanes = self.f, self.spec, self.lanes
        dot, words, data = Int8Dot(f, self.isa), spec.width // 4, vec(4 * lanes, "i8")
        sums = [const(0, vec(lanes, "i32"))] * (1 + spec.rows)
        ones = dot.data(const(1, data))
        for at in range(0, words, lanes):
            count = min(lanes, words - at)
            pad = [*range(count), *[-1] * (lanes - count)]
            rows = [f.load(vec(count, "i32"), a, 4 * at) for a in addresses]
            rows = [row if count == lanes else f.shuffle(row, row, pad) for row in rows]
            for d, column in enumerate(transpose(f, rows)[:count]):
                weights = dot.weights(f.bitcast(column, data))
                sums[0] = dot.add(sums[0], ones, weights)
                for r in range(spec.rows):
                    query = f.splat(f.load("i32", self.at["query"], r * spec.width + 4 * (at + d)), lanes)
                    sums[1 + r] = dot.add(sums[1 + r], dot.data(f.bitcast(query, data)), weights)
        return sums

    # ----------------------------------------------------------------------------------------------------- weights

    def _weigh(self, rows: range, first: Reg, next_keys: Reg) -> list[tuple[Reg, Reg]]:
        """Scores of some rows to weights in units: as two planes of bytes, or as floats. Returns the unit of each row
        and its sum of zero points in units, both in all lanes. Prefetches the first half of the next keys."""
        f, lanes = self.f, self.lanes
        scores = [f.gep(self.at["weights"], r * self.spec.row) for r in rows]
        tops = self._new_tops(rows, scores, first)

        def weigh(k: Reg, now: list[Reg]) -> list[Reg]:
            if rows[0] == 0:
                self._prefetch_keys(next_keys, k, lanes, range(0, self.spec.width, CACHE_LINE))
            scale, after = f.load(self.vector, f.gep(self.at["value_scale"], f.mul(k, 4))), []
            for at, (row, top) in enumerate(zip(scores, tops, strict=True)):
                address, (total, scaled_total, largest) = f.gep(row, f.mul(k, 4)), now[3 * at : 3 * at + 3]
                weight = exp2_nonpositive(f, f.op("fsub", f.load(self.vector, address), top))
                scaled = f.op("fmul", weight, scale)
                f.store(scaled, address)
                after += [f.op("fadd", total, weight), f.op("fadd", scaled_total, scaled),
                          fast_max(f, largest, scaled)]  # fmt: skip
            return after

        sums = f.loop(self.keys_in_block, [const(0, self.vector)] * (3 * len(scores)), weigh, lanes)
        units = []
        for at, r in enumerate(rows):
            total, scaled_total, largest = sums[3 * at : 3 * at + 3]
            address, factor = (f.gep(self.at[name], 4 * r) for name in ("total", "factor"))
            f.store(fma(f, f.load("float", address), f.load("float", factor), lane_sum(f, total)), address)
            # NaN if any weight is not finite
            top = reduce_lanes(f, largest, lambda a, b: fast_max(f, a, b))
            top = fma(f, lane_sum(f, scaled_total), const(0, "float"), top)
            units.append(f.splat(f.op("fmul", top, const(1 / _DIGITS, "float")), lanes))
        return list(zip(units, self._round_weights(rows, scores, units), strict=True))

    def _prefetch_keys(self, keys: Reg, k: Reg, count: int, lines: range, start: int = 0) -> None:
        """``lines`` of one key for every two that the loop over ``k`` takes, from ``start`` on."""
        f = self.f
        address = f.gep(keys, f.mul(f.add(f.op("lshr", k, 1), start), self.key_stride))
        for i in range(count // 2):
            for line in lines:
                prefetch(f, address, i * self.key_stride + line, into_l1=False)

    def _new_tops(self, rows: range, scores: list[Reg], first: Reg) -> list[Reg]:
        """The largest score of each row so far, in all lanes; stores it, and the factor of the sums before."""
        f, spec, lanes = self.f, self.spec, self.lanes
        low = const(float("-inf"), self.vector)
        for row in scores:
            f.store(low, f.gep(row, f.mul(self.keys_in_block, 4)))

        def largest(k: Reg, best: list[Reg]) -> list[Reg]:
            after = []
            for row, old in zip(scores, best, strict=True):
                score = f.load(self.vector, f.gep(row, f.mul(k, 4)))
                if spec.mask:
                    score = self._visible(const(0, I64), first, k, score)
                    f.store(score, f.gep(row, f.mul(k, 4)))
                after.append(fast_max(f, old, score))
            return after

        tops = []
        for r, best in zip(rows, f.loop(self.keys_in_block, [low] * len(scores), largest, lanes), strict=True):
            address = f.gep(self.at["top"], 4 * r)
            old = f.load("float", address)
            top = fast_max(f, reduce_lanes(f, best, lambda a, b: fast_max(f, a, b)), old)
            f.store(top, address)
            # A row without a visible key yet: its weights are 0, not NaN.
            top = f.select(f.compare("oeq", top, const(float("-inf"), "float")), const(0, "float"), top)
            factor = exp2_nonpositive(f, f.splat(f.op("fsub", old, top), lanes))
            f.store(reduce_first(f, factor), f.gep(self.at["factor"], 4 * r))
            tops.append(f.splat(top, lanes))
        return tops

    def _round_weights(self, rows: range, scores: list[Reg], units: list[Reg]) -> list[Reg]:
        """Weights as integers of 16 bits; returns the sums of zero points."""
        f, spec = self.f, self.spec
        one = const(1, self.vector)
        inverses = [f.op("fdiv", one, unit) for unit in units]  # of a unit that is 0 or NaN, any integers will do

        def some(k: Reg, now: list[Reg]) -> list[Reg]:
            zero, after = f.load(self.vector, f.gep(self.at["value_zero"], f.mul(k, 4))), []
            for r, row, inverse, total in zip(rows, scores, inverses, now, strict=True):
                address = f.gep(row, f.mul(k, 4))
                integers = round_to_int(f, f.op("fmul", f.load(self.vector, address), inverse))
                rounded = to_float32(f, integers)
                after.append(fma(f, rounded, zero, total))
                if self._as_bytes:
                    for plane, x in enumerate((f.op("lshr", integers, 8), integers)):
                        place = f.gep(self.at["digits"], k)
                        f.store(f.cast("trunc", x, self.int8), place, (2 * r + plane) * spec.block)
                else:
                    f.store(rounded, address)
            return after

        sums = f.loop(self.keys_in_block, [const(0, self.vector)] * len(scores), some, self.lanes)
        return [f.splat(lane_sum(f, total), self.lanes) for total in sums]

    # ------------------------------------------------------------------------------------------------------ values

    def _add_products(self, r: int, column: Reg, products: list[Reg], unit: Reg, zeros: Reg) -> None:
        """Add the products of a row with a block of values, in units, to the row's sums."""
        f = self.f
        sums = f.gep(self.at["sums"], f.add(f.mul(column, 4), 4 * r * self.spec.width))
        factor = f.splat(f.load("float", self.at["factor"], 4 * r), self.lanes)
        for v, x in enumerate(products):
            old = f.op("fmul", f.load(self.vector, sums, 4 * v * self.lanes), factor)
            f.store(fma(f, f.op("fsub", x, zeros), unit, old), sums, 4 * v * self.lanes)

    def _multiply_floats(self, rows: range, values: Reg, units: list[tuple[Reg, Reg]], next_keys: Reg) -> None:
        """Weights by values in float32, for widths that no whole vectors of bytes make up."""
        f, spec, lanes = self.f, self.spec, self.lanes
        vectors = self._vectors(spec.width)

        def columns(c: Reg, _: list[Reg]) -> list[Reg]:
            def key(_: Reg, now: list[Reg]) -> list[Reg]:
                weight, row, *totals = now
                loaded = [self._load_int8(row, lanes * v) for v in range(vectors)]
                for at, r in enumerate(rows):
                    x = f.splat(f.load("float", weight, r * spec.row), lanes)
                    for v in range(vectors):
                        totals[at * vectors + v] = fma(f, x, loaded[v], totals[at * vectors + v])
                return [f.gep(weight, 4), f.gep(row, self.key_stride), *totals]

            start = [const(0, self.vector)] * (len(rows) * vectors)
            results = f.loop(self.keys_in_block, [self.at["weights"], f.gep(values, c), *start], key)[2:]
            for at, r in enumerate(rows):
                self._add_products(r, c, results[at * vectors : (at + 1) * vectors], *units[at])
            return []

        f.loop(spec.width, [], columns, vectors * lanes)

    def _multiply_digits(self, rows: range, values: Reg, units: list[tuple[Reg, Reg]], next_keys: Reg) -> None:
        """Both bytes of the weights of four keys by the values of four keys, interleaved, in one lane. Prefetches the
        second half of the next keys."""
        f, spec, lanes = self.f, self.spec, self.lanes
        dot, data, kind = Int8Dot(f, self.isa), vec(4 * lanes, "i8"), vec(lanes, "i32")
        last = f.add(self.keys_in_block, -1)

        def columns(c: Reg, _: list[Reg]) -> list[Reg]:
            def four(k: Reg, now: list[Reg]) -> list[Reg]:
                totals = list(now)
                keys = [f.add(k, i) for i in range(4)]
                if spec.clamp:  # weights beyond are 0
                    keys = [f.call("llvm.umin.i64", I64, key, last) for key in keys]
                offsets = [f.add(f.mul(key, self.key_stride), c) for key in keys]
                if rows[0] == 0:
                    self._prefetch_keys(f.gep(next_keys, c), k, 4, range(1), spec.block // 2)
                quads = [
                    dot.weights(x)
                    for x in interleave_four(f, [f.load(data, f.gep(values, offset)) for offset in offsets])
                ]
                for at, r in enumerate(rows):
                    for plane in range(2):
                        digits = f.load("i32", f.gep(self.at["digits"], k), (2 * r + plane) * spec.block)
                        x = dot.data(f.bitcast(f.splat(digits, lanes), data))
                        for v in range(4):
                            place = (2 * at + plane) * 4 + v
                            totals[place] = dot.add(totals[place], x, quads[v])
                return totals

            results = f.loop(self.keys_in_block, [const(0, kind)] * (8 * len(rows)), four, 4)
            for at, r in enumerate(rows):
                high, low = ([to_float32(f, x) for x in results[8 * at + p : 8 * at + p + 4]] for p in (0, 4))
                pairs = zip(high, low, strict=True)
                products = [fma(f, a, const(256, self.vector), b) for a, b in pairs]
                self._add_products(r, c, in_order(f, products), *units[at])
            return []

        f.loop(spec.width, [], columns, 4 * lanes)


def interleave_four(f: Function, rows: list[Reg]) -> list[Reg]:
    """Bytes of four vectors: each 32-bit lane of the result has a byte of each. Within a block of 128 bits, a vector of
    the result has every fourth quarter of the lanes (``in_order``)."""
    kind, wide = rows[0].type, vec(lane_count(rows[0].type) // 2, "i16")
    first, second = ([f.bitcast(x, wide) for x in interleave(f, a, b)] for a, b in (rows[:2], rows[2:]))
    return [f.bitcast(x, kind) for a, b in zip(first, second, strict=True) for x in interleave(f, a, b)]


def in_order(f: Function, vectors: list[Reg]) -> list[Reg]:
    """The lanes of four vectors, in the order of the bytes that ``interleave_four`` took."""
    lanes = lane_count(vectors[0].type)
    order = [(quarter, 4 * block + i) for block in range(lanes // 4) for quarter in range(4) for i in range(4)]
    return [pick_lanes(f, vectors, order[v * lanes : (v + 1) * lanes]) for v in range(4)]


def pick_lanes(f: Function, vectors: list[Reg], positions: list[tuple[int, int]]) -> Reg:
    """A vector of the lanes at ``positions``: (vector, lane)."""
    lanes = lane_count(vectors[0].type)
    used = sorted({v for v, _ in positions})
    x = f.shuffle(vectors[used[0]], vectors[used[0]], [lane if v == used[0] else -1 for v, lane in positions])
    for other in used[1:]:
        x = f.shuffle(x, vectors[other], [lanes + lane if v == other else i for i, (v, lane) in enumerate(positions)])
    return x


def emit_quantized_decode(module: Module, name: str, isa: ISA, spec: QuantizedDecodeSpec) -> None:
    """As ``emit_quantized_attention``, of a single position: work units are parts of the keys."""
    f = module.kernel(name)
    f.for_range(f.arg("begin"), f.arg("end"), QuantizedDecodeUnit(f, isa, spec).emit_part)
    f.ret()
