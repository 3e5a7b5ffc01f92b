"""Integer pools, reductions and resizes of other dialects."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Operand, Reg, const, lane_count, vec
from edgewright.engine.codegen.ranged_int import RangedIntBuilder
from edgewright.engine.codegen.requant import affine_of, storage_offset
from edgewright.engine.codegen.vector import int_max, int_min
from edgewright.engine.graph.layout import Border, Storage
from edgewright.engine.graph.nodes import Node, is_float32
from edgewright.engine.kernels.elementwise import LoopNest, LoopOperand, plan_loops
from edgewright.engine.kernels.matmul import power_of_two_chunks
from edgewright.engine.kernels.reduce import Combine, emit_strided_reduce
from edgewright.engine.kernels.tile_loops import byte_offset, for_each_channel_vector
from edgewright.engine.lower.base import DescribedLowering, Lowering, LoweringContext
from edgewright.engine.lower.elementwise import llvm_type
from edgewright.ir.graph import Array, Value
from edgewright.ir.int_arithmetic import IntRangeError, RangedInt
from edgewright.ir.int_rules import BilinearResize, IntReduction, ResizeAxis, dtype_range

# ----------------------------------------------------------------------------------------------------------- int reduce

# Integer pools and reductions of other dialects: an exact sum, maximum or minimum, then a requantization.

_COMBINE: dict[str, Combine] = {
    "sum": lambda f, a, b: f.op("add", a, b),
    "max": int_max,
    "min": int_min,
}


@dataclass(frozen=True)
class StridedInput:
    """The elements of one result: start offset, strides per result, and (count, stride) of each reduced dimension."""

    start: int
    strides: tuple[int, ...]
    reduced: tuple[tuple[int, int], ...]


class IntReduce(DescribedLowering):
    """A reduction of one operand over windows or dimensions."""

    exact_reads = False

    def __init__(self, node: Node, reduction: IntReduction) -> None:
        super().__init__(node)
        self.reduction = reduction
        self.text = self._validate()

    @classmethod
    def accept_description(cls, node: Node, description: IntReduction) -> Lowering | None:
        return cls(node, description) if _fits(node, description) else None

    def required_border(self) -> tuple[Value, Border] | None:
        top, bottom, left, right = self.reduction.pads
        return (self.reduction.data, Border(top, bottom, left, right)) if any(self.reduction.pads) else None

    def emit(self, context: LoweringContext) -> None:
        node, reduction = self.node, self.reduction
        data, out = context.storage(reduction.data), context.storage(node.out)
        extras = [context.storage(v) for v in reduction.extras]
        strided, shape = _strided_input(data, reduction), list(out.layout.shape)
        operands = [LoopOperand(llvm_type(reduction.data), data.layout.item, strided.strides)]
        operands += [LoopOperand("i32", 4, _broadcast_strides(h)) for h in extras]
        operands.append(LoopOperand(llvm_type(node.out), out.layout.item, out.layout.strides))
        lanes, body = context.isa.lanes, self._finish_body
        for loops, offsets in plan_loops(shape, operands):

            def build(module: Module, name: str, loops: LoopNest = loops) -> None:
                emit_strided_reduce(
                    module, name, lanes, loops, strided.reduced, _widen(reduction.data), _COMBINE[reduction.kind], body
                )

            name = context.kernel(
                "int_reduce", (loops, strided.reduced, str(reduction.data.dtype), reduction.kind, self.text), build
            )
            slots = [h.at(m) for h, m in zip((data, *extras, out), offsets, strict=True)]
            slots[0] = data.at(strided.start + offsets[0])
            work = math.prod(loops.shape) * math.prod(n for n, _ in strided.reduced)
            context.step(name, slots, loops.units, work * 0.1)

    def _validate(self) -> str:
        """Emit the arithmetic after the reduction once: raises if it may overflow."""
        module, reduction = Module(), self.reduction
        f = module.function("trial", [("<4 x i32>", f"x{n}") for n in range(1 + len(reduction.extras))])
        low, high = dtype_range(reduction.data)
        if (
            reduction.kind == "sum"
            and max(-low, high) * reduction.count >= 1 << 31
            and (self.node.out.dtype != np.dtype(np.int32) or reduction.finish is not None)
        ):
            raise IntRangeError("sum exceeds 32 bits")
        result = self._finish_body(f, [f.arg(f"x{n}") for n in range(1 + len(reduction.extras))])
        return f"{module.text()} {result}"

    def _finish_body(self, f: Function, regs: list[Reg]) -> Reg:
        """From the reduced value to the stored result."""
        i, reduction, out = RangedIntBuilder(f, lane_count(regs[0].type)), self.reduction, self.node.out
        low, high = dtype_range(reduction.data)
        count = reduction.count if reduction.kind == "sum" else 1
        reduced = f.add(regs[0], -_storage_offset(reduction.data) * count)
        low, high = low * count, high * count
        if low < -(1 << 31) or high >= 1 << 31:
            low, high = -(1 << 31), (1 << 31) - 1  # wraps, as in numpy
        result = RangedInt(reduced, low, high)
        if reduction.finish is not None:
            result = reduction.finish(i, result, [_bounded(*x) for x in zip(regs[1:], reduction.extras, strict=True)])
        minimum, maximum = dtype_range(out)
        if result.low < minimum or result.high > maximum:
            raise IntRangeError(f"{result.low} to {result.high} as {out.dtype}")
        assert out.dtype is not None
        return i.store(result, 8 * out.dtype.itemsize, _storage_offset(out))


def _bounded(reg: Reg, constant: Value) -> RangedInt:
    """Elements of a constant."""
    assert constant.data is not None
    return RangedInt(reg, int(constant.data.min()), int(constant.data.max()))


def _broadcast_strides(storage: Storage) -> tuple[int, ...]:
    return tuple(0 if n == 1 else s for n, s in zip(storage.layout.shape, storage.layout.strides, strict=True))


def _strided_input(data: Storage, reduction: IntReduction) -> StridedInput:
    layout = data.layout
    if reduction.window is not None:
        first, *inner, last = layout.strides
        start = -reduction.pads[0] * inner[0] - reduction.pads[2] * inner[-1]
        strides = (first, *(n * s for n, s in zip(reduction.stride, inner, strict=True)), last)
        return StridedInput(start, strides, tuple(zip(reduction.window, inner, strict=True)))
    reduced = tuple((layout.shape[a], layout.strides[a]) for a in reduction.axes)
    outer = [0 if d in reduction.axes else s for d, s in enumerate(layout.strides)]
    strides = tuple(outer) if reduction.keepdims else tuple(s for d, s in enumerate(outer) if d not in reduction.axes)
    return StridedInput(0, strides, reduced)


def _fits(node: Node, reduction: IntReduction) -> bool:
    """Whether int32 holds every element, padding holds the neutral element and the output has the matching shape."""
    q, (low, high) = reduction.data.q, dtype_range(reduction.data)
    if low < -(1 << 31) or high >= 1 << 31:
        return False
    if any(reduction.pads) and (q is None or affine_of(q).zero - storage_offset(q) != reduction.zero):
        return False
    return not (
        reduction.window is not None and (reduction.data.bound[-1:] != node.out.bound[-1:] or node.out.bound[0] > 1024)
    )


def _storage_offset(value: Value) -> int:
    """Offset between a stored value and the engine's internal representation."""
    return 0 if value.q is None else storage_offset(value.q)


def _widen(value: Value) -> Callable[[Function, Reg], Reg]:
    signed = dtype_range(value)[0] + _storage_offset(value) < 0
    return lambda f, x: f.cast("sext" if signed else "zext", x, x.type.replace(llvm_type(value), "i32"))


# ----------------------------------------------------------------------------------------------------------- int resize

# Bilinear resize of other dialects: each pixel is a weighted sum of four, with integer weights.

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
