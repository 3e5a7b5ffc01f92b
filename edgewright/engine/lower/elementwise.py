"""Elementwise operators: float32 arithmetic and functions, int8 arithmetic, conversions, and int8 lookup tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from edgewright.engine.codegen.builder import I64, Function, Module, Reg, const, lane_count, vec
from edgewright.engine.codegen.epilogue import Epilogue, apply_epilogue, emit_binary
from edgewright.engine.codegen.requant import affine_of, clamp_int, clamp_limits, quantize_to_uint8, scale_of
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
from edgewright.engine.kernels.elementwise import (
    LoopNest,
    LoopOperand,
    emit_dynamic_loop_kernel,
    emit_elementwise_kernel,
    plan_dynamic_loops,
    plan_loops,
)
from edgewright.engine.kernels.int8_gemm import lookup_uint8
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.ir.graph import Op, QParams, Value
from edgewright.ir.numerics import Numerics

Body = Callable[[Function, list[Reg]], Reg]


def llvm_type(value: Value) -> str:
    """The LLVM type of a stored element."""
    if value.q is None and value.dtype == np.dtype(np.float32):
        return "float"
    return f"i{8 * (value.dtype.itemsize if value.dtype is not None else 1)}"


def emit_elementwise(
    context: LoweringContext,
    kind: str,
    values: Sequence[Storage],
    out: Storage,
    key: object,
    body: Body,
    lanes: int = 0,
) -> None:
    """Emit steps that compute ``out`` from ``values``, broadcast to its shape."""
    lanes = lanes or context.isa.lanes
    shape = list(out.layout.shape)
    operands = [LoopOperand(llvm_type(h.value), h.layout.item, _broadcast_strides(h, shape)) for h in (*values, out)]
    loop_shape = _include_padding(shape, operands, [*values, out])
    if context.shared is not None:
        emit_dynamic_loops(context, kind, [*values, out], loop_shape, operands, key, body, lanes)
        return
    for loops, offsets in plan_loops(loop_shape, operands):

        def build(module: Module, name: str, loops: LoopNest = loops) -> None:
            emit_elementwise_kernel(module, name, lanes, loops, body)

        name = context.kernel(kind, (loops, key), build)
        slots = [h.at(m) for h, m in zip((*values, out), offsets, strict=True)]
        context.step(name, slots, loops.units, math.prod(loops.shape) * 0.15)


def emit_dynamic_loops(
    context: LoweringContext,
    kind: str,
    storages: Sequence[Storage],
    shape: Sequence[int],
    operands: Sequence[LoopOperand],
    key: object,
    body: Body,
    lanes: int,
) -> None:
    """Emit a step over all elements; the last of ``storages`` is the output. Sizes and strides are kernel arguments."""
    loops, sizes, units = plan_dynamic_loops(shape, operands)

    def build(module: Module, name: str) -> None:
        emit_dynamic_loop_kernel(module, name, lanes, loops, body)

    name = context.kernel(f"dynamic_{kind}", (loops, lanes, key), build)
    context.step(name, [*(h.at() for h in storages), *sizes], units, math.prod(shape) * 0.15)


def _broadcast_strides(storage: Storage, shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a value at the rank of ``shape``; 0 where it is broadcast."""
    sizes = (1,) * (len(shape) - len(storage.layout.shape)) + storage.layout.shape
    steps = (0,) * (len(shape) - len(storage.layout.shape)) + storage.layout.strides
    return tuple(0 if n == 1 else s for n, s in zip(sizes, steps, strict=True))


def _include_padding(shape: list[int], operands: Sequence[LoopOperand], storages: Sequence[Storage]) -> list[int]:
    """Widen the last dimension over padded channels, if all operands have the same padding and own it: fewer loops."""
    if len(shape) < 2 or any(h.inside or h.address.buffer != "arena" for h in storages):
        return shape
    pixel, item = operands[-1].strides[-2], operands[-1].item
    same_layout = all(o.strides == operands[-1].strides and o.item == item for o in operands)
    return [*shape[:-1], pixel // item] if same_layout and shape[-1] > 1 and pixel > shape[-1] * item else shape


class FloatElementwise(Lowering):
    """Unary and binary operators in float32; int8 operands are dequantized first and int8 results quantized last."""

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
            if all(is_quantized8(v.q) for v in (*operands, node.middle)) and op.kind in (
                "core.add",
                "core.sub",
                "core.mul",
            ):
                return None
            return cls(node, [op.args["self"], op.args["other"]], ())
        if op.kind == "core.prelu":
            return cls(node, [op.args["self"], op.args["weight"]], ())
        supported = op.kind in ("core.clamp", "core.clone", "core.convert") or items
        return cls(node, operands, items) if supported and len(operands) == 1 else None

    def reads_layout(self, value: Value, layout: Layout) -> bool:
        return layout.straight

    def writes_layout(self, layout: Layout) -> bool:
        return layout.straight

    def emit(self, context: LoweringContext) -> None:
        node, op = self.node, self.node.op
        second = [] if node.residual is None else [node.residual]
        values = [*self.operands, *second]
        affines = [affine_of(v.q) if v.q is not None else None for v in values]
        out_affine = None if node.out.q is None else affine_of(node.out.q)
        epilogue = (
            self.first
            + (fused_clamp(op) if out_affine is None and node.middle is node.out else ())
            + self._fused_epilogue()
        )
        clamp_range = (0, 0) if node.out.q is None else clamp_limits(context.numerics, node.out.q, self._limits())
        binary_kind = op.name if len(self.operands) == 2 else ""

        def body(f: Function, regs: list[Reg]) -> Reg:
            floats = [x if a is None else a.real(f, x) for x, a in zip(regs, affines, strict=True)]
            x = emit_binary(f, binary_kind, floats[0], floats[1]) if binary_kind else floats[0]
            x = apply_epilogue(f, x, epilogue, (lambda: floats[-1]) if second else None)
            return x if out_affine is None else quantize_to_uint8(f, x, out_affine, *clamp_range)

        storages = [context.storage(v) for v in values]
        key = (binary_kind, affines, out_affine, epilogue, clamp_range)
        emit_elementwise(context, "elementwise", storages, context.storage(node.out), key, body)

    def _fused_epilogue(self) -> Epilogue:
        return self.node.epilogue if self.node.middle is not self.node.out or self.node.out.q is None else ()

    def _limits(self) -> tuple[float, float] | None:
        limits: tuple[float, float] | None = self.node.ops[-1].args.get("limits")
        return limits


class Int8Table(Lowering):
    """Unary int8 functions by a 256-entry table."""

    exact_reads = True

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        return cls(node) if node.table is not None and node.op.kind not in CONV_AND_LINEAR else None

    def emit(self, context: LoweringContext) -> None:
        (value,), table, vectorized = self.node.reads(), self.node.table, context.isa.permute_bytes
        assert table is not None
        entries = tuple(int(n) for n in table)

        def body(f: Function, regs: list[Reg]) -> Reg:
            pointer = f.module.constant_array("bytes", entries, "i8")
            if vectorized:
                return lookup_uint8(f, pointer, regs[0])
            return f.load("i8", f.gep(pointer, f.cast("zext", regs[0], I64)))

        storage, lanes = context.storage(value), context.isa.bytes if vectorized else 1
        emit_elementwise(context, "int8_table", [storage], context.storage(self.node.out), entries, body, lanes)


class Int8Arithmetic(Lowering):
    """add, sub and mul of int8 in fixed point."""

    exact_reads = True

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if op.kind not in ("core.add", "core.sub", "core.mul") or node.table is not None:
            return None
        a, b, out = (v.q for v in (op.args["self"], op.args["other"], node.out))
        if not (a and b and out and is_quantized8(a) and is_quantized8(b) and is_quantized8(out)):
            return None
        return cls(node) if op.kind == "core.mul" or int8_add_fits(context.numerics, a, b, out) else None

    def emit(self, context: LoweringContext) -> None:
        op, out = self.node.op, self.node.out
        a, b = op.args["self"], op.args["other"]
        clamp_range = clamp_limits(context.numerics, out.q, op.args.get("limits")) if out.q else (0, 255)
        assert a.q is not None and b.q is not None and out.q is not None
        key, body = (
            int8_mul(a.q, b.q, out.q, clamp_range)
            if op.kind == "core.mul"
            else int8_add(context.numerics, op, a.q, b.q, out.q, clamp_range)
        )
        storages = [context.storage(a), context.storage(b)]
        emit_elementwise(context, "int8_arithmetic", storages, context.storage(out), (op.name, key), body)


def int8_mul(a: QParams, b: QParams, out: QParams, bounds: tuple[int, int]) -> tuple[object, Body]:
    """The kernel key and body of an int8 product."""
    factor = scale_of(a) * scale_of(b) / scale_of(out)
    left, right, result = affine_of(a), affine_of(b), affine_of(out)

    def body(f: Function, regs: list[Reg]) -> Reg:
        x, y = (f.add(widen_int8(f, v), -q.zero) for v, q in zip(regs, (left, right), strict=True))
        product = to_float32(f, f.op("mul", x, y))
        return result.store(f, f.op("fmul", product, const(float(factor), product.type)), *bounds)

    return (float(factor), left.zero, right.zero, result.zero, bounds), body


def int8_add(
    numerics: Numerics, op: Op, a: QParams, b: QParams, out: QParams, bounds: tuple[int, int]
) -> tuple[object, Body]:
    """The kernel key and body of an int8 sum or difference."""
    first, second, shift = numerics.sum_factors((a, b), out)
    second = -second if op.kind == "core.sub" else second
    left, right, result = affine_of(a), affine_of(b), affine_of(out)
    offset = (1 << shift - 1) - left.zero * first - right.zero * second

    def body(f: Function, regs: list[Reg]) -> Reg:
        x, y = (f.op("mul", widen_int8(f, v), const(n, vec(lane_count(v.type), "i32"))) for v, n in
                zip(regs, (first, second), strict=True))  # fmt: skip
        shifted = f.op("ashr", f.add(f.op("add", x, y), offset), shift)
        clamped = clamp_int(f, f.add(shifted, result.zero), *bounds)
        return f.cast("trunc", clamped, vec(lane_count(clamped.type), "i8"))

    return (first, second, offset, shift, result.zero, bounds), body


def int8_add_fits(numerics: Numerics, a: QParams, b: QParams, out: QParams) -> bool:
    """Whether the factors and the shift keep the sum within 32 bits."""
    return 1 <= numerics.sum_factors((a, b), out)[2] <= 30
