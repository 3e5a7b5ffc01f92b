"""Vendors' images between two sizes: each pixel a sum of four by whole weights."""

from __future__ import annotations

import numpy as np

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Operand, Reg, lane_count, vec
from edgewright.engine.codegen.ranged_int import IntRangeError, RangedInt, RangedIntBuilder
from edgewright.engine.codegen.requant import storage_offset
from edgewright.engine.dialects.elementwise import bounds
from edgewright.engine.dialects.resize import Axis, Mixing, mixed, mixing, quotient
from edgewright.engine.graph.layout import Storage
from edgewright.engine.graph.nodes import Node, is_float32
from edgewright.engine.kernels.channel_loop import byte_offset, for_each_channel_vector
from edgewright.engine.kernels.pack_operand import power_of_two_chunks
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.elementwise import llvm_type
from edgewright.ir.graph import Array, Value

_ENTRY = 32  # bytes: two places, two weights


class IntResize(Lowering):
    """Exact integers, or real numbers in double precision."""

    exact_reads = True

    def __init__(self, node: Node, mixing: Mixing) -> None:
        super().__init__(node)
        self.mixing = mixing
        self.real = is_float32(mixing.data) and is_float32(node.out)
        self.kind, self.reach = ("double", (0, 0)) if self.real else _whole(mixing)
        self.text = self._trial()

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if len(node.ops) > 1 or "." not in node.op.kind:
            return None
        try:
            return cls(node, mixing(node.op, context.numerics))
        except (IntRangeError, ValueError, LookupError, ArithmeticError):
            return None

    def _trial(self) -> str:
        """The arithmetic after the sum, written once: raises if there can be none."""
        module = Module()
        f = module.function("trial", [(vec(4, self.kind), "x")])
        made = self._ending(f, f.arg("x"))
        return f"{module.text()} {made} {self.kind} {_moved(self.mixing.data)}"

    def _ending(self, f: Function, total: Reg) -> Reg:
        if self.real:
            return quotient(f, total, self.mixing.divisor)
        i, out = RangedIntBuilder(f, lane_count(total.type)), self.node.out
        made, (low, high) = self.mixing.finish(i, RangedInt(total, *self.reach)), bounds(out)
        if made.low < low or made.high > high:
            raise IntRangeError(f"{made.low} to {made.high} as {out.dtype}")
        assert out.dtype is not None
        return i.store(made, 8 * out.dtype.itemsize, _moved(out))

    def emit(self, context: LoweringContext) -> None:
        data, out = context.home(self.mixing.data), context.home(self.node.out)
        rows, columns = (
            context.weights.add(self._table(axis, step))
            for axis, step in zip(self.mixing.axes, (data.layout.row, data.layout.pixel), strict=True)
        )
        batch, high, wide, channels = out.layout.shape
        key = (out.layout.shape, out.layout.strides, data.layout.image, data.layout.item, self.text)
        lanes = context.isa.lanes if self.kind == "i32" else context.isa.lanes // 2

        def build(module: Module, name: str) -> None:
            self._build(module, name, lanes, data, out)

        name = context.kernel("mix", key, build)
        context.step(name, [data.at(), out.at(), rows, columns], batch * high, batch * high * wide * channels * 0.5)

    def _table(self, axis: Axis, step: int) -> Array:
        made = np.zeros((axis.places.shape[1], _ENTRY // 8), np.int64)
        made[:, :2] = axis.places.T * step
        weights = axis.weights.T
        made[:, 2:] = weights.astype(np.float64).view(np.int64) if self.real else weights
        return made.view(np.uint8)

    def _build(self, module: Module, name: str, lanes: int, data: Storage, out: Storage) -> None:
        f = module.kernel(name)
        source, target, rows, columns = (f.load_arg(PTR, i) for i in range(4))
        _, high, wide, channels = out.layout.shape

        def row(unit: Reg) -> None:
            batch, y = f.op("udiv", unit, high), f.op("urem", unit, high)
            line = f.gep(f.gep(target, f.mul(batch, out.layout.image)), f.mul(y, out.layout.row))
            places, down = self._entry(f, rows, y)
            image = f.gep(source, f.mul(batch, data.layout.image))
            lines = [f.gep(image, p) for p in places]

            def pixel(x: Reg, _: list[Reg]) -> list[Reg]:
                sides, along = self._entry(f, columns, x)
                four = [f.gep(start, side) for start in lines for side in sides]
                place = f.gep(line, f.mul(x, out.layout.pixel))

                def vector(first: Operand, width: int, _: int) -> None:
                    there, here = (byte_offset(f, first, home.layout.item) for home in (data, out))
                    loaded = [self._load(f, at, there, width) for at in four]
                    f.store(self._ending(f, mixed(f, loaded, along, down)), place, here)

                for_each_channel_vector(f, channels, lanes, _exactly, vector)
                return []

            f.loop(wide, [], pixel)

        f.for_range(f.arg("begin"), f.arg("end"), row)
        f.ret()

    def _entry(self, f: Function, entries: Reg, index: Reg) -> tuple[list[Reg], list[Reg]]:
        at = f.gep(entries, f.mul(index, _ENTRY))
        return [f.load(I64, at, 8 * n, 8) for n in (0, 1)], [f.load(self.kind, at, 16 + 8 * n, 8) for n in (0, 1)]

    def _load(self, f: Function, at: Reg, there: Operand, width: int) -> Reg:
        value = self.mixing.data
        x = f.load(vec(width, llvm_type(value)), at, there)
        if self.real:
            return f.cast("fpext", x, vec(width, "double"))
        signed = bounds(value)[0] + _moved(value) < 0
        return f.add(f.cast("sext" if signed else "zext", x, vec(width, self.kind)), -_moved(value))


def _exactly(total: int, most: int) -> list[tuple[int, int]]:
    """Vectors that cover so many elements and no other."""
    return [(width, width) for _, width in power_of_two_chunks(total, most)]


def _moved(value: Value) -> int:
    return 0 if value.q is None else storage_offset(value.q)


def _whole(mixing: Mixing) -> tuple[str, tuple[int, int]]:
    """The type that holds every sum, and the least and the largest of them."""
    low, high = bounds(mixing.data)
    times = mixing.axes[0].most * mixing.axes[1].most
    low, high = min(low, 0) * times, max(high, 0) * times
    if any(int(axis.weights.min()) < 0 for axis in mixing.axes):
        low, high = -max(-low, high), max(-low, high)
    if max(-low, high) >= 1 << 62:
        raise IntRangeError("sums of more than 64 bits")
    return ("i32" if max(-low, high) < 1 << 31 else "i64"), (low, high)
