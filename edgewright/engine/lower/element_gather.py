"""Gather, scatter and scatter_add of single elements along a dimension."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const
from edgewright.engine.codegen.typed_arith import TYPED_OPS, has_vector_arithmetic, is_float
from edgewright.engine.graph.layout import dense_strides
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels.reduce import llvm_type
from edgewright.engine.lower.base import DenseLowering, Lowering, LoweringContext, is_unfused
from edgewright.engine.lower.move import emit_copy
from edgewright.ir.core.index_bounds import OutOfRangePolicy
from edgewright.ir.dtypes import DType
from edgewright.ir.graph import Op, Value

_INDEX_TYPES = (np.dtype(np.int64), np.dtype(np.int32))
KINDS = ("core.gather", "core.scatter", "core.scatter_add")


@dataclass(frozen=True)
class ElementGatherSpec:
    """Shapes and strides of an element gather or scatter.

    ``shape``: of the indices, with the indexed dimension last. ``steps``: byte strides of indices, other operand and
    indexed tensor. ``size``: length of the indexed dimension. ``outside``: the value read at out-of-range indices,
    where nothing is written; None clamps them instead.
    """

    shape: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]
    size: int
    kind: str
    item: int
    dtype: str
    outside: float | None = None


def emit_element_gather(module: Module, name: str, spec: ElementGatherSpec) -> None:
    """Emit the kernel. Units are rows of indices. Slots: indices, other operand, indexed tensor."""
    f = module.kernel(name)
    pointers = [f.load_arg(PTR, i) for i in range(3)]
    dtype = np.dtype(spec.dtype)

    def unit(index: Reg) -> None:
        row = list(pointers)
        for d in range(len(spec.shape) - 2, -1, -1):
            position, index = f.op("urem", index, spec.shape[d]), f.op("udiv", index, spec.shape[d])
            row = [f.gep(p, f.mul(position, s[d])) for p, s in zip(row, spec.steps, strict=True)]

        def element(_: Reg, cursors: list[Reg]) -> list[Reg]:
            index_value = f.cast("sext", f.load(f"i{8 * spec.item}", cursors[0]), I64)
            clamped = f.call("llvm.smax.i64", I64, index_value, const(0, I64))
            clamped = f.call("llvm.smin.i64", I64, clamped, const(spec.size - 1, I64))
            in_range = None if spec.outside is None else f.compare("ult", index_value, spec.size)
            _transfer(f, spec, dtype, cursors[1], f.gep(row[2], f.mul(clamped, spec.steps[2][-1])), in_range)
            return [f.gep(p, s[-1]) for p, s in zip(cursors, spec.steps, strict=False)]

        f.loop(spec.shape[-1], row[:2], element)

    f.for_range(f.arg("begin"), f.arg("end"), unit)
    f.ret()


def _transfer(
    f: Function, spec: ElementGatherSpec, dtype: DType, other: Reg, element: Reg, in_range: Reg | None
) -> None:
    """Move one element in the direction of ``spec.kind``; ``in_range`` masks out-of-range indices."""
    kind = llvm_type(dtype)
    old = f.load(kind, element)
    if spec.kind == "gather":
        value, target, fallback = old, other, const(_fill(spec, dtype), kind)
    else:
        value, target, fallback = f.load(kind, other), element, old
    if spec.kind == "scatter_add":
        value = f.op("fadd", old, value) if is_float(dtype) else TYPED_OPS["add"](f, dtype, [old, value])
    f.store(value if in_range is None else f.select(in_range, value, fallback), target)


def _fill(spec: ElementGatherSpec, dtype: DType) -> int | float:
    """The fill value as a signed bit pattern."""
    value = 0.0 if spec.outside is None else spec.outside
    if is_float(dtype):
        return value
    return int(np.array([int(value)]).astype(dtype).view(f"i{dtype.itemsize}")[0])


def element_gather_spec(op: Op) -> ElementGatherSpec | None:
    """The spec of an operator, or None if its types are not supported."""
    x, index, dim = op.args["self"], op.args["index"], int(op.args["dim"])
    rank = len(x.bound)
    supported = (
        x.q is None
        and index.q is None
        and x.dtype is not None
        and has_vector_arithmetic(x.dtype)
        and index.dtype in _INDEX_TYPES
    )
    if not supported or not rank or len(index.bound) != rank:
        return None
    dim %= rank
    other: Value | None = op.args.get("src")
    order = [*(d for d in range(rank) if d != dim), dim]
    shapes = [index.bound, index.bound if other is None else other.bound, x.bound]
    items = [index.dtype.itemsize, x.dtype.itemsize, x.dtype.itemsize]
    steps = [dense_strides([int(n) for n in s], i) for s, i in zip(shapes, items, strict=True)]
    strides = tuple(tuple(s[d] for d in order) for s in steps)
    shape = tuple(int(index.bound[d]) for d in order)
    outside = op.args.get("outside")
    fill_value = outside.number if isinstance(outside, OutOfRangePolicy) else None
    return ElementGatherSpec(shape, strides, int(x.bound[dim]), op.name, index.dtype.itemsize, x.dtype.str, fill_value)


class ElementGather(DenseLowering):
    """gather, scatter and scatter_add."""

    def __init__(self, node: Node, spec: ElementGatherSpec) -> None:
        super().__init__(node)
        self.spec = spec

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op, out = node.op, node.out
        if not is_unfused(node, *KINDS):
            return None
        spec = element_gather_spec(op)
        values = [op.args["self"], out, *([] if op.kind == "core.gather" else [op.args["src"]])]
        same_type = all(isinstance(v, Value) and v.q is None and v.dtype == out.dtype for v in values)
        return cls(node, spec) if spec is not None and same_type and len({len(v.bound) for v in values}) == 1 else None

    def emit(self, context: LoweringContext) -> None:
        op, spec = self.node.op, self.spec
        data, index, out = (context.storage(v) for v in (op.args["self"], op.args["index"], self.node.out))
        name = context.kernel("element_gather", spec, lambda module, name: emit_element_gather(module, name, spec))
        slots = [index.at(), out.at(), data.at()]
        if op.kind != "core.gather":
            emit_copy(context, data, out)
            context.barrier = True
            slots = [index.at(), context.storage(op.args["src"]).at(), out.at()]
        total = math.prod(spec.shape)
        context.step(name, slots, total // spec.shape[-1], total * 3.0)
