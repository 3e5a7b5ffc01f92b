"""Bilinear resize of other dialects: each pixel is a weighted sum of four, with integer weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Operand, Reg, const, lane_count, vec
from edgewright.engine.codegen.ranged_int import RangedIntBuilder
from edgewright.engine.codegen.requant import storage_offset
from edgewright.engine.graph.layout import Storage
from edgewright.engine.graph.nodes import Node, is_float32
from edgewright.engine.kernels.matmul import power_of_two_chunks
from edgewright.engine.kernels.tile_loops import byte_offset, for_each_channel_vector
from edgewright.engine.lower.base import DescribedLowering, Lowering, LoweringContext
from edgewright.engine.lower.elementwise import llvm_type
from edgewright.ir.graph import Array, Value
from edgewright.ir.int_arithmetic import IntRangeError, RangedInt
from edgewright.ir.int_rules import BilinearResize, ResizeAxis, dtype_range

_ENTRY = 32  # bytes of a table entry: two offsets, two weights


class IntResize(DescribedLowering):
    """Bilinear resize in exact integers, or in float64 for float32 images."""

    def __init__(self, node: Node, spec: BilinearResize) -> None:
        super().__init__(node)
        self.spec = spec
        self.is_float = is_float32(spec.data) and is_float32(node.out)
        self.kind, self.reach = ("double", (0, 0)) if self.is_float else _accumulator(spec)
        self.text = self._validate()

    @classmethod
    def accept_description(cls, node: Node, description: BilinearResize) -> Lowering | None:
        image, out = description.data.bound, node.out.bound
        if len(image) != 4 or len(out) != 4 or 0 in (*image, *out) or (image[0], image[3]) != (out[0], out[3]):
            return None
        for axis, in_size, out_size in zip(description.axes, image[1:3], out[1:3], strict=True):
            if axis.indices.shape != (2, out_size) or int(axis.indices.min()) < 0 or int(axis.indices.max()) >= in_size:
                return None
        return cls(node, description)

    def _validate(self) -> str:
        """Emit the arithmetic after the sum once: raises if it may overflow."""
        module = Module()
        f = module.function("trial", [(vec(4, self.kind), "x")])
        result = self._finish_pixel(f, f.arg("x"))
        return f"{module.text()} {result} {self.kind} {_storage_offset(self.spec.data)}"

    def _finish_pixel(self, f: Function, total: Reg) -> Reg:
        if self.is_float:
            return _divide_to_float(f, total, self.spec.divisor)
        i, out = RangedIntBuilder(f, lane_count(total.type)), self.node.out
        result, (low, high) = RangedInt(total, *self.reach), dtype_range(out)
        if self.spec.finish is not None:
            result = self.spec.finish(i, result)
        if result.low < low or result.high > high:
            raise IntRangeError(f"{result.low} to {result.high} as {out.dtype}")
        assert out.dtype is not None
        return i.store(result, 8 * out.dtype.itemsize, _storage_offset(out))

    def emit(self, context: LoweringContext) -> None:
        data, out = context.storage(self.spec.data), context.storage(self.node.out)
        rows, columns = (
            context.weights.add(self._table(axis, step))
            for axis, step in zip(self.spec.axes, (data.layout.row, data.layout.pixel), strict=True)
        )
        batch, high, wide, channels = out.layout.shape
        key = (out.layout.shape, out.layout.strides, data.layout.image, data.layout.item, self.text)
        lanes = context.isa.lanes if self.kind == "i32" else context.isa.lanes // 2

        def build(module: Module, name: str) -> None:
            self._build(module, name, lanes, data, out)

        name = context.kernel("int_resize", key, build)
        context.step(name, [data.at(), out.at(), rows, columns], batch * high, batch * high * wide * channels * 0.5)

    def _table(self, axis: ResizeAxis, step: int) -> Array:
        entries = np.zeros((axis.indices.shape[1], _ENTRY // 8), np.int64)
        entries[:, :2] = axis.indices.T * step
        weights = axis.weights.T
        entries[:, 2:] = weights.astype(np.float64).view(np.int64) if self.is_float else weights
        return entries.view(np.uint8)

    def _build(self, module: Module, name: str, lanes: int, data: Storage, out: Storage) -> None:
        f = module.kernel(name)
        source, target, rows, columns = (f.load_arg(PTR, i) for i in range(4))
        _, high, wide, channels = out.layout.shape

        def row(unit: Reg) -> None:
            batch, y = f.op("udiv", unit, high), f.op("urem", unit, high)
            out_row = f.gep(f.gep(target, f.mul(batch, out.layout.image)), f.mul(y, out.layout.row))
            row_offsets, row_weights = self._entry(f, rows, y)
            image = f.gep(source, f.mul(batch, data.layout.image))
            source_rows = [f.gep(image, p) for p in row_offsets]

            def pixel(x: Reg, _: list[Reg]) -> list[Reg]:
                column_offsets, column_weights = self._entry(f, columns, x)
                corners = [f.gep(start, side) for start in source_rows for side in column_offsets]
                pixel_out = f.gep(out_row, f.mul(x, out.layout.pixel))

                def vector(first: Operand, width: int, _: int) -> None:
                    in_offset, out_offset = (byte_offset(f, first, storage.layout.item) for storage in (data, out))
                    loaded = [self._load(f, at, in_offset, width) for at in corners]
                    f.store(
                        self._finish_pixel(f, _interpolate(f, loaded, column_weights, row_weights)),
                        pixel_out,
                        out_offset,
                    )

                for_each_channel_vector(f, channels, lanes, _exact_vectors, vector)
                return []

            f.loop(wide, [], pixel)

        f.for_range(f.arg("begin"), f.arg("end"), row)
        f.ret()

    def _entry(self, f: Function, entries: Reg, index: Reg) -> tuple[list[Reg], list[Reg]]:
        at = f.gep(entries, f.mul(index, _ENTRY))
        return [f.load(I64, at, 8 * n, 8) for n in (0, 1)], [f.load(self.kind, at, 16 + 8 * n, 8) for n in (0, 1)]

    def _load(self, f: Function, at: Reg, offset: Operand, width: int) -> Reg:
        value = self.spec.data
        x = f.load(vec(width, llvm_type(value)), at, offset)
        if self.is_float:
            return f.cast("fpext", x, vec(width, "double"))
        signed = dtype_range(value)[0] + _storage_offset(value) < 0
        return f.add(f.cast("sext" if signed else "zext", x, vec(width, self.kind)), -_storage_offset(value))


def _exact_vectors(total: int, max_width: int) -> list[tuple[int, int]]:
    """Vectors that cover exactly ``total`` elements."""
    return [(width, width) for _, width in power_of_two_chunks(total, max_width)]


def _storage_offset(value: Value) -> int:
    return 0 if value.q is None else storage_offset(value.q)


def _accumulator(spec: BilinearResize) -> tuple[str, tuple[int, int]]:
    """The LLVM type that holds every sum, and the range of the sums."""
    low, high = dtype_range(spec.data)
    weight_bound = spec.axes[0].weight_bound * spec.axes[1].weight_bound
    low, high = min(low, 0) * weight_bound, max(high, 0) * weight_bound
    if any(int(axis.weights.min()) < 0 for axis in spec.axes):
        low, high = -max(-low, high), max(-low, high)
    if max(-low, high) >= 1 << 62:
        raise IntRangeError("sum exceeds 64 bits")
    return ("i32" if max(-low, high) < 1 << 31 else "i64"), (low, high)


def _interpolate(f: Function, corners: Sequence[Reg], column_weights: Sequence[Reg], row_weights: Sequence[Reg]) -> Reg:
    """The weighted sum of the four neighbors, in their common type."""
    is_float = "double" in corners[0].type
    times, plus = ("fmul", "fadd") if is_float else ("mul", "add")

    def lerp(a: Reg, b: Reg, weights: Sequence[Reg]) -> Reg:
        first, second = (f.splat(w, lane_count(a.type)) for w in weights)
        return f.op(plus, f.op(times, a, first), f.op(times, b, second))

    return lerp(lerp(corners[0], corners[1], column_weights), lerp(corners[2], corners[3], column_weights), row_weights)


def _divide_to_float(f: Function, total: Reg, divisor: int) -> Reg:
    """Divide in float64 and round to float32."""
    quotient = f.op("fdiv", total, const(divisor, total.type))
    return f.cast("fptrunc", quotient, vec(lane_count(quotient.type), "float"))
