"""Conversions between fp16 or bf16 in memory and float32."""

from __future__ import annotations

from edgewright.engine.codegen.builder import Function, Reg, lane_count, vec
from edgewright.engine.codegen.epilogue import apply_epilogue
from edgewright.engine.codegen.math_float32 import bf16_bits
from edgewright.engine.graph.layout import Layout
from edgewright.engine.graph.nodes import Node, is_float32
from edgewright.engine.graph.widen_fp16 import is_16bit_float
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.elementwise import emit_elementwise
from edgewright.ir.dtypes import bfloat16
from edgewright.ir.graph import Value


class Fp16Convert(Lowering):
    """convert to or from fp16 and bf16, with a fused float32 epilogue after widening."""

    exact_reads = True

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if node.op.kind != "core.convert" or node.op.args.get("limits") is not None:
            return None
        x: Value = node.op.args["self"]
        if len(node.ops) == 1 and is_float32(x) and is_16bit_float(node.out):
            return cls(node)
        return cls(node) if is_16bit_float(x) and is_float32(node.middle) and is_float32(node.out) else None

    def reads_layout(self, value: Value, layout: Layout) -> bool:
        return layout.straight

    def emit(self, context: LoweringContext) -> None:
        node, x, out = self.node, self.node.op.args["self"], self.node.out
        narrow, is_bf16, epilogue = is_16bit_float(out), bfloat16 in (x.dtype, out.dtype), self.node.epilogue
        read, write = (_load_bf16, round_to_bf16) if is_bf16 else (_load_fp16, _store_fp16)

        def body(f: Function, regs: list[Reg]) -> Reg:
            return write(f, regs[0]) if narrow else apply_epilogue(f, read(f, regs[0]), epilogue, lambda: regs[-1])

        values = [x] if node.residual is None else [x, node.residual]
        storages = [context.storage(v) for v in values]
        emit_elementwise(context, "fp16_convert", storages, context.storage(out), (narrow, is_bf16, epilogue), body)


def _store_fp16(f: Function, x: Reg) -> Reg:
    lanes = lane_count(x.type)
    return f.bitcast(f.cast("fptrunc", x, vec(lanes, "half")), vec(lanes, "i16"))


def _load_fp16(f: Function, x: Reg) -> Reg:
    lanes = lane_count(x.type)
    return f.cast("fpext", f.bitcast(x, vec(lanes, "half")), vec(lanes, "float"))


def round_to_bf16(f: Function, x: Reg) -> Reg:
    """The upper 16 bits, rounded to nearest even."""
    return f.cast("trunc", bf16_bits(f, x), vec(lane_count(x.type), "i16"))


def _load_bf16(f: Function, x: Reg) -> Reg:
    lanes = lane_count(x.type)
    return f.bitcast(f.op("shl", f.cast("zext", x, vec(lanes, "i32")), 16), vec(lanes, "float"))
