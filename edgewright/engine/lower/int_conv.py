"""TOSA convolutions with int32 accumulators as output, for windows without a specialized kernel.

The input already has its padding. Used where something other than a RESCALE reads the accumulators.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import PTR, Module, Reg, vec
from edgewright.engine.codegen.ranged_int import IntRangeError
from edgewright.engine.codegen.requant import storage_offset
from edgewright.engine.dialects.elementwise import dtype_range
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels.elementwise import LoopNest, LoopOperand, emit_loop_nest, plan_loops
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.elementwise import llvm_type
from edgewright.ir.graph import Array, Op, Value

_KINDS = ("tosa.conv2d", "tosa.depthwise_conv2d")
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


class IntAccumulatorConv(Lowering):
    """conv2d and depthwise_conv2d with constant weights, if all sums fit in 32 bits."""

    exact_reads = True

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        op = node.op
        self.data: Value = op.args["input"]
        self.depthwise = "depthwise" in op.kind
        self.weights, self.bias = _weights_and_bias(op, self.depthwise)
        low, high = (n - int(op.args["input_zp"]) for n in dtype_range(self.data))
        bound = np.abs(self.weights).sum(axis=(0, 1) if self.depthwise else (0, 1, 2)) * max(-low, high) + np.abs(
            self.bias
        )
        if int(bound.max()) >= 1 << 31:
            raise IntRangeError("sum exceeds 32 bits")

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if op.kind not in _KINDS or len(node.ops) > 1 or node.out.dtype != _INT32 or any(op.args["pad"]):
            return None
        weight, bias, data = op.args["weight"], op.args["bias"], op.args["input"]
        constant_ints = all(v.data is not None and v.dtype.kind == "i" and 0 not in v.bound for v in (weight, bias))
        if not constant_ints or data.dtype not in _TYPES or not _fits(op, node.out):
            return None
        try:
            return cls(node)
        except IntRangeError:
            return None

    def emit(self, context: LoweringContext) -> None:
        data, out = context.storage(self.data), context.storage(self.node.out)
        (stride_h, stride_w), (dilation_h, dilation_w) = (
            [int(n) for n in self.node.op.args[name]] for name in ("stride", "dilation")
        )
        layout, item = data.layout, data.layout.item
        kernel, channels = self.weights.shape[:2], self.weights.shape[-1]
        q, signed = self.data.q, dtype_range(self.data)[0] < 0
        offset = 0 if q is None else storage_offset(q)
        depth = 1 if self.depthwise else self.weights.shape[2]
        zero = offset + int(self.node.op.args["input_zp"])
        strides = (dilation_h * layout.row, dilation_w * layout.pixel, item)
        window = _Window((*kernel, depth), strides, zero, signed and not offset, channels)
        steps = (layout.image, stride_h * layout.row, stride_w * layout.pixel, item if self.depthwise else 0)
        operands = [LoopOperand(llvm_type(self.data), item, steps), LoopOperand("i32", 4, (0, 0, 0, 4)),
                    LoopOperand("i32", 4, (0, 0, 0, 4)), LoopOperand("i32", 4, out.layout.strides)]  # fmt: skip
        packed = [context.weights.add(a.astype(np.int32).view(np.uint8)) for a in (self.weights, self.bias)]
        pointers = [data.at(), *packed, out.at()]
        macs = out.value.nbytes // 4 * int(np.prod(window.counts))
        for loops, offsets in plan_loops(list(out.layout.shape), operands):

            def build(module: Module, name: str, loops: LoopNest = loops) -> None:
                _build(module, name, context.isa.lanes, loops, window)

            name = context.kernel("int_conv", (loops, window), build)
            slots = [type(p)(p.buffer, p.offset + m, p.index) for p, m in zip(pointers, offsets, strict=True)]
            context.step(name, slots, loops.units, macs / 8, macs)


def _weights_and_bias(op: Op, depthwise: bool) -> tuple[Array, Array]:
    """Weights with output channels last and the zero point subtracted, and biases."""
    weights = op.args["weight"].data.astype(np.int64) - int(op.args["weight_zp"])
    weights = weights[..., 0] if depthwise else weights.transpose(1, 2, 3, 0)
    bias = np.broadcast_to(op.args["bias"].data.astype(np.int64).reshape(-1), weights.shape[-1])
    return np.ascontiguousarray(weights), np.ascontiguousarray(bias)


def _fits(op: Op, out: Value) -> bool:
    """Whether every window lies inside the image and the output has the matching shape."""
    image, weight, bias = (op.args[name].bound for name in ("input", "weight", "bias"))
    if len(image) != 4 or len(weight) != 4 or len(bias) != 1 or 0 in image:
        return False
    depthwise = "depthwise" in op.kind
    kernel, channels = (weight[:2], weight[2]) if depthwise else (weight[1:3], weight[0])
    if (
        (depthwise and weight[3] != 1)
        or (weight[2] if depthwise else weight[3]) != image[3]
        or bias[0] not in (1, channels)
    ):
        return False
    sizes = []
    for n, k, s, d in zip(image[1:3], kernel, op.args["stride"], op.args["dilation"], strict=True):
        extent = (k - 1) * int(d) + 1
        if int(s) < 1 or int(d) < 1 or extent > n:
            return False
        sizes.append((n - extent) // int(s) + 1)
    return out.bound == (image[0], *sizes, channels)


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
