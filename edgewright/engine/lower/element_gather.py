"""Single elements at places along a dimension: gather, scatter, and sums of what meets at one place."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const
from edgewright.engine.codegen.typed_arith import TYPED_OPS, has_vector_arithmetic, is_float
from edgewright.engine.graph.layout import dense_strides
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels.scan import llvm_type
from edgewright.engine.lower.base import DenseLowering, Lowering, LoweringContext, is_unfused
from edgewright.engine.lower.move import emit_copy
from edgewright.ir.core.index_bounds import OutOfRangePolicy
from edgewright.ir.dtypes import DType
from edgewright.ir.graph import Op, Value

_WHOLE = (np.dtype(np.int64), np.dtype(np.int32))
KINDS = ("gather", "scatter", "scatter_add")


@dataclass(frozen=True)
class ElementGatherSpec:
    """``shape`` of the places, the named dimension last, with bytes from one to the next of places, the other operand
    and the tensor they are places in, of which the last has ``size`` such. ``outside``: what is read at places it does
    not have, and nothing is written there; None: they are taken for the nearest."""

    shape: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]
    size: int
    kind: str
    item: int
    dtype: str
    outside: float | None = None


def emit_element_gather(module: Module, name: str, spots: ElementGatherSpec) -> None:
    """Units are lines of places. Slots: places, the other operand, the tensor."""
    f = module.kernel(name)
    pointers = [f.load_arg(PTR, i) for i in range(3)]
    dtype = np.dtype(spots.dtype)

    def unit(index: Reg) -> None:
        now = list(pointers)
        for d in range(len(spots.shape) - 2, -1, -1):
            here, index = f.op("urem", index, spots.shape[d]), f.op("udiv", index, spots.shape[d])
            now = [f.gep(p, f.mul(here, s[d])) for p, s in zip(now, spots.steps, strict=True)]

        def one(_: Reg, moving: list[Reg]) -> list[Reg]:
            given = f.cast("sext", f.load(f"i{8 * spots.item}", moving[0]), I64)
            place = f.call("llvm.smax.i64", I64, given, const(0, I64))
            place = f.call("llvm.smin.i64", I64, place, const(spots.size - 1, I64))
            there = None if spots.outside is None else f.compare("ult", given, spots.size)
            _exchange(f, spots, dtype, moving[1], f.gep(now[2], f.mul(place, spots.steps[2][-1])), there)
            return [f.gep(p, s[-1]) for p, s in zip(moving, spots.steps, strict=False)]

        f.loop(spots.shape[-1], now[:2], one)

    f.for_range(f.arg("begin"), f.arg("end"), unit)
    f.ret()


def _exchange(f: Function, spots: ElementGatherSpec, dtype: DType, other: Reg, spot: Reg, there: Reg | None) -> None:
    """``there``: whether the spot is the one that was meant."""
    kind = llvm_type(dtype)
    old = f.load(kind, spot)
    if spots.kind == "gather":
        made, target, otherwise = old, other, const(_fill(spots, dtype), kind)
    else:
        made, target, otherwise = f.load(kind, other), spot, old
    if spots.kind == "scatter_add":
        made = f.op("fadd", old, made) if is_float(dtype) else TYPED_OPS["add"](f, dtype, [old, made])
    f.store(made if there is None else f.select(there, made, otherwise), target)


def _fill(spots: ElementGatherSpec, dtype: DType) -> int | float:
    """What is read where there is nothing, in bits that have a sign."""
    given = 0.0 if spots.outside is None else spots.outside
    if is_float(dtype):
        return given
    return int(np.array([int(given)]).astype(dtype).view(f"i{dtype.itemsize}")[0])


def element_gather_spec(op: Op) -> ElementGatherSpec | None:
    x, index, dim = op.args["self"], op.args["index"], int(op.args["dim"])
    rank = len(x.bound)
    plain = (
        all(v.q is None for v in (x, index))
        and x.dtype is not None
        and has_vector_arithmetic(x.dtype)
        and index.dtype in _WHOLE
    )
    if not plain or not rank or len(index.bound) != rank:
        return None
    dim %= rank
    other: Value | None = op.args.get("src")
    order = [*(d for d in range(rank) if d != dim), dim]
    shapes = [index.bound, index.bound if other is None else other.bound, x.bound]
    items = [index.dtype.itemsize, x.dtype.itemsize, x.dtype.itemsize]
    steps = [dense_strides([int(n) for n in s], i) for s, i in zip(shapes, items, strict=True)]
    turned = tuple(tuple(s[d] for d in order) for s in steps)
    shape = tuple(int(index.bound[d]) for d in order)
    outside = op.args.get("outside")
    check_id = outside.number if isinstance(outside, OutOfRangePolicy) else None
    return ElementGatherSpec(shape, turned, int(x.bound[dim]), op.kind, index.dtype.itemsize, x.dtype.str, check_id)


class ElementGather(DenseLowering):
    """gather, scatter and scatter_add."""

    def __init__(self, node: Node, spots: ElementGatherSpec) -> None:
        super().__init__(node)
        self.spots = spots

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op, out = node.op, node.out
        if not is_unfused(node, *KINDS):
            return None
        spots = element_gather_spec(op)
        values = [op.args["self"], out, *([] if op.kind == "gather" else [op.args["src"]])]
        alike = all(isinstance(v, Value) and v.q is None and v.dtype == out.dtype for v in values)
        return cls(node, spots) if spots is not None and alike and len({len(v.bound) for v in values}) == 1 else None

    def emit(self, context: LoweringContext) -> None:
        op, spots = self.node.op, self.spots
        data, index, out = (context.home(v) for v in (op.args["self"], op.args["index"], self.node.out))
        name = context.kernel("spots", spots, lambda module, name: emit_element_gather(module, name, spots))
        slots = [index.at(), out.at(), data.at()]
        if op.kind != "gather":
            emit_copy(context, data, out)
            context.barrier = True
            slots = [index.at(), context.home(op.args["src"]).at(), out.at()]
        total = math.prod(spots.shape)
        context.step(name, slots, total // spots.shape[-1], total * 3.0)
