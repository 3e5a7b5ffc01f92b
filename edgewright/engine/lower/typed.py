"""Operators on tensors of any element type: elementwise, scans, argmax, gather of elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, vec
from edgewright.engine.codegen.requant import storage_offset
from edgewright.engine.codegen.typed_arith import BOOL_OPS, TYPED_OPS, cast, has_vector_arithmetic, is_float
from edgewright.engine.graph.layout import dense_strides
from edgewright.engine.graph.nodes import Node, is_float32
from edgewright.engine.kernels.elementwise import LoopNest, LoopOperand, emit_loop_nest, plan_loops
from edgewright.engine.kernels.reduce import (
    REDUCE_OPS,
    ScanSpec,
    dtype_llvm_type,
    emit_cumsum,
    emit_scan_reduce,
    emit_topk,
)
from edgewright.engine.lower.base import DenseLowering, DescribedLowering, Lowering, LoweringContext, is_unfused
from edgewright.engine.lower.elementwise import emit_elementwise, llvm_type
from edgewright.engine.lower.move import emit_copy
from edgewright.ir.core.index_bounds import OutOfRangePolicy
from edgewright.ir.dtypes import DType
from edgewright.ir.graph import Op, Value
from edgewright.ir.int_rules import ArgMaxReduction

# ---------------------------------------------------------------------------------------------------- typed elementwise

# Elementwise operators on tensors of any type, one pass each.

_BOOL = np.dtype(np.bool_)
_NAMES = ("condition", "self", "other", "exponent", "min", "max")
_SLOW_LANES = 4  # for operators computed in float64, or divided element by element
_SLOW_KINDS = ("pow", "atan2", "fmod", "remainder", "floor_divide", "trunc_divide")


def _operands(op: Op) -> list[Any]:
    return [op.args[name] for name in _NAMES if op.args.get(name) is not None]


def _is_supported(value: Any) -> bool:
    return (
        isinstance(value, Value) and value.q is None and value.dtype is not None and has_vector_arithmetic(value.dtype)
    )


class TypedElementwise(Lowering):
    """Operators whose operands share a type, which is also the result's unless it is bool; and casts."""

    exact_reads = True

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op, out = node.op, node.out
        if (
            len(node.ops) > 1
            or (op.name not in TYPED_OPS and op.kind != "core.cast")
            or op.args.get("limits") is not None
        ):
            return None
        values = _operands(op)
        if (
            not values
            or not _is_supported(out)
            or not all(_is_supported(v) for v in values)
            or all(v.constant for v in values)
        ):
            return None
        data = [v.dtype for v in values[op.kind == "core.where" :]]
        types_match = len(set(data)) == 1 and (out.dtype == (_BOOL if op.name in BOOL_OPS else data[0]))
        valid_condition = op.kind != "core.where" or values[0].dtype in (_BOOL, np.dtype(np.uint8))
        return (
            cls(node)
            if op.kind == "core.cast" or (types_match and valid_condition and op.args.get("alpha", 1) == 1)
            else None
        )

    def emit(self, context: LoweringContext) -> None:
        op, out = self.node.op, self.node.out
        values = _operands(op)
        source, target = values[-1].dtype, out.dtype
        assert source is not None and target is not None

        def body(f: Function, regs: list[Reg]) -> Reg:
            return cast(f, regs[0], source, target) if op.kind == "core.cast" else TYPED_OPS[op.name](f, source, regs)

        storages = [context.storage(v) for v in values]
        key = (op.name, *(_letter(v.dtype) for v in (*values, out)))
        lanes = min(_SLOW_LANES, context.isa.lanes) if op.name in _SLOW_KINDS else 0
        emit_elementwise(context, "typed", storages, context.storage(out), key, body, lanes)


def _letter(dtype: DType | None) -> str:
    assert dtype is not None
    return dtype.str


# ----------------------------------------------------------------------------------------------------------------- scan

# Scans and reductions along one dimension of typed tensors: cumsum, integer reductions, and top-k indices.

_MAX_COMPARISONS = 1 << 22  # per row; beyond, numpy's sort is faster
_TOPK = "core.topk_indices"


def scan_dim(op: Op) -> int | None:
    """The dimension of an operator along a single dimension; None if it has several."""
    rank, dim = len(op.args["self"].bound), op.args.get("dim")
    if isinstance(dim, list | tuple):
        dim = dim[0] if len(dim) == 1 else None
    if dim is None and rank == 1:
        dim = 0
    return None if dim is None or not rank else int(dim) % rank


def scan_spec(op: Op) -> ScanSpec | None:
    """The rows of an operator, or None if its type is not supported."""
    x, dim = op.args["self"], scan_dim(op)
    if dim is None or x.q is not None or x.dtype is None or not has_vector_arithmetic(x.dtype) or x.constant:
        return None
    shape = [int(n) for n in x.bound]
    sizes = (math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :]))
    return ScanSpec(*sizes, x.dtype.str, int(op.args.get("k", 1)), bool(op.args.get("largest", True)))


class Scan(DenseLowering):
    """cumsum, sum, prod, amax and amin in the operand's type, and topk_indices."""

    def __init__(self, node: Node, spec: ScanSpec) -> None:
        super().__init__(node)
        self.spec = spec

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op, out = node.op, node.out
        if not is_unfused(node, _TOPK, "core.cumsum", *(f"core.{name}" for name in REDUCE_OPS)):
            return None
        spec = scan_spec(op)
        if spec is None or out.q is not None or op.args.get("dtype") is not None:
            return None
        result_dtype = np.dtype(np.int64) if op.kind == _TOPK else op.args["self"].dtype
        if (
            op.kind in ("core.sum", "core.prod", "core.cumsum")
            and spec.type.kind in "iub"
            and spec.type != np.dtype(np.int64)
        ):
            return None
        return cls(node, spec) if out.dtype == result_dtype and 0 < spec.k * spec.size <= _MAX_COMPARISONS else None

    def emit(self, context: LoweringContext) -> None:
        spec, op, lanes = self.spec, self.node.op, context.isa.lanes
        if op.kind == _TOPK:
            name = context.kernel("topk", spec, lambda module, name: emit_topk(module, name, spec, lanes))
        elif op.kind == "core.cumsum":
            name = context.kernel("cumsum", spec, lambda module, name: emit_cumsum(module, name, spec, lanes))
        else:
            key = (spec, op.name)
            name = context.kernel(
                "scan_reduce", key, lambda module, name: emit_scan_reduce(module, name, spec, lanes, op.name)
            )
        slots = [context.storage(v).at() for v in (op.args["self"], self.node.out)]
        units = spec.units(lanes)
        context.step(name, slots, units, units * spec.size * spec.k * 1.0)


# --------------------------------------------------------------------------------------------------------------- argmax

# Argmax and argmin along a dimension; ties go to the first.

_TYPES = tuple(np.dtype(n) for n in ("int8", "uint8", "int16", "int32"))


@dataclass(frozen=True)
class ArgReduceSpec:
    """Reduces ``length`` elements, ``step`` bytes apart, for each position of ``loops``."""

    loops: LoopNest
    length: int
    step: int
    signed: bool
    largest: bool


class ArgMax(Lowering):
    """argmax and argmin of any type, with int64 indices."""

    exact_reads = True

    def __init__(self, node: Node, data: Value, axis: int) -> None:
        super().__init__(node)
        self.data, self.axis = data, axis

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        operand = _operand(node.op) if is_unfused(node, "core.argmax", "core.argmin") else None
        return cls(node, *operand) if operand is not None and _fits(*operand, node.out, "int64") else None

    def emit(self, context: LoweringContext) -> None:
        data, out = context.storage(self.data), context.storage(self.node.out)
        shape, out_strides, item = out.layout.shape, out.layout.strides, out.layout.item
        if len(shape) == len(data.layout.shape):
            shape, out_strides = _without(shape, self.axis), _without(out_strides, self.axis)
        in_strides = _without(data.layout.strides, self.axis)
        operands = [
            LoopOperand(llvm_type(self.data), data.layout.item, in_strides),
            LoopOperand(f"i{8 * item}", item, out_strides),
        ]
        length, step = data.layout.shape[self.axis], data.layout.strides[self.axis]
        for loops, offsets in plan_loops(list(shape), operands):
            spec = ArgReduceSpec(loops, length, step, _signed(self.data), self.node.op.kind != "core.argmin")

            def build(module: Module, name: str, spec: ArgReduceSpec = spec) -> None:
                _build(module, name, context.isa.lanes, spec)

            slots = [h.at(m) for h, m in zip((data, out), offsets, strict=True)]
            name = context.kernel("argmax", spec, build)
            context.step(name, slots, loops.units, math.prod(loops.shape) * length * 0.3)


class Int32ArgMax(ArgMax, DescribedLowering):
    """argmax with int32 indices."""

    @classmethod
    def accept_description(cls, node: Node, description: ArgMaxReduction) -> Lowering | None:
        data, axis = description.data, description.axis
        supported = (is_float32(data) or data.dtype in _TYPES) and _fits(data, axis, node.out, "int32")
        return cls(node, data, axis) if supported else None


def _fits(data: Value, axis: int, out: Value, index_dtype: str) -> bool:
    """Whether a result has the matching shape and type."""
    if not 0 <= axis < len(data.bound) or 0 in data.bound or out.dtype != np.dtype(index_dtype) or out.q is not None:
        return False
    return out.bound in (_without(data.bound, axis), (*data.bound[:axis], 1, *data.bound[axis + 1 :]))


def _operand(op: Op) -> tuple[Value, int] | None:
    """The operand and the dimension; None if the element type is not supported."""
    data, dim = op.args["self"], scan_dim(op)
    supported = data.q is None and data.dtype is not None and has_vector_arithmetic(data.dtype) and not data.constant
    return (data, dim) if supported and dim is not None else None


def _without(numbers: Sequence[int], axis: int) -> tuple[int, ...]:
    return tuple(n for d, n in enumerate(numbers) if d != axis)


def _signed(data: Value) -> bool:
    """Whether stored elements are signed; int8 is stored offset to uint8."""
    return data.dtype is not None and data.dtype.kind == "i" and (data.q is None or not storage_offset(data.q))


def _build(module: Module, name: str, lanes: int, spec: ArgReduceSpec) -> None:
    f = module.kernel(name)
    source, target = spec.loops.operands

    def element(pointers: list[Reg], at: Reg, width: int) -> None:
        first = f.gep(pointers[0], f.mul(at, source.strides[-1]))
        start = [f.load(vec(width, source.kind), first), const(0, vec(width, target.kind))]

        def once(i: Reg, carried: list[Reg]) -> list[Reg]:
            index = f.op("add", i, const(1, I64))
            x = f.load(vec(width, source.kind), f.gep(first, f.mul(index, spec.step)))
            better = _better(f, x, carried[0], spec)
            index_vector = f.splat(f.cast("trunc", index, target.kind), width)
            return [f.select(better, x, carried[0]), f.select(better, index_vector, carried[1])]

        winner = f.loop(spec.length - 1, start, once)[1] if spec.length > 1 else start[1]
        f.store(winner, f.gep(pointers[1], f.mul(at, target.strides[-1])))

    emit_loop_nest(f, lanes, spec.loops, [f.load_arg(PTR, i) for i in range(2)], element)


def _better(f: Function, x: Reg, current: Reg, spec: ArgReduceSpec) -> Reg:
    """Whether ``x`` replaces the current element; NaN beats every number, as in numpy."""
    beyond = "gt" if spec.largest else "lt"
    if "float" not in x.type:
        return f.compare(f"{'s' if spec.signed else 'u'}{beyond}", x, current)
    return f.op("and", f.compare(f"u{beyond}", x, current), f.compare("ord", current, current))


# ------------------------------------------------------------------------------------------------------- element gather

# Gather, scatter and scatter_add of single elements along a dimension.

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
    kind = dtype_llvm_type(dtype)
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
