"""Convolutions with int32 accumulators as output, for windows without a specialized kernel. The input already has its
padding. Used where something other than a requantization reads the accumulators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import PTR, Module, Reg, vec
from edgewright.engine.codegen.requant import storage_offset
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels.elementwise import LoopNest, LoopOperand, emit_loop_nest, plan_loops
from edgewright.engine.lower.base import DescribedLowering, Lowering, LoweringContext
from edgewright.engine.lower.elementwise import llvm_type
from edgewright.ir.graph import Value
from edgewright.ir.int_arithmetic import IntRangeError
from edgewright.ir.int_rules import AccumulatorConv, dtype_range

_TYPES = tuple(np.dtype(n) for n in ("int8", "uint8", "int16"))
_INT32 = np.dtype(np.int32)


@dataclass(frozen=True)
class _Window:
    """Rows, columns and channels of the window with their byte strides, and the zero point to subtract."""

    counts: tuple[int, int, int]
    steps: tuple[int, int, int]
    zero: int
    signed: bool
    channels: int


class IntAccumulatorConv(DescribedLowering):
    """Convolutions with constant weights, if all sums fit in 32 bits."""

    def __init__(self, node: Node, conv: AccumulatorConv) -> None:
        super().__init__(node)
        self.conv = conv
        low, high = (n - conv.zero for n in dtype_range(conv.data))
        taps = np.abs(conv.weights).sum(axis=(0, 1) if conv.depthwise else (0, 1, 2))
        if int((taps * max(-low, high) + np.abs(conv.bias)).max()) >= 1 << 31:
            raise IntRangeError("sum exceeds 32 bits")

    @classmethod
    def accept_description(cls, node: Node, description: AccumulatorConv) -> Lowering | None:
        supported = node.out.dtype == _INT32 and description.data.dtype in _TYPES and _fits(description, node.out)
        return cls(node, description) if supported else None

    def emit(self, context: LoweringContext) -> None:
        conv, weights = self.conv, self.conv.weights
        data, out = context.storage(conv.data), context.storage(self.node.out)
        (stride_h, stride_w), (dilation_h, dilation_w) = conv.stride, conv.dilation
        layout, item = data.layout, data.layout.item
        kernel, channels = weights.shape[:2], weights.shape[-1]
        q, signed = conv.data.q, dtype_range(conv.data)[0] < 0
        offset = 0 if q is None else storage_offset(q)
        depth = 1 if conv.depthwise else weights.shape[2]
        zero = offset + conv.zero
        strides = (dilation_h * layout.row, dilation_w * layout.pixel, item)
        window = _Window((*kernel, depth), strides, zero, signed and not offset, channels)
        steps = (layout.image, stride_h * layout.row, stride_w * layout.pixel, item if conv.depthwise else 0)
        operands = [LoopOperand(llvm_type(conv.data), item, steps), LoopOperand("i32", 4, (0, 0, 0, 4)),
                    LoopOperand("i32", 4, (0, 0, 0, 4)), LoopOperand("i32", 4, out.layout.strides)]  # fmt: skip
        packed = [context.weights.add(a.astype(np.int32).view(np.uint8)) for a in (weights, conv.bias)]
        pointers = [data.at(), *packed, out.at()]
        macs = out.value.nbytes // 4 * int(np.prod(window.counts))
        for loops, offsets in plan_loops(list(out.layout.shape), operands):

            def build(module: Module, name: str, loops: LoopNest = loops) -> None:
                _build(module, name, context.isa.lanes, loops, window)

            name = context.kernel("int_conv", (loops, window), build)
            slots = [type(p)(p.buffer, p.offset + m, p.index) for p, m in zip(pointers, offsets, strict=True)]
            context.step(name, slots, loops.units, macs / 8, macs)


def _fits(conv: AccumulatorConv, out: Value) -> bool:
    """Whether every window lies inside the image and the output has the matching shape."""
    image, weights = conv.data.bound, conv.weights
    if len(image) != 4 or weights.ndim != (3 if conv.depthwise else 4) or 0 in (*image, *weights.shape):
        return False
    if weights.shape[2] != image[3] or conv.bias.shape != weights.shape[-1:]:
        return False
    sizes = []
    for n, k, s, d in zip(image[1:3], weights.shape[:2], conv.stride, conv.dilation, strict=True):
        extent = (k - 1) * d + 1
        if s < 1 or d < 1 or extent > n:
            return False
        sizes.append((n - extent) // s + 1)
    return out.bound == (image[0], *sizes, weights.shape[-1])


def _build(module: Module, name: str, lanes: int, loops: LoopNest, window: _Window) -> None:
    """Emit the kernel. Slots: data, weights, biases, output."""
    f = module.kernel(name)
    data = loops.operands[0]
    broadcast = data.strides[-1] == 0  # one input element for all output channels

    def product(pointer: Reg, weights: Reg, total: Reg, width: int) -> Reg:
        x = f.load(data.kind if broadcast else vec(width, data.kind), pointer)
        wide = f.cast("sext" if window.signed else "zext", x, "i32" if broadcast else vec(width, "i32"))
        centered = f.add(wide, -window.zero)
        return f.op("add", total, f.op("mul", f.splat(centered, width) if broadcast else centered,
                                       f.load(vec(width, "i32"), weights)))  # fmt: skip

    def over(dim: int, pointer: Reg, weights: Reg, total: Reg, width: int) -> list[Reg]:
        """Loop over a window dimension and those inside it; returns the next weights and the sum."""
        if dim == 3:
            return [f.gep(weights, 4 * window.channels), product(pointer, weights, total, width)]

        def once(_: Reg, now: list[Reg]) -> list[Reg]:
            return [f.gep(now[0], window.steps[dim]), *over(dim + 1, now[0], now[1], now[2], width)]

        return f.loop(window.counts[dim], [pointer, weights, total], once)[1:]

    def element(now: list[Reg], at: Reg, width: int) -> None:
        pointer = now[0] if broadcast else f.gep(now[0], f.mul(at, data.strides[-1]))
        weights, biases = (
            f.gep(p, f.mul(at, o.strides[-1])) for p, o in zip(now[1:3], loops.operands[1:3], strict=True)
        )
        start = f.load(vec(width, "i32"), biases)
        total = over(0, pointer, weights, start, width)[1]
        f.store(total, f.gep(now[3], f.mul(at, loops.operands[3].strides[-1])))

    emit_loop_nest(f, lanes, loops, [f.load_arg(PTR, i) for i in range(4)], element)
