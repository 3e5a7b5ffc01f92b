"""TOSA's convolutions as sums of integers alone: any window of an image that has its border already."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import PTR, Module, Reg, vec
from edgewright.engine.codegen.ranged_int import IntRangeError
from edgewright.engine.codegen.requant import storage_offset
from edgewright.engine.dialects.elementwise import bounds
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
    """How many rows, columns and channels, how many bytes apart; and what is taken off each element."""

    counts: tuple[int, int, int]
    steps: tuple[int, int, int]
    zero: int
    signed: bool
    channels: int


class IntAccumulatorConv(Lowering):
    """Products of an image and constants, summed in 32 bits that hold them all."""

    exact_reads = True

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        op = node.op
        self.data: Value = op.args["input"]
        self.deep = "depthwise" in op.kind
        self.weights, self.bias = _numbers(op, self.deep)
        low, high = (n - int(op.args["input_zp"]) for n in bounds(self.data))
        reach = np.abs(self.weights).sum(axis=(0, 1) if self.deep else (0, 1, 2)) * max(-low, high) + np.abs(self.bias)
        if int(reach.max()) >= 1 << 31:
            raise IntRangeError("sums of more than 32 bits")

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if op.kind not in _KINDS or len(node.ops) > 1 or node.out.dtype != _INT32 or any(op.args["pad"]):
            return None
        weight, bias, data = op.args["weight"], op.args["bias"], op.args["input"]
        whole = all(v.data is not None and v.dtype.kind == "i" and 0 not in v.bound for v in (weight, bias))
        if not whole or data.dtype not in _TYPES or not _fits(op, node.out):
            return None
        try:
            return cls(node)
        except IntRangeError:
            return None

    def emit(self, context: LoweringContext) -> None:
        data, out = context.home(self.data), context.home(self.node.out)
        (down, across), (tall, wide) = ([int(n) for n in self.node.op.args[name]] for name in ("stride", "dilation"))
        layout, item = data.layout, data.layout.item
        kernel, channels = self.weights.shape[:2], self.weights.shape[-1]
        q, signed = self.data.q, bounds(self.data)[0] < 0
        moved = 0 if q is None else storage_offset(q)
        window = _Window((*kernel, 1 if self.deep else self.weights.shape[2]), (tall * layout.row, wide * layout.pixel,
                         item), moved + int(self.node.op.args["input_zp"]), signed and not moved, channels)  # fmt: skip
        steps = (layout.image, down * layout.row, across * layout.pixel, item if self.deep else 0)
        operands = [LoopOperand(llvm_type(self.data), item, steps), LoopOperand("i32", 4, (0, 0, 0, 4)),
                    LoopOperand("i32", 4, (0, 0, 0, 4)), LoopOperand("i32", 4, out.layout.strides)]  # fmt: skip
        packed = [context.weights.add(a.astype(np.int32).view(np.uint8)) for a in (self.weights, self.bias)]
        places = [data.at(), *packed, out.at()]
        macs = out.value.nbytes // 4 * int(np.prod(window.counts))
        for loops, shift in plan_loops(list(out.layout.shape), operands):

            def build(module: Module, name: str, loops: LoopNest = loops) -> None:
                _build(module, name, context.isa.lanes, loops, window)

            name = context.kernel("sums", (loops, window), build)
            slots = [type(p)(p.buffer, p.offset + m, p.index) for p, m in zip(places, shift, strict=True)]
            context.step(name, slots, loops.units, macs / 8, macs)


def _numbers(op: Op, deep: bool) -> tuple[Array, Array]:
    """Weights with the result's channels last, without their zero point; and biases."""
    weights = op.args["weight"].data.astype(np.int64) - int(op.args["weight_zp"])
    weights = weights[..., 0] if deep else weights.transpose(1, 2, 3, 0)
    bias = np.broadcast_to(op.args["bias"].data.astype(np.int64).reshape(-1), weights.shape[-1])
    return np.ascontiguousarray(weights), np.ascontiguousarray(bias)


def _fits(op: Op, out: Value) -> bool:
    """Every window lies in the image, and there are as many as the graph says."""
    image, weight, bias = (op.args[name].bound for name in ("input", "weight", "bias"))
    if len(image) != 4 or len(weight) != 4 or len(bias) != 1 or 0 in image:
        return False
    deep = "depthwise" in op.kind
    kernel, channels = (weight[:2], weight[2]) if deep else (weight[1:3], weight[0])
    if (deep and weight[3] != 1) or (weight[2] if deep else weight[3]) != image[3] or bias[0] not in (1, channels):
        return False
    sizes = []
    for n, k, s, d in zip(image[1:3], kernel, op.args["stride"], op.args["dilation"], strict=True):
        reach = (k - 1) * int(d) + 1
        if int(s) < 1 or int(d) < 1 or reach > n:
            return False
        sizes.append((n - reach) // int(s) + 1)
    return out.bound == (image[0], *sizes, channels)


def _build(module: Module, name: str, lanes: int, loops: LoopNest, window: _Window) -> None:
    """Slots: data, weights, biases, output."""
    f = module.kernel(name)
    data = loops.operands[0]
    spread = data.strides[-1] == 0  # one element for all channels of the result

    def product(place: Reg, weights: Reg, total: Reg, width: int) -> Reg:
        x = f.load(data.kind if spread else vec(width, data.kind), place)
        wide = f.cast("sext" if window.signed else "zext", x, "i32" if spread else vec(width, "i32"))
        centred = f.add(wide, -window.zero)
        return f.op("add", total, f.op("mul", f.splat(centred, width) if spread else centred,
                                       f.load(vec(width, "i32"), weights)))  # fmt: skip

    def over(dim: int, place: Reg, weights: Reg, total: Reg, width: int) -> list[Reg]:
        """Along a dimension of the window and those inside it: the next weights, and the sum."""
        if dim == 3:
            return [f.gep(weights, 4 * window.channels), product(place, weights, total, width)]

        def once(_: Reg, now: list[Reg]) -> list[Reg]:
            return [f.gep(now[0], window.steps[dim]), *over(dim + 1, now[0], now[1], now[2], width)]

        return f.loop(window.counts[dim], [place, weights, total], once)[1:]

    def element(now: list[Reg], at: Reg, width: int) -> None:
        place = now[0] if spread else f.gep(now[0], f.mul(at, data.strides[-1]))
        weights, biases = (
            f.gep(p, f.mul(at, o.strides[-1])) for p, o in zip(now[1:3], loops.operands[1:3], strict=True)
        )
        start = f.load(vec(width, "i32"), biases)
        total = over(0, place, weights, start, width)[1]
        f.store(total, f.gep(now[3], f.mul(at, loops.operands[3].strides[-1])))

    emit_loop_nest(f, lanes, loops, [f.load_arg(PTR, i) for i in range(4)], element)
