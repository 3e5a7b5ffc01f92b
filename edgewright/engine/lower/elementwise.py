"""Element by element: sums, products, functions, conversions, and tables of bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from edgewright.engine.codegen.builder import I64, Function, Module, Reg, const, lane_count, vec
from edgewright.engine.codegen.epilogue import Epilogue, apply_epilogue, emit_binary
from edgewright.engine.codegen.requant import affine_of, bounded_ints, clamp_limits, quantize_to_uint8, scale_of
from edgewright.engine.codegen.vector import to_float32, widen_int8
from edgewright.engine.graph.layout import Layout, Storage
from edgewright.engine.graph.nodes import (
    BINARY,
    CONV_AND_LINEAR,
    Node,
    fused_clamp,
    is_float32,
    is_quantized8,
    single_input_epilogue,
)
from edgewright.engine.kernels.elementwise import LoopNest, LoopOperand, emit_elementwise_kernel, plan_loops
from edgewright.engine.kernels.int8_store import lookup_uint8
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.dynamic_loops import emit_dynamic_loops
from edgewright.ir.graph import Op, QParams, Value
from edgewright.ir.numerics import XNNPACK

Body = Callable[[Function, list[Reg]], Reg]


def llvm_type(value: Value) -> str:
    """LLVM's type of a stored element."""
    if value.q is None and value.dtype == np.dtype(np.float32):
        return "float"
    return f"i{8 * (value.dtype.itemsize if value.dtype is not None else 1)}"


def emit_elementwise(
    context: LoweringContext,
    what: str,
    values: Sequence[Storage],
    out: Storage,
    key: object,
    body: Body,
    lanes: int = 0,
) -> None:
    """Steps that make ``out`` of ``values``, which are broadcast to its shape."""
    lanes = lanes or context.isa.lanes
    shape = list(out.layout.shape)
    operands = [LoopOperand(llvm_type(h.value), h.layout.item, _spread(h, shape)) for h in (*values, out)]
    wide = _whole_pixels(shape, operands, [*values, out])
    if context.shared is not None:
        emit_dynamic_loops(context, what, [*values, out], wide, operands, key, body, lanes)
        return
    for loops, moved in plan_loops(wide, operands):

        def build(module: Module, name: str, loops: LoopNest = loops) -> None:
            emit_elementwise_kernel(module, name, lanes, loops, body)

        name = context.kernel(what, (loops, key), build)
        slots = [h.at(m) for h, m in zip((*values, out), moved, strict=True)]
        context.step(name, slots, loops.units, math.prod(loops.shape) * 0.15)


def _spread(home: Storage, shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a value at the rank of ``shape``, 0 where it is repeated."""
    own = (1,) * (len(shape) - len(home.layout.shape)) + home.layout.shape
    steps = (0,) * (len(shape) - len(home.layout.shape)) + home.layout.strides
    return tuple(0 if n == 1 else s for n, s in zip(own, steps, strict=True))


def _whole_pixels(shape: list[int], operands: Sequence[LoopOperand], homes: Sequence[Storage]) -> list[int]:
    """The shape with padded channels counted in, if they are padded alike everywhere, and padding it is."""
    if len(shape) < 2 or any(h.inside or h.address.buffer != "arena" for h in homes):
        return shape
    pixel, item = operands[-1].strides[-2], operands[-1].item
    alike = all(o.strides == operands[-1].strides and o.item == item for o in operands)
    return [*shape[:-1], pixel // item] if alike and shape[-1] > 1 and pixel > shape[-1] * item else shape


class FloatElementwise(Lowering):
    """Real arithmetic on one or two operands; bytes become real numbers first, and results bytes again."""

    exact_reads = True
    ignores_channel_padding = True

    def __init__(self, node: Node, operands: list[Value], first: Epilogue) -> None:
        super().__init__(node)
        self.operands, self.first = operands, first

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if node.table is not None or not (is_float32(node.out) or is_quantized8(node.out.q)):
            return None
        items = single_input_epilogue(op)
        operands = [v for v in op.inputs() if not (items and v.constant)]
        if not all(is_float32(v) or is_quantized8(v.q) for v in operands):
            return None
        if op.kind in BINARY and not items:
            if all(is_quantized8(v.q) for v in (*operands, node.middle)) and op.kind in ("add", "sub", "mul"):
                return None
            return cls(node, [op.args["self"], op.args["other"]], ())
        if op.kind == "prelu":
            return cls(node, [op.args["self"], op.args["weight"]], ())
        known = op.kind in ("clamp", "clone", "convert") or items
        return cls(node, operands, items) if known and len(operands) == 1 else None

    def reads_layout(self, value: Value, layout: Layout) -> bool:
        return layout.straight

    def writes_layout(self, layout: Layout) -> bool:
        return layout.straight

    def emit(self, context: LoweringContext) -> None:
        node, op = self.node, self.node.op
        second = [] if node.second is None else [node.second]
        values = [*self.operands, *second]
        affine = [affine_of(v.q) if v.q is not None else None for v in values]
        made = None if node.out.q is None else affine_of(node.out.q)
        tail = self.first + (fused_clamp(op) if made is None and node.middle is node.out else ()) + self._rest()
        bounds = (0, 0) if node.out.q is None else clamp_limits(context.numerics, node.out.q, self._limits())
        pair = op.kind if len(self.operands) == 2 else ""

        def body(f: Function, given: list[Reg]) -> Reg:
            real = [x if a is None else a.real(f, x) for x, a in zip(given, affine, strict=True)]
            x = emit_binary(f, pair, real[0], real[1]) if pair else real[0]
            x = apply_epilogue(f, x, tail, (lambda: real[-1]) if second else None)
            return x if made is None else quantize_to_uint8(f, x, made, *bounds)

        homes = [context.home(v) for v in values]
        key = (pair, affine, made, tail, bounds)
        emit_elementwise(context, "map", homes, context.home(node.out), key, body)

    def _rest(self) -> Epilogue:
        return self.node.tail if self.node.middle is not self.node.out or self.node.out.q is None else ()

    def _limits(self) -> tuple[float, float] | None:
        given: tuple[float, float] | None = self.node.ops[-1].args.get("limits")
        return given


class Int8Table(Lowering):
    """Bytes by a table of 256."""

    exact_reads = True

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        return cls(node) if node.table is not None and node.op.kind not in CONV_AND_LINEAR else None

    def emit(self, context: LoweringContext) -> None:
        (value,), table, wide = self.node.reads(), self.node.table, context.isa.permute_bytes
        assert table is not None
        numbers = tuple(int(n) for n in table)

        def body(f: Function, given: list[Reg]) -> Reg:
            place = f.module.constant_array("bytes", numbers, "i8")
            if wide:
                return lookup_uint8(f, place, given[0])
            return f.load("i8", f.gep(place, f.cast("zext", given[0], I64)))

        home, lanes = context.home(value), context.isa.bytes if wide else 1
        emit_elementwise(context, "table", [home], context.home(self.node.out), numbers, body, lanes)


class Int8Arithmetic(Lowering):
    """Sums, differences and products of bytes, as integers."""

    exact_reads = True

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if op.kind not in ("add", "sub", "mul") or node.table is not None:
            return None
        a, b, out = (v.q for v in (op.args["self"], op.args["other"], node.out))
        if not (a and b and out and is_quantized8(a) and is_quantized8(b) and is_quantized8(out)):
            return None
        return cls(node) if op.kind == "mul" or int8_add_fits(a, b, out) else None

    def emit(self, context: LoweringContext) -> None:
        op, out = self.node.op, self.node.out
        a, b = op.args["self"], op.args["other"]
        bounds = clamp_limits(context.numerics, out.q, op.args.get("limits")) if out.q else (0, 255)
        assert a.q is not None and b.q is not None and out.q is not None
        key, body = int8_mul(a.q, b.q, out.q, bounds) if op.kind == "mul" else int8_add(op, a.q, b.q, out.q, bounds)
        homes = [context.home(a), context.home(b)]
        emit_elementwise(context, "bytes", homes, context.home(out), (op.kind, key), body)


def int8_mul(a: QParams, b: QParams, out: QParams, bounds: tuple[int, int]) -> tuple[object, Body]:
    factor = scale_of(a) * scale_of(b) / scale_of(out)
    left, right, made = affine_of(a), affine_of(b), affine_of(out)

    def body(f: Function, given: list[Reg]) -> Reg:
        x, y = (f.add(widen_int8(f, v), -q.zero) for v, q in zip(given, (left, right), strict=True))
        real = to_float32(f, f.op("mul", x, y))
        return made.store(f, f.op("fmul", real, const(float(factor), real.type)), *bounds)

    return (float(factor), left.zero, right.zero, made.zero, bounds), body


def int8_add_factors(a: QParams, b: QParams, out: QParams, negative: bool) -> tuple[int, int, int]:
    """The integers that the reference multiplies two operands by, and how far it shifts their sum."""
    first, second, shift = XNNPACK.sum_factors((a, b), out)
    return first, -second if negative else second, shift


def int8_add(op: Op, a: QParams, b: QParams, out: QParams, bounds: tuple[int, int]) -> tuple[object, Body]:
    first, second, shift = int8_add_factors(a, b, out, op.kind == "sub")
    left, right, made = affine_of(a), affine_of(b), affine_of(out)
    rest = (1 << shift - 1) - left.zero * first - right.zero * second

    def body(f: Function, given: list[Reg]) -> Reg:
        x, y = (f.op("mul", widen_int8(f, v), const(n, vec(lane_count(v.type), "i32"))) for v, n in
                zip(given, (first, second), strict=True))  # fmt: skip
        moved = f.op("ashr", f.add(f.op("add", x, y), rest), shift)
        bounded = bounded_ints(f, f.add(moved, made.zero), *bounds)
        return f.cast("trunc", bounded, vec(lane_count(bounded.type), "i8"))

    return (first, second, rest, shift, made.zero, bounds), body


def int8_add_fits(a: QParams, b: QParams, out: QParams) -> bool:
    """The factors and the shift are such that 32 bits are enough."""
    return 1 <= int8_add_factors(a, b, out, False)[2] <= 30
