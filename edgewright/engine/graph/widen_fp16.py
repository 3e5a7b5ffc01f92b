"""Widening of fp16 and bf16 graphs to float32. The reference computes in float32 and stores 16 bits, so rounding each
result to 16 bits while keeping it in float32 is bit-exact. Only graph inputs and outputs are stored in 16 bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.engine.graph.nodes import is_core
from edgewright.ir.dtypes import DType, bfloat16
from edgewright.ir.graph import Graph, Op, Value

_F32 = np.dtype(np.float32)
ROUNDING_OPS: dict[DType, str] = {np.dtype(np.float16): "core.round_to_fp16", bfloat16: "core.round_to_bf16"}
_EXACT = tuple(f"core.{name}" for name in (
    "permute", "view", "slice", "cat", "clone", "expand", "max_pool2d", "abs", "neg", "maximum", "minimum", "floor",
    "ceil", "pad",
))  # fmt: skip


def is_16bit_float(value: Value) -> bool:
    return value.q is None and value.dtype in ROUNDING_OPS


def widen(graph: Graph) -> Graph:
    """Rewrite the graph in float32; return it unchanged if nothing is computed in 16 bits."""
    computed = [op for op in graph.ops if any(is_16bit_float(v) for v in _tensors(op))]
    if not computed or not is_core(graph):
        return graph
    return _Widener(graph).run()


def _tensors(op: Op) -> list[Value]:
    return [*op.inputs(), *(v for v in op.outputs if v is not None)]


class _Widener:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.wide: dict[Value, Value] = {}  # the float32 value of each 16-bit one
        self.ops: list[Op] = []

    def run(self) -> Graph:
        for value in self.graph.inputs:
            if is_16bit_float(value):
                self.wide[value] = widened = _as_float32(value)
                self.ops.append(Op("core.convert", {"self": value}, [widened]))
        for op in self.graph.ops:
            self._op(op)
        for value in dict.fromkeys(v for v in self.graph.outputs if is_16bit_float(v) and not v.constant):
            if value not in self.graph.inputs:
                self.ops.append(Op("core.convert", {"self": self.wide[value]}, [value]))
        return Graph(self.graph.name, list(self.graph.inputs), list(self.graph.outputs), self.ops)

    def _op(self, op: Op) -> None:
        if not any(is_16bit_float(v) for v in _tensors(op)):
            self.ops.append(op)
            return
        args = {name: self._argument(argument) for name, argument in op.args.items()}
        outputs: list[Value | None] = []
        rounds: list[Op] = []
        for out in op.outputs:
            if out is None or not is_16bit_float(out):
                outputs.append(out)
                continue
            assert out.dtype is not None
            self.wide[out] = rounded = _as_float32(out)
            unrounded = rounded if _exact(op) else _as_float32(out)
            if unrounded is not rounded:
                rounds.append(Op(ROUNDING_OPS[out.dtype], {"self": unrounded}, [rounded]))
            outputs.append(unrounded)
            if op.kind == "core.pad":
                args["value"] = float(np.asarray(args["value"]).astype(out.dtype))
        is_float = all(value is not None and value.q is None for value in (*op.inputs(), *op.outputs))
        kind = "core.clone" if op.kind == "core.convert" and is_float else op.kind
        self.ops += [Op(kind, args, outputs, op.origin), *rounds]

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, list | tuple):
            return type(argument)(self._argument(g) for g in argument)
        if not isinstance(argument, Value) or not is_16bit_float(argument):
            return argument
        if argument not in self.wide:
            assert argument.data is not None
            self.wide[argument] = widened = _as_float32(argument)
            widened.data = np.asarray(argument.data).astype(_F32)
        return self.wide[argument]


def _exact(op: Op) -> bool:
    """Whether a result needs no rounding: it only copies or selects 16-bit operands."""
    return op.kind in _EXACT and op.args.get("limits") is None and all(is_16bit_float(v) for v in op.inputs())


def _as_float32(value: Value) -> Value:
    return Value(value.name, _F32, value.shape, value.dim_order)
