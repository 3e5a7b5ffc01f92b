"""Constants that XNNPACK reads in place become inputs of the delegate.

XNNPACK packs filters and biases into memory of its own when a program is loaded, and the stock runtime frees the
originals then. It also frees constants that XNNPACK does not pack and goes on reading, such as the 2 of ``x * 2``: in
ExecuTorch 1.0 always, and in later releases where the weights cache is on, which it is on Android and iOS
(pytorch/executorch#22779). Such constants are stored with the program, whose constants live as long as it does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edgewright.ir.graph import Array, Graph, Op, Value

_PACKED = ("weight", "bias")  # operands that these operators pack
_PACKING = ("core.linear", "core.conv2d", "core.depthwise_conv2d", "core.conv_transpose2d")


def pass_unpacked_constants(graph: Graph, linear_too: bool = False) -> list[Array]:
    """Turn the constants that stay unpacked into inputs after the others; returns their contents, in that order.

    ``linear_too``: also the weights and biases of linear layers in float32, which XNNPACK then packs at every call."""
    inputs: dict[Value, Value] = {}
    for op in graph.ops:
        packs = not (linear_too and op.kind == "core.linear" and op.args["weight"].q is None)
        op.args = {name: arg if packs and _is_packed(op, name) else _pass(arg, inputs) for name, arg in op.args.items()}
    graph.inputs += inputs.values()
    return [value.data for value in inputs if value.data is not None]


def _is_packed(op: Op, name: str) -> bool:
    return op.kind in _PACKING and name in _PACKED


def _pass(arg: Any, inputs: dict[Value, Value]) -> Any:
    if isinstance(arg, list | tuple):
        return type(arg)(_pass(item, inputs) for item in arg)
    if not isinstance(arg, Value) or not arg.constant:
        return arg
    return inputs.setdefault(arg, replace(arg, data=None))
