"""Graph analyses: liveness and peak memory, and multiply-accumulate counts, the weights of coverage."""

from __future__ import annotations

import math
from collections.abc import Callable

from edgewright.ir.graph import Graph, Op, Value


def last_uses(graph: Graph) -> dict[Op, list[Value]]:
    """Map each operator to the values whose last use it is; graph outputs stay live."""
    outputs = set(graph.outputs)
    dead: dict[Op, list[Value]] = {op: [] for op in graph.ops}
    for value, reader in {v: op for op in graph.ops for v in op.inputs()}.items():
        if value not in outputs:
            dead[reader].append(value)
    return dead


def peak_memory(graph: Graph, bytes_of: Callable[[Value], int] = lambda value: value.nbytes) -> int:
    """The maximum number of bytes that are live at once."""
    last = {v: i for i, op in enumerate(graph.ops) for v in op.inputs() if not v.constant}
    last.update({v: len(graph.ops) for v in graph.outputs})
    live = {v: bytes_of(v) for v in graph.inputs}
    peak: int = sum(live.values())
    for index, op in enumerate(graph.ops):
        live.update({v: bytes_of(v) for v in op.outputs if v is not None})
        peak = max(peak, sum(live.values()))
        live = {key: size for key, size in live.items() if last.get(key, -1) > index}
    return peak


def count_macs(op: Op) -> int:
    """Multiply-accumulates of an operator at its largest shapes; 0 for anything but products."""
    out, weight = (op.outputs[0] if op.outputs else None), op.args.get("weight")
    if out is None:
        return 0
    size = math.prod(out.bound)
    if op.name.startswith("conv") and isinstance(weight, Value):
        if op.args.get("transposed"):
            image: Value = op.args["input"]
            return math.prod(image.bound) * math.prod(weight.bound[1:])
        return size * math.prod(weight.bound[1:])
    if op.name == "linear" and isinstance(weight, Value):
        return size * weight.bound[-1]
    if op.name in ("mm", "bmm", "addmm", "matmul"):
        left = op.args.get("mat1", op.args.get("self"))
        return size * (left.bound[-1] if isinstance(left, Value) and left.bound else 1)
    return 0


def count_core_macs(op: Op) -> int:
    """Multiply-accumulates of a core operator at its largest shapes; 0 for anything but products.

    Convolutions have their channels last: weights are OHWI, depthwise ones 1HWO.
    """
    out, weight = (op.outputs[0] if op.outputs else None), op.args.get("weight")
    if out is None or not op.kind.startswith("core."):
        return 0
    size = math.prod(out.bound)
    if op.name in ("conv2d", "depthwise_conv2d") and isinstance(weight, Value):
        return size * math.prod(weight.bound[1:] if op.name == "conv2d" else weight.bound[1:3])
    if op.name == "linear" and isinstance(weight, Value):
        return size * weight.bound[0 if op.args.get("transposed") else -1]
    if op.name == "conv_transpose2d" and isinstance(weight, Value):
        image: Value = op.args["input"]
        return math.prod(image.bound) * math.prod(weight.bound[:3]) // op.args["groups"]
    left = op.args.get("self")
    return size * left.bound[-1] if op.name in ("bmm", "int_matmul") and isinstance(left, Value) else 0
