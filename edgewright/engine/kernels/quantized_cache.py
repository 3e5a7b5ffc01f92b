"""Rows quantized to int8, and attention of prompts over a cache of them.

A tile of queries repays widening a block of keys and values to float32; the rest is as for float32 caches. For a single
position, see ``quantized_decode``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, lane_count, vec
from edgewright.engine.codegen.vector import (
    clamp,
    int_max,
    int_min,
    round_to_int,
    to_float32,
)
from edgewright.engine.isa import ISA
from edgewright.engine.kernels.cache import AttentionUnit, CachedAttentionSpec
from edgewright.engine.kernels.dynamic_gemm import row_min_max
from edgewright.engine.kernels.norm_softmax import LOG2E, for_each_overlapping
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


@dataclass(frozen=True)
class QuantizedAttentionSpec(CachedAttentionSpec):
    """Attention over int8 rows."""

    def group_sizes(self, isa: ISA) -> dict[str, int]:
        return {**super().group_sizes(isa), "values": self.width * self.block}


class QuantizedAttentionUnit(AttentionUnit):
    """Further arguments: scales and zero points of queries, keys and values."""

    cache_item = 1

    def __init__(self, f: Function, isa: ISA, spec: CachedAttentionSpec) -> None:
        super().__init__(f, isa, spec)
        pointers = [f.load_arg(PTR, 10 + i) for i in range(6)]
        self.query_scale, self.query_zero, self.key_scale, self.key_zero, self.value_scale, self.value_zero = pointers
        self.int8 = vec(self.lanes, "i8")
        self.value_stride = 4 * spec.width  # of widened rows

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
            self._store_query(j, source, zero, gain)
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

    # ------------------------------------------------------------------------------------------------------ blocks

    def _value_rows(self, values: Reg, first: Reg) -> Reg:
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


def emit_quantized_attention(module: Module, name: str, isa: ISA, spec: CachedAttentionSpec) -> None:
    """As ``emit_cached_attention``, with further arguments: scales and zero points of queries, keys and values."""
    f = module.kernel(name)
    unit = QuantizedAttentionUnit(f, isa, spec)
    f.for_range(f.arg("begin"), f.arg("end"), unit.emit)
    f.ret()
