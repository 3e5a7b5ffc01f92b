"""Graphs of 16-bit reals as graphs of 32-bit ones: the reference computes in single precision and stores in 16 bits,
so a result that is rounded to 16 bits, and kept in 32, is the same. Only what the caller sees is stored in 16 bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.ir.dtypes import DType, bfloat16
from edgewright.ir.graph import Graph, Op, Value

_SINGLE = np.dtype(np.float32)
ROUNDING_OPS: dict[DType, str] = {np.dtype(np.float16): "round_to_half", bfloat16: "round_to_bfloat"}
_EXACT = ("permute", "view", "slice", "cat", "clone", "expand", "max_pool2d", "abs", "neg", "maximum", "minimum",
          "floor", "ceil", "pad")  # fmt: skip


def is_16bit_float(value: Value) -> bool:
    return value.q is None and value.dtype in ROUNDING_OPS


def widen(graph: Graph) -> Graph:
    """The graph in single precision; as it is if nothing is computed in 16 bits."""
    computed = [op for op in graph.ops if any(is_16bit_float(v) for v in _tensors(op))]
    if not computed or any("." in op.kind for op in graph.ops):
        return graph
    return _Widener(graph).run()


def _tensors(op: Op) -> list[Value]:
    return [*op.inputs(), *(v for v in op.outputs if v is not None)]


class _Widener:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.made: dict[Value, Value] = {}  # in single precision, by the narrow value
        self.ops: list[Op] = []

    def run(self) -> Graph:
        for value in self.graph.inputs:
            if is_16bit_float(value):
                self.made[value] = wide = _twin(value)
                self.ops.append(Op("convert", {"self": value}, [wide]))
        for op in self.graph.ops:
            self._op(op)
        for value in dict.fromkeys(v for v in self.graph.outputs if is_16bit_float(v) and not v.constant):
            if value not in self.graph.inputs:
                self.ops.append(Op("convert", {"self": self.made[value]}, [value]))
        return Graph(self.graph.name, list(self.graph.inputs), list(self.graph.outputs), self.ops)

    def _op(self, op: Op) -> None:
        if not any(is_16bit_float(v) for v in _tensors(op)):
            self.ops.append(op)
            return
        args = {name: self._argument(given) for name, given in op.args.items()}
        outputs: list[Value | None] = []
        rounds: list[Op] = []
        for out in op.outputs:
            if out is None or not is_16bit_float(out):
                outputs.append(out)
                continue
            assert out.dtype is not None
            self.made[out] = last = _twin(out)
            first = last if _exact(op) else _twin(out)
            if first is not last:
                rounds.append(Op(ROUNDING_OPS[out.dtype], {"self": first}, [last]))
            outputs.append(first)
            if op.kind == "pad":
                args["value"] = float(np.asarray(args["value"]).astype(out.dtype))
        kind = "clone" if op.kind == "convert" and op.outputs[0] is not None and op.outputs[0].q is None else op.kind
        self.ops += [Op(kind, args, outputs, op.origin), *rounds]

    def _argument(self, given: Any) -> Any:
        if isinstance(given, list | tuple):
            return type(given)(self._argument(g) for g in given)
        if not isinstance(given, Value) or not is_16bit_float(given):
            return given
        if given not in self.made:
            assert given.data is not None
            self.made[given] = wide = _twin(given)
            wide.data = np.asarray(given.data).astype(_SINGLE)
        return self.made[given]


def _exact(op: Op) -> bool:
    """Whether a result of 16 bits needs no rounding: its operands had 16."""
    return op.kind in _EXACT and op.args.get("limits") is None and all(is_16bit_float(v) for v in op.inputs())


def _twin(value: Value) -> Value:
    return Value(value.name, _SINGLE, value.shape, value.dim_order)
