"""Rows quantized to int8, and attention over a cache of them.

Prompts: a tile of queries repays widening a block of keys and values to float32, and the rest is as for float32 caches.
A single position: scores are int8 dot products. Four elements of a key are one lane of the dot product instruction, so
16 keys are transposed as a matrix of 32-bit words. With u = q + 128, which is unsigned,

    sum (q - zq) (k - zk) = sum u k - (128 + zq) sum k - zk sum (q - zq),

where the sum of k is one more dot product for all heads that share the key. All sums are integers below 2**24, exact in
float32, for rows of up to 256 elements. Values are multiplied as they are stored: their scale is a factor of the
weight, and the zero points are one sum for the block. The weights of a block of keys are rounded to 16 bits, so that
products with values are two int8 dot products, of four keys each. This adds at most 2**-17 of the block's largest
weight to each weight, where rounding to int8 has added up to 2**-9 of its range to each value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, lane_count, vec
from edgewright.engine.codegen.vector import (
    Int8Dot,
    clamp,
    fast_max,
    fma,
    int_max,
    int_min,
    interleave,
    prefetch,
    round_to_int,
    to_float32,
    transpose,
)
from edgewright.engine.isa import ISA
from edgewright.engine.kernels.cache import AttentionUnit, CachedAttentionSpec
from edgewright.engine.kernels.dynamic_gemm import row_min_max
from edgewright.engine.kernels.norm_softmax import LOG2E, for_each_overlapping, reduce_lanes
from edgewright.ir.core.quantized_cache import EMPTY_ROW_SCALE, MIN_ROW_SCALE

# ---------------------------------------------------------------------------------------------------------------- rows

_DOUBLE = "double"


def emit_row_quantization(module: Module, name: str, lanes: int, kind: str, length: int) -> None:
    """Work units are rows of ``length`` elements. ``kind``: row_scale, row_zero_point or quantize_rows.

    Arguments: float32 input, result.
    """
    f = module.kernel(name)
    data, out = f.load_arg(PTR, 0), f.load_arg(PTR, 1)

    def row(y: Reg) -> None:
        source = f.gep(data, f.mul(y, 4 * length))
        scale, zero = _row_parameters(f, *row_min_max(f, lanes, length, source))
        if kind == "row_scale":
            f.store(scale, f.gep(out, f.mul(y, 4)))
        elif kind == "row_zero_point":
            f.store(f.cast("trunc", zero, "i8"), f.gep(out, y))
        else:
            _quantize_row(f, lanes, length, source, f.gep(out, f.mul(y, length)), scale, zero)

    f.for_range(f.arg("begin"), f.arg("end"), row)
    f.ret()


def _row_parameters(f: Function, low: Reg, high: Reg) -> tuple[Reg, Reg]:
    """Scale (float32) and zero point (int32), as ``row_parameters`` in ``ir/core/quantized_cache.py``."""
    wide_low, wide_high = (f.cast("fpext", x, _DOUBLE) for x in (low, high))
    exact = f.op("fdiv", f.op("fsub", wide_high, wide_low), const(255, _DOUBLE))
    narrow = f.cast("fptrunc", exact, "float")
    infinite = f.compare("oeq", f.op("fdiv", const(1, "float"), narrow), const(float("inf"), "float"))
    exact = f.select(infinite, const(EMPTY_ROW_SCALE, _DOUBLE), exact)  # 1 / 0 is infinite as well
    least, end = const(float(MIN_ROW_SCALE), "float"), const(float(MIN_ROW_SCALE) * 255, "float")
    factor = f.op("fdiv", least, f.cast("fptrunc", exact, "float"))
    from_zero, to_zero = (f.compare("oeq", x, const(0, "float")) for x in (low, high))
    raised_low = f.select(to_zero, f.op("fsub", const(0, "float"), end), f.op("fmul", low, factor))
    raised_high = f.select(to_zero, high, f.op("fmul", high, factor))
    small = f.compare("olt", exact, const(float(MIN_ROW_SCALE), _DOUBLE))
    low = f.select(small, f.select(from_zero, low, raised_low), low)
    high = f.select(small, f.select(from_zero, end, raised_high), high)
    scale = f.select(small, const(float(MIN_ROW_SCALE), _DOUBLE), exact)
    return f.cast("fptrunc", scale, "float"), _zero_point(f, low, high, scale)


def _zero_point(f: Function, low: Reg, high: Reg, scale: Reg) -> Reg:
    """From the end of the range with the smaller error."""
    below, above = (f.op("fdiv", f.cast("fpext", x, _DOUBLE), scale) for x in (low, high))  # not positive, not negative
    first_error = f.op("fadd", const(128, _DOUBLE), below)
    second_error = f.op("fsub", const(127, _DOUBLE), above)
    first, second = f.op("fsub", const(-128, _DOUBLE), below), f.op("fsub", const(127, _DOUBLE), above)
    chosen = f.select(f.compare("olt", first_error, second_error), first, second)
    rounded = round_to_int(f, clamp(f, f.cast("fptrunc", clamp(f, chosen, -128, 127), "float"), -128, 127))
    return int_max(f, rounded, const(-128, "i32"))  # NaN


def _quantize_row(f: Function, lanes: int, length: int, source: Reg, target: Reg, scale: Reg, zero: Reg) -> None:
    inverse = f.op("fdiv", const(1, "float"), scale)

    def some(at: Reg, like: Reg) -> None:
        x = f.load(like.type, f.gep(source, f.mul(at, 4)))
        count = lane_count(like.type)
        steps = round_to_int(f, clamp(f, f.op("fmul", x, f.splat(inverse, count)), -512, 512))
        steps = int_max(f, steps, const(-512, steps.type))  # NaN
        moved = f.add(steps, f.splat(zero, count))
        bounded = int_min(f, int_max(f, moved, const(-128, moved.type)), const(127, moved.type))
        f.store(f.cast("trunc", bounded, vec(count, "i8")), f.gep(target, at))

    for_each_overlapping(f, lanes, length, some)


# ----------------------------------------------------------------------------------------------------------- attention

_DIGITS = 65535  # the largest weight in units of a block
_MAX_SHUFFLED_GROUPS = 8  # above, parameters are copied one by one


@dataclass(frozen=True)
class QuantizedAttentionSpec(CachedAttentionSpec):
    """Attention over int8 rows."""

    def row_sizes(self) -> dict[str, int]:
        return {**super().row_sizes(), "bias": 1, "sum": 1, "gain": 1, "digits": self.block // 2}

    def group_sizes(self, isa: ISA) -> dict[str, int]:
        sizes = super().group_sizes(isa)
        if self.by_dots:
            return {**sizes, **dict.fromkeys(("key_scale", "key_zero", "value_scale", "value_zero"), self.block)}
        return {**sizes, "values": self.width * self.block}


class QuantizedAttentionUnit(AttentionUnit):
    """Further arguments: scales and zero points of queries, keys and values."""

    cache_item = 1

    def __init__(self, f: Function, isa: ISA, spec: CachedAttentionSpec) -> None:
        super().__init__(f, isa, spec)
        pointers = [f.load_arg(PTR, 10 + i) for i in range(6)]
        self.query_scale, self.query_zero, self.key_scale, self.key_zero, self.value_scale, self.value_zero = pointers
        self.int8 = vec(self.lanes, "i8")
        if not spec.by_dots:
            self.value_stride = 4 * spec.width

    def _load_int8(self, pointer: Reg, offset: int | Reg = 0) -> Reg:
        """Elements as float32."""
        f = self.f
        return to_float32(f, f.cast("sext", f.load(self.int8, pointer, offset), vec(self.lanes, "i32")))

    def _load_zero(self, pointer: Reg, index: Reg) -> Reg:
        return self.f.cast("sitofp", self.f.load("i8", self.f.gep(pointer, index)), "float")

    def _cache_rows(self, batch: Reg, group: Reg) -> tuple[Reg, Reg]:
        f = self.f
        self.parameters = f.add(f.mul(f.op("mul", batch, self.size), self.spec.groups), group)
        return super()._cache_rows(batch, group)

    def _parameters_of(self, scales: Reg, zeros: Reg, key: Reg) -> tuple[Reg, Reg]:
        """Scale and zero point of a key or value, which is at most the last of the cache."""
        f = self.f
        if self.spec.clamp:
            key = f.call("llvm.umin.i64", I64, key, f.add(self.size, -1))
        index = f.add(self.parameters, f.mul(key, self.spec.groups))
        return f.load("float", f.gep(scales, f.mul(index, 4))), self._load_zero(zeros, index)

    # ----------------------------------------------------------------------------------------------------- queries

    def _load_queries(self, index: Reg, positions: Reg) -> None:
        f, spec, width = self.f, self.spec, self.spec.width
        heads = spec.groups * spec.shared

        def row(j: Reg, _: list[Reg]) -> list[Reg]:
            position, head = f.op("udiv", j, spec.shared), f.op("urem", j, spec.shared)
            inside = f.compare("ult", position, positions)
            at = f.select(inside, f.add(index, f.add(f.mul(position, heads), head)), index)
            gain = f.op(
                "fmul", f.load("float", f.gep(self.query_scale, f.mul(at, 4))), const(spec.scale * LOG2E, "float")
            )
            gain = f.select(inside, gain, const(0, "float"))
            zero, source = self._load_zero(self.query_zero, at), f.gep(self.query, f.mul(at, width))
            (self._store_query_bytes if spec.by_dots else self._store_query)(j, source, zero, gain)
            for v in range(0, 4 * width, 4 * self.lanes):
                f.store(const(0, self.vector), f.gep(self.at["sums"], f.mul(j, 4 * width)), v)
            f.store(const(float("-inf"), "float"), f.gep(self.at["top"], f.mul(j, 4)))
            f.store(const(0, "float"), f.gep(self.at["total"], f.mul(j, 4)))
            return []

        f.loop(self.rows, [], row)

    def _store_query(self, j: Reg, source: Reg, zero: Reg, gain: Reg) -> None:
        """Row ``j`` as float32, scaled."""
        f = self.f
        for v in range(0, self.spec.width, self.lanes):
            x = f.op("fsub", self._load_int8(source, v), f.splat(zero, self.lanes))
            x = f.op("fmul", x, f.splat(gain, self.lanes))
            f.store(x, f.gep(self.at["query"], f.mul(j, 4 * self.spec.width)), 4 * v)

    def _store_query_bytes(self, j: Reg, source: Reg, zero: Reg, gain: Reg) -> None:
        """Row ``j`` as unsigned bytes, and what corrects its products."""
        f, width = self.f, self.spec.width
        target, total = f.gep(self.at["query"], f.mul(j, width)), const(0, self.vector)
        for v in range(0, width, self.lanes):
            f.store(f.op("xor", f.load(self.int8, source, v), -128), target, v)
            total = f.op("fadd", total, f.op("fsub", self._load_int8(source, v), f.splat(zero, self.lanes)))
        negative = f.op("fsub", const(0, "float"), reduce_lanes(f, total, lambda a, b: f.op("fadd", a, b)))
        bias = f.op("fsub", const(-128, "float"), zero)
        for name, number in (("bias", bias), ("sum", negative), ("gain", gain)):
            f.store(number, f.gep(self.at[name], f.mul(j, 4)))

    # ---------------------------------------------------------------------------------------- prompts: float32 blocks

    def _value_rows(self, values: Reg, first: Reg) -> Reg:
        return super()._value_rows(values, first) if self.spec.by_dots else self._widen_values(values, first)

    def _widen_values(self, values: Reg, first: Reg) -> Reg:
        """A block of values as float32; only those that count."""
        f, spec = self.f, self.spec
        rows = super()._value_rows(values, first)
        count = f.call("llvm.umin.i64", I64, f.op("sub", self.end, first), const(spec.block, I64))

        def row(k: Reg, _: list[Reg]) -> list[Reg]:
            scale, zero = self._parameters_of(self.value_scale, self.value_zero, f.add(first, k))
            source, target = f.gep(rows, f.mul(k, self.key_stride)), f.gep(self.at["values"], f.mul(k, 4 * spec.width))
            for v in range(0, spec.width, self.lanes):
                f.store(self._widen(f.gep(source, v), scale, zero), target, 4 * v)
            return []

        f.loop(count, [], row)
        return self.at["values"]

    def _widen(self, pointer: Reg, scale: Reg, zero: Reg) -> Reg:
        f, lanes = self.f, self.lanes
        return f.op("fmul", f.op("fsub", self._load_int8(pointer), f.splat(zero, lanes)), f.splat(scale, lanes))

    def _key_loader(self, keys: Reg, start: Reg) -> Callable[[Reg], list[Reg]]:
        f, address = self.f, self._key_address(keys, start)
        rows = [
            (address(i), *self._parameters_of(self.key_scale, self.key_zero, f.add(start, i)))
            for i in range(self.lanes)
        ]
        return lambda d: [self._widen(f.gep(key, d), scale, zero) for key, scale, zero in rows]

    # -------------------------------------------------------------------------------- one position: int8 dot products

    def _begin_block(self, batch: Reg, first: Reg) -> None:
        """Scales and zero points of the block, by group."""
        f, spec = self.f, self.spec
        index = f.mul(f.add(f.op("mul", batch, self.size), first), spec.groups)
        copy = self._copy_parameters if spec.clamp or spec.groups > _MAX_SHUFFLED_GROUPS else self._shuffle_parameters
        for name in ("key", "value"):
            copy(getattr(self, f"{name}_scale"), self.at[f"{name}_scale"], index, first, 4)
            copy(getattr(self, f"{name}_zero"), self.at[f"{name}_zero"], index, first, 1)

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
                f.store(x, f.gep(target, f.mul(k, 4)), 4 * group * spec.block)
            return []

        f.loop(spec.block, [], some, lanes)

    def _copy_parameters(self, source: Reg, target: Reg, index: Reg, first: Reg, item: int) -> None:
        f, spec = self.f, self.spec
        last = f.op("sub", f.add(self.size, -1), first)

        def key(k: Reg, _: list[Reg]) -> list[Reg]:
            at = f.add(index, f.mul(f.call("llvm.umin.i64", I64, k, last), spec.groups))

            def one(group: Reg, _: list[Reg]) -> list[Reg]:
                place = f.add(at, group)
                x = f.load("float", f.gep(source, f.mul(place, 4))) if item == 4 else self._load_zero(source, place)
                f.store(x, f.gep(target, f.add(f.mul(group, 4 * spec.block), f.mul(k, 4))))
                return []

            f.loop(spec.groups, [], one)
            return []

        f.loop(spec.block, [], key)

    def _dot_scores(self, keys: Reg, first: Reg) -> None:
        f, spec, lanes = self.f, self.spec, self.lanes

        def some(k: Reg, _: list[Reg]) -> list[Reg]:
            address = self._key_address(keys, f.op("add", first, k))
            addresses = [address(i) for i in range(lanes)]
            for key in addresses:
                self._prefetch(key)
            total, *products = (to_float32(f, x) for x in self._dot_products(addresses))
            scale, zero = (f.load(self.vector, f.gep(self.at[name], f.mul(k, 4))) for name in ("key_scale", "key_zero"))
            for r, product in enumerate(products):
                bias, row_sum, gain = (
                    f.splat(f.load("float", self.at[name], 4 * r), lanes) for name in ("bias", "sum", "gain")
                )
                score = f.op("fmul", fma(f, zero, row_sum, fma(f, bias, total, product)), f.op("fmul", scale, gain))
                f.store(score, f.gep(self.at["weights"], f.mul(k, 4)), 4 * r * spec.block)
            return []

        f.loop(spec.block, [], some, lanes)

    def _dot_products(self, addresses: list[Reg]) -> list[Reg]:
        """The sums of keys, and the products of each row with them: a key in each lane."""
        f, spec, lanes = self.f, self.spec, self.lanes
        dot, words, data = Int8Dot(f, self.isa), spec.width // 4, vec(4 * lanes, "i8")
        sums = [const(0, vec(lanes, "i32"))] * (1 + spec.shared)
        ones = dot.data(const(1, data))
        for at in range(0, words, lanes):
            count = min(lanes, words - at)
            pad = [*range(count), *[-1] * (lanes - count)]
            rows = [f.load(vec(count, "i32"), a, 4 * at) for a in addresses]
            rows = [row if count == lanes else f.shuffle(row, row, pad) for row in rows]
            for d, column in enumerate(transpose(f, rows)[:count]):
                weights = dot.weights(f.bitcast(column, data))
                sums[0] = dot.add(sums[0], ones, weights)
                for r in range(spec.shared):
                    query = f.splat(f.load("i32", self.at["query"], r * spec.width + 4 * (at + d)), lanes)
                    sums[1 + r] = dot.add(sums[1 + r], dot.data(f.bitcast(query, data)), weights)
        return sums

    def _multiply_values(self, j: Reg, weights: Reg, values: Reg, count: Reg) -> None:
        if not self.spec.by_dots:
            super()._multiply_values(j, weights, values, count)
            return
        f, spec = self.f, self.spec
        units = [self._split_weights(r, f.gep(weights, 4 * r * spec.block), count) for r in range(self.row_tile)]
        multiply = self._multiply_digits if spec.width % (4 * self.lanes) == 0 else self._multiply_floats
        most = 3 if self.isa.registers >= 32 else 1
        for first in range(0, self.row_tile, most):
            rows = range(first, min(first + most, self.row_tile))
            multiply(j, rows, weights, values, count, units)

    def _split_weights(self, r: int, weights: Reg, count: Reg) -> tuple[Reg, Reg]:
        """Weights of a row, multiplied by the scales of values, in units: rounded to 0..65535, as floats, and as two
        planes of bytes. Returns the unit and the sum of zero points in units, both in all lanes."""
        f, spec, lanes = self.f, self.spec, self.lanes
        limit = f.splat(f.cast("trunc", count, "i32"), lanes)
        scaled = []
        for v in range(0, spec.block, lanes):
            indices = Reg("<" + ", ".join(f"i32 {v + i}" for i in range(lanes)) + ">", vec(lanes, "i32"))
            x = f.op("fmul", f.load(self.vector, weights, 4 * v), f.load(self.vector, self.at["value_scale"], 4 * v))
            inside = f.compare("slt", indices, limit)  # beyond may be anything, such as NaN
            scaled.append(f.select(inside, x, const(0, self.vector)))
        unit = f.op("fmul", self._largest(scaled), const(1 / _DIGITS, self.vector))
        inverse = f.op("fdiv", const(1, self.vector), unit)  # of a unit that is 0 or NaN, any integers will do
        zeros = const(0, self.vector)
        for at, x in enumerate(scaled):
            integers = round_to_int(f, f.op("fmul", x, inverse))
            rounded = to_float32(f, integers)
            f.store(rounded, weights, 4 * at * lanes)
            zeros = fma(f, rounded, f.load(self.vector, self.at["value_zero"], 4 * at * lanes), zeros)
            planes = (f.op("lshr", integers, 8), integers)
            for plane, x in enumerate(planes):
                place = (2 * r + plane) * spec.block + at * lanes
                f.store(f.cast("trunc", x, self.int8), self.at["digits"], place)
        return unit, f.splat(reduce_lanes(f, zeros, lambda a, b: f.op("fadd", a, b)), lanes)

    def _largest(self, vectors: list[Reg]) -> Reg:
        """The largest element, in all lanes; NaN if the sum of all is not finite."""
        f, best, total = self.f, vectors[0], vectors[0]
        for x in vectors[1:]:
            best, total = fast_max(f, best, x), f.op("fadd", total, x)
        top = reduce_lanes(f, best, lambda a, b: fast_max(f, a, b))
        everything = reduce_lanes(f, total, lambda a, b: f.op("fadd", a, b))
        return f.splat(fma(f, everything, const(0, "float"), top), self.lanes)

    def _add_products(self, j: Reg, r: int, column: Reg, products: list[Reg], unit: Reg, zeros: Reg) -> None:
        """Add the products of a row with a block of values, in units, to the row's sums."""
        f, width = self.f, self.spec.width
        sums = f.gep(self.at["sums"], f.add(f.mul(f.add(j, r), 4 * width), f.mul(column, 4)))
        factor = f.splat(f.load("float", f.gep(self.at["factor"], f.mul(j, 4)), 4 * r), self.lanes)
        for v, x in enumerate(products):
            old = f.op("fmul", f.load(self.vector, sums, 4 * v * self.lanes), factor)
            f.store(fma(f, f.op("fsub", x, zeros), unit, old), sums, 4 * v * self.lanes)

    def _multiply_floats(
        self, j: Reg, rows: range, weights: Reg, values: Reg, count: Reg, units: list[tuple[Reg, Reg]]
    ) -> None:
        """Weights by values in float32, for widths that no whole vectors of bytes make up."""
        f, spec, lanes = self.f, self.spec, self.lanes
        vectors = self._vectors(spec.width)

        def columns(c: Reg, _: list[Reg]) -> list[Reg]:
            def key(_: Reg, now: list[Reg]) -> list[Reg]:
                weight, row, *totals = now
                loaded = [self._load_int8(row, lanes * v) for v in range(vectors)]
                for at, r in enumerate(rows):
                    x = f.splat(f.load("float", weight, 4 * r * spec.block), lanes)
                    for v in range(vectors):
                        totals[at * vectors + v] = fma(f, x, loaded[v], totals[at * vectors + v])
                return [f.gep(weight, 4), f.gep(row, self.key_stride), *totals]

            start = [const(0, self.vector)] * (len(rows) * vectors)
            results = f.loop(count, [weights, f.gep(values, c), *start], key)[2:]
            for at, r in enumerate(rows):
                self._add_products(j, r, c, results[at * vectors : (at + 1) * vectors], *units[r])
            return []

        f.loop(spec.width, [], columns, vectors * lanes)

    def _multiply_digits(
        self, j: Reg, rows: range, weights: Reg, values: Reg, count: Reg, units: list[tuple[Reg, Reg]]
    ) -> None:
        """Both bytes of the weights of four keys by the values of four keys, interleaved, in one lane."""
        f, spec, lanes = self.f, self.spec, self.lanes
        dot, data, kind = Int8Dot(f, self.isa), vec(4 * lanes, "i8"), vec(lanes, "i32")
        last = f.add(count, -1)

        def columns(c: Reg, _: list[Reg]) -> list[Reg]:
            def four(k: Reg, now: list[Reg]) -> list[Reg]:
                totals = list(now)
                keys = [f.add(k, i) for i in range(4)]
                if spec.clamp:  # weights beyond are 0
                    keys = [f.call("llvm.umin.i64", I64, key, last) for key in keys]
                addresses = [f.gep(values, f.add(f.mul(key, self.key_stride), c)) for key in keys]
                if rows[0] == 0:
                    for address in addresses:
                        prefetch(f, address, spec.block * self.key_stride, into_l1=False)
                loaded = [f.load(data, address) for address in addresses]
                quads = [dot.weights(x) for x in interleave_four(f, loaded)]
                for at, r in enumerate(rows):
                    for plane in range(2):
                        digits = f.load("i32", f.gep(self.at["digits"], k), (2 * r + plane) * spec.block)
                        x = dot.data(f.bitcast(f.splat(digits, lanes), data))
                        for v in range(4):
                            place = (2 * at + plane) * 4 + v
                            totals[place] = dot.add(totals[place], x, quads[v])
                return totals

            results = f.loop(count, [const(0, kind)] * (8 * len(rows)), four, 4)
            for at, r in enumerate(rows):
                high, low = ([to_float32(f, x) for x in results[8 * at + p : 8 * at + p + 4]] for p in (0, 4))
                pairs = zip(high, low, strict=True)
                products = [fma(f, a, const(256, self.vector), b) for a, b in pairs]
                self._add_products(j, r, c, in_order(f, products), *units[r])
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


def emit_quantized_attention(module: Module, name: str, isa: ISA, spec: CachedAttentionSpec) -> None:
    """As ``emit_cached_attention``, with further arguments: scales and zero points of queries, keys and values."""
    f = module.kernel(name)
    unit = QuantizedAttentionUnit(f, isa, spec)
    f.for_range(f.arg("begin"), f.arg("end"), unit.emit_part if spec.parts > 1 else unit.emit)
    f.ret()
