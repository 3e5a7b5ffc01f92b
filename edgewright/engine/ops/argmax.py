"""TOSA's argmax: where along a dimension the largest element is, the first of several."""

from __future__ import annotations

import math

import numpy as np

from edgewright.engine.codegen import I64, PTR, Function, Module, Reg, number, vec
from edgewright.engine.fuse import Node, single
from edgewright.engine.kernels.pointwise import Loops, Operand, emit_units, plan_loops
from edgewright.engine.ops.base import Context, Lowering
from edgewright.engine.ops.maps import kind_of
from edgewright.engine.requantize import shift_of
from edgewright.ir.graph import Value

_TYPES = tuple(np.dtype(n) for n in ("int8", "uint8", "int16", "int32"))


class ArgMax(Lowering):
    exact_reads = True

    def __init__(self, node: Node, axis: int) -> None:
        super().__init__(node)
        self.data: Value = node.op.args["input"]
        self.axis = axis

    @classmethod
    def accept(cls, node: Node, context: Context) -> Lowering | None:
        op = node.op
        if op.kind != "tosa.argmax" or len(node.ops) > 1 or node.out.dtype != np.dtype(np.int32):
            return None
        data, axis = op.args["input"], int(op.args["axis"])
        if not 0 <= axis < len(data.bound) or 0 in data.bound or not (single(data) or data.dtype in _TYPES):
            return None
        left = tuple(n for d, n in enumerate(data.bound) if d != axis)
        return cls(node, axis) if left == node.out.bound else None

    def emit(self, context: Context) -> None:
        data, out = context.home(self.data), context.home(self.node.out)
        length, step = data.layout.shape[self.axis], data.layout.strides[self.axis]
        kept = tuple(s for d, s in enumerate(data.layout.strides) if d != self.axis)
        operands = [Operand(kind_of(self.data), data.layout.item, kept), Operand("i32", 4, out.layout.strides)]
        q, dtype = self.data.q, self.data.dtype
        assert dtype is not None
        signed = dtype.kind == "i" and (q is None or not shift_of(q))  # moved bytes have no sign
        for loops, moved in plan_loops(list(out.layout.shape), operands):

            def build(module: Module, name: str, loops: Loops = loops) -> None:
                _build(module, name, context.isa.lanes, loops, (length, step), signed)

            name = context.kernel("argmax", (loops, length, step, signed), build)
            slots = [h.at(m) for h, m in zip((data, out), moved, strict=True)]
            context.step(name, slots, loops.units, math.prod(loops.shape) * length * 0.3)


def _build(module: Module, name: str, lanes: int, loops: Loops, along: tuple[int, int], signed: bool) -> None:
    f = module.kernel(name)
    length, step = along
    kind = loops.operands[0].kind

    def element(now: list[Reg], at: Reg, width: int) -> None:
        place = f.at(now[0], f.mul(at, loops.operands[0].strides[-1]))
        start = [f.load(vec(width, kind), place), number(0, vec(width, "i32"))]

        def once(i: Reg, held: list[Reg]) -> list[Reg]:
            index = f.op("add", i, number(1, I64))
            x = f.load(vec(width, kind), f.at(place, f.mul(index, step)))
            better = _better(f, x, held[0], signed)
            here = f.splat(f.cast("trunc", index, "i32"), width)
            return [f.select(better, x, held[0]), f.select(better, here, held[1])]

        found = f.repeat(length - 1, start, once)[1] if length > 1 else start[1]
        f.store(found, f.at(now[1], f.mul(at, loops.operands[1].strides[-1])))

    emit_units(f, lanes, loops, [f.slot(PTR, i) for i in range(2)], element)


def _better(f: Function, x: Reg, best: Reg, signed: bool) -> Reg:
    """Larger; of real numbers what is none is the largest."""
    if "float" not in x.type:
        return f.compare("sgt" if signed else "ugt", x, best)
    return f.op("and", f.compare("ugt", x, best), f.compare("ord", best, best))  # or x is none, and best is one
