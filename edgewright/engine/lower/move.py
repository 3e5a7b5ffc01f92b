"""Data movement, NCHW to NHWC conversion of images, and conversions of 16-bit floats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from edgewright.engine.codegen.builder import Function, Module, Reg, lane_count, vec
from edgewright.engine.codegen.epilogue import apply_epilogue
from edgewright.engine.codegen.math_float32 import bf16_bits
from edgewright.engine.codegen.requant import affine_of, clamp_limits
from edgewright.engine.graph.layout import VIEW_KINDS, Border, Layout, Storage, broadcast_strides, dense_strides
from edgewright.engine.graph.legalize import is_16bit_float
from edgewright.engine.graph.nodes import Node, is_float32, is_quantized8
from edgewright.engine.graph.verify_plan import PlanError
from edgewright.engine.kernels.elementwise import (
    LoopNest,
    LoopOperand,
    collapse_dims,
    emit_elementwise_kernel,
    plan_loops,
)
from edgewright.engine.kernels.move import (
    BorderSpec,
    PlanesSpec,
    emit_border_kernel,
    emit_planes_to_channels_last,
    emit_transpose,
    plan_transpose,
)
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.elementwise import emit_dynamic_loops, emit_elementwise
from edgewright.ir.dtypes import bfloat16
from edgewright.ir.graph import Value

# ----------------------------------------------------------------------------------------------------------------- move

# Data movement: copies, slices, concatenation, padding, transposition, and reshapes that alias their input.

_INT_TYPES = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}


def emit_copy(context: LoweringContext, source: Storage, target: Storage, flip_sign: bool = False) -> None:
    """Copy all elements of one tensor to another of the same shape. ``flip_sign`` toggles the sign bit of int8
    elements.
    """
    item = source.layout.item
    shape, steps = list(source.layout.shape), [source.layout.strides, target.layout.strides]
    if item == 1 and shape and shape[-1] % 4 == 0 and all(s[-1] == 1 for s in steps):  # copy int8 as 32-bit words
        shape[-1] //= 4
        item, steps = 4, [(*s[:-1], 4) for s in steps]
    operands = [LoopOperand(_INT_TYPES[item], item, tuple(0 if n == 1 else s for n, s in zip(shape, o, strict=True)))
                for o in steps]  # fmt: skip
    operands[-1] = replace(operands[-1], strides=tuple(steps[-1]))
    mask = {1: 0x80, 4: -0x7F7F7F80}.get(item, 0) if flip_sign else 0

    def body(f: Function, regs: list[Reg]) -> Reg:
        return f.op("xor", regs[0], mask) if mask else regs[0]

    if context.shared is not None:
        emit_dynamic_loops(context, "copy", [source, target], shape, operands, mask, body, context.isa.bytes // item)
        return
    if source.layout.item == 4 and _emit_transpose(context, source, target):
        return

    for loops, offsets in plan_loops(shape, operands):

        def build(module: Module, name: str, loops: LoopNest = loops) -> None:
            emit_elementwise_kernel(module, name, context.isa.bytes // item, loops, body)

        name = context.kernel("copy", (loops, mask), build)
        slots = [h.at(m) for h, m in zip((source, target), offsets, strict=True)]
        context.step(name, slots, loops.units, math.prod(loops.shape) * item * 0.1)


def _emit_transpose(context: LoweringContext, source: Storage, target: Storage) -> bool:
    """Copy with square blocks if rows become columns; returns False otherwise."""
    shape, strides = collapse_dims(list(source.layout.shape), [list(h.layout.strides) for h in (source, target)])
    spec = plan_transpose(shape, *strides)
    if spec is None:
        return False
    name = context.kernel("transpose", spec, lambda module, name: emit_transpose(module, name, spec))
    units = math.prod(spec.outer) * spec.blocks
    context.step(name, [source.at(), target.at()], units, math.prod(shape) * 0.3)
    return True


def emit_border_fill(context: LoweringContext, storage: Storage, fill: int) -> None:
    """Fill the border of every image of a value."""
    layout = storage.layout
    batch, high, wide, _ = layout.shape
    border = layout.border
    gap = layout.row - wide * layout.pixel
    leading_bytes = border.top * layout.row + border.left * layout.pixel
    frame = BorderSpec(high, layout.row, wide * layout.pixel, leading_bytes, gap, border.bottom * layout.row)
    item = layout.item if fill else 1
    name = context.kernel("border_fill", item, lambda module, name: emit_border_kernel(module, name, item))
    for n in range(batch):
        context.step(name, [storage.at(n * layout.image), fill, *frame.slots], high + 1, leading_bytes / 20)


def _is_movable(value: Value) -> bool:
    size = 0 if value.dtype is None else value.dtype.itemsize
    return size in _INT_TYPES and (value.q is None or is_quantized8(value.q) or (size > 1 and value.q.axis is None))


class Move(Lowering):
    """permute, view, slice, cat, clone, bitcast, pad and expand, as strided copies of parts of the inputs."""

    exact_reads = True
    ignores_channel_padding = True

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op, out = node.op, node.out
        kinds = (*VIEW_KINDS, "core.cat", "core.pad")
        if op.kind not in kinds or len(node.ops) > 1 or not _is_movable(out) or 0 in out.bound:
            return None
        inputs = list(op.inputs())
        if any(0 in v.bound or v.dtype != out.dtype for v in inputs):
            return None
        return cls(node) if op.args.get("limits") is None else None

    def aliased_input(self) -> Value | None:
        op = self.node.op
        if op.kind in ("core.view", "core.clone", "core.bitcast"):
            return next(op.inputs())
        if op.kind == "core.permute":
            shape, dims = op.args["self"].bound, list(op.args["dims"])
            non_unit = [d for d in dims if shape[d] != 1]
            return next(op.inputs()) if non_unit == sorted(non_unit) else None
        return None

    def reads_layout(self, value: Value, layout: Layout) -> bool:
        return True

    def emit(self, context: LoweringContext) -> None:
        out = context.storage(self.node.out)
        for source, target in self._pieces(context, out):
            if source.address == target.address:  # its producer already wrote there
                _check_same_elements(self.node.label, source, target)
                continue
            flip_sign = source.raw != out.raw and out.value.q is not None and out.value.q.dtype == np.dtype(np.int8)
            emit_copy(context, source, target, flip_sign)

    def _pieces(self, context: LoweringContext, out: Storage) -> list[tuple[Storage, Storage]]:
        op = self.node.op
        storages = [context.storage(v) for v in op.inputs()]
        if op.kind == "core.permute":
            dims = list(op.args["dims"])
            layout = storages[0].layout
            transposed = _with_layout(storages[0], [layout.shape[d] for d in dims], [layout.strides[d] for d in dims])
            return [(transposed, out)]
        if op.kind == "core.expand":
            return [
                (
                    _with_layout(
                        storages[0], out.layout.shape, broadcast_strides(storages[0].layout, out.layout.shape)
                    ),
                    out,
                )
            ]
        if op.kind == "core.slice":
            starts = list(op.args["start"])
            return [(_slice_storage(storages[0], starts, out.layout.shape), out)]
        if op.kind == "core.cat":
            return _concat_pieces(storages, out, op.args["dim"])
        if op.kind == "core.pad":
            self._emit_fill(context, out)
            return [(storages[0], _slice_storage(out, list(op.args["before"]), storages[0].layout.shape))]
        if op.kind == "core.view":
            return [_common_views(storages[0], out)]
        return [(storages[0], out)]

    def _emit_fill(self, context: LoweringContext, out: Storage) -> None:
        """Fill the entire output with the padding value; the copy of the input follows."""
        op, value = self.node.op, self.node.out
        fill = np.asarray(np.float32(op.args["value"]))
        if op.args["self"].q is not None:
            fill = context.numerics.quantize(fill, op.args["self"].q)
        ones = (1,) * len(value.bound)
        source = context.storage(
            Value("fill", value.dtype, ones, (), fill.astype(value.dtype).reshape(ones), q=value.q)
        )
        broadcast = replace(source, layout=replace(source.layout, shape=out.layout.shape, strides=(0,) * len(ones)))
        emit_copy(context, broadcast, out)
        context.barrier = True


def _check_same_elements(label: str, source: Storage, target: Storage) -> None:
    """Raise unless a part of the result that is already in place has its elements where readers look for them."""
    sides = [
        tuple(s for n, s in zip(h.layout.shape, h.layout.strides, strict=True) if n != 1) for h in (source, target)
    ]
    if sides[0] != sides[1]:
        raise PlanError(label, f"must find {source.value.name} with the strides {sides[1]}", value=sides[0])


def concat_slice(out: Storage, dim: int, start: int, value: Value) -> Storage:
    """The part of a concatenation's result that one of its inputs occupies."""
    axis, shape = dim % len(out.layout.shape), tuple(int(n) for n in value.bound)
    address = out.at(start * out.layout.strides[axis])
    inside = out.inside or shape[-1] != out.layout.shape[-1]
    return Storage(value, address, replace(out.layout, shape=shape, border=Border()), out.raw, inside)


def _with_layout(storage: Storage, shape: Sequence[int], strides: Sequence[int]) -> Storage:
    return replace(storage, layout=replace(storage.layout, shape=tuple(shape), strides=tuple(strides)))


def _slice_storage(storage: Storage, starts: Sequence[int], shape: Sequence[int]) -> Storage:
    offset = sum(a * s for a, s in zip(starts, storage.layout.strides, strict=True))
    return replace(_with_layout(storage, shape, storage.layout.strides), address=storage.at(offset))


def _concat_pieces(storages: Sequence[Storage], out: Storage, dim: int) -> list[tuple[Storage, Storage]]:
    axis, start, pieces = dim % len(out.layout.shape), 0, []
    for storage in storages:
        starts = [start if d == axis else 0 for d in range(len(out.layout.shape))]
        pieces.append((storage, _slice_storage(out, starts, storage.layout.shape)))
        start += storage.layout.shape[axis]
    return pieces


def _common_views(source: Storage, target: Storage) -> tuple[Storage, Storage]:
    """Views of source and target with a common shape."""
    shape = common_shape(source.layout.shape, target.layout.shape)
    if shape is not None:
        return _split_dims(source, shape), _split_dims(target, shape)
    if source.layout.dense:
        return replace(source, layout=_reshape_dense(source.layout, target.layout.shape)), target
    return source, replace(target, layout=_reshape_dense(target.layout, source.layout.shape))


def common_shape(a: Sequence[int], b: Sequence[int]) -> list[int] | None:
    """The coarsest shape that both can be split into, if there is one.

    >>> common_shape((6, 4), (2, 12))
    [2, 3, 4]
    """
    steps = sorted({math.prod(s[i:]) for s in (a, b) for i in range(len(s) + 1)})
    if any(large % small for small, large in pairwise(steps)):
        return None
    return [large // small for small, large in pairwise(steps)][::-1]


def _split_dims(storage: Storage, shape: Sequence[int]) -> Storage:
    """The same elements with dimensions split to ``shape``."""
    pieces = list(shape)[::-1]
    strides: list[int] = []
    for n, step in zip(reversed(storage.layout.shape), reversed(storage.layout.strides), strict=True):
        done = 1
        while done < n:
            strides.append(step * done)
            done *= pieces[len(strides) - 1]
    return _with_layout(storage, shape, strides[::-1])


def _reshape_dense(layout: Layout, shape: Sequence[int]) -> Layout:
    return replace(layout, shape=tuple(shape), strides=dense_strides(shape, layout.item))


# ------------------------------------------------------------------------------------------------------- channel planes

# Conversion of small NCHW float32 images to NHWC, optionally with quantization to int8.


class PlanesToChannelsLast(Lowering):
    """permute (0, 2, 3, 1) of two to four float32 channels, alone or after a conversion to int8."""

    exact_reads = True
    any_strides = False

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        last = node.ops[-1]
        if last.kind != "core.permute" or list(last.args["dims"]) != [0, 2, 3, 1] or len(node.ops) > 2:
            return None
        x = next(node.op.inputs())
        _, channels, _, wide = x.bound
        if not is_float32(x) or x.constant or not 2 <= channels <= 4 or wide < context.isa.lanes or x.bound[0] > 1024:
            return None
        if len(node.ops) == 1:
            return cls(node) if is_float32(node.out) else None
        return (
            cls(node)
            if node.op.kind == "core.convert" and is_quantized8(node.out.q) and node.middle.q == node.out.q
            else None
        )

    def emit(self, context: LoweringContext) -> None:
        (x,) = self.node.reads()
        data, out = context.storage(x), context.storage(self.node.out)
        batch, channels, high, wide = (int(n) for n in x.bound)
        steps = data.layout.strides
        planes = PlanesSpec(channels, wide, steps[1], steps[2], out.layout.row, out.layout.pixel)
        if self.node.out.q is not None:
            q = self.node.out.q
            bounds = clamp_limits(context.numerics, q, None)
            planes = replace(planes, affine=affine_of(q), low=bounds[0], high=bounds[1])
        lanes = context.isa.lanes
        name = context.kernel(
            "to_channels_last", planes, lambda module, name: emit_planes_to_channels_last(module, name, lanes, planes)
        )
        for n in range(batch):
            slots = [data.at(n * steps[0]), out.at(n * out.layout.image)]
            context.step(name, slots, high, high * wide * channels * 0.12)


# --------------------------------------------------------------------------------------------------------- fp16 convert

# Conversions between fp16 or bf16 in memory and float32.


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
