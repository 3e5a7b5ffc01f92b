"""Constants known now are computed now: dequantized weights, operators on constants, batch norms into weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.errors import UsageError
from edgewright.ir.aten.reference.quant import quantize_per_channel, quantize_per_tensor
from edgewright.ir.aten.table import OpTable
from edgewright.ir.graph import Graph, Op, QParams, Value
from edgewright.ir.numerics import broadcast_params

_LARGEST = 1 << 16  # bytes that a constant may grow to by being computed ahead
_WORKSPACE = 1 << 28  # bytes that a result on the way to such a constant may have
_CONVERSIONS = ("dequantize", "quantize", "requantize")  # the same numbers, whatever they grow to
_PRODUCTS = ("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d", "linear")


def fold_constants(graph: Graph, table: OpTable) -> None:
    """Replace operators on constants by their results, and sizes that reshapes are told by those of their results.

    Only results that other operators read are stored, so only those must be small: an MLP on a table of coordinates is
    its last layer's result, however wide the layers before it are.
    """
    _tell_sizes(graph)
    folder = _ConstantFolder(table, graph)
    kept = []
    wanted = {v for v in graph.outputs if isinstance(v, Value)} | {source for _, source in graph.updates}
    for op in reversed(graph.ops):
        read = [v for v in op.outputs if v is not None and v in wanted]
        if op in folder.sources and (not read or folder.fold(op, read)):
            continue
        kept.append(op)
        wanted |= set(op.inputs()) | {v for g in op.graphs.values() for inner in g.ops for v in inner.inputs()}
    graph.ops = kept[::-1]


class _ConstantFolder:
    """Computes what depends on constants only. ``sources``: such operators, and the constants that each depends on."""

    def __init__(self, table: OpTable, graph: Graph) -> None:
        self.table = table
        self.returned = {v for v in graph.outputs if isinstance(v, Value)} | {source for _, source in graph.updates}
        self.sources: dict[Op, set[Value]] = {}
        self.makers: dict[Value, Op] = {}
        self.results: dict[Value, Any] = {}
        self.order = {op: place for place, op in enumerate(graph.ops)}
        for op in graph.ops:
            self._visit(op)

    def _visit(self, op: Op) -> None:
        inputs = list(op.inputs())
        if op.graphs or not self._is_computable(op):
            return
        if all(v.constant or v in self.makers for v in inputs):
            self.sources[op] = {s for v in inputs for s in (self.sources[self.makers[v]] if v in self.makers else {v})}
            self.makers.update({v: op for v in op.outputs if v is not None})

    def _is_computable(self, op: Op) -> bool:
        tensors = [*op.inputs(), *(o for o in op.outputs if o is not None)]
        if any(v.dtype is None or v.dynamic or (v.q is not None and (v.q.block or v.q.dynamic)) for v in tensors):
            return False
        known = op.kind in _CONVERSIONS or (op.kind in self.table and not self.table[op.kind].random)
        return known and all(o is None or o.nbytes <= _WORKSPACE for o in op.outputs)

    def fold(self, op: Op, read: list[Value]) -> bool:
        """Store the results of an operator that others read; False if they are too large, or the graph's own.

        What is made of nothing (one number, steps) stays as it is: it is as quickly made again."""
        if not any(True for _ in op.inputs()):
            return False
        most = max(sum(v.nbytes for v in self.sources[op]), _LARGEST)
        grows = op.kind not in _CONVERSIONS and any(v.nbytes > most for v in read)
        if grows or not self.returned.isdisjoint(read) or not all(self._compute(step) for step in self._steps(op)):
            return False
        for value in read:
            value.data = self.results[value]
        return True

    def _steps(self, op: Op) -> list[Op]:
        """What must be computed for an operator's results, in order."""
        needed, todo = {op}, [op]
        while todo:
            makers = {self.makers[v] for v in todo.pop().inputs() if not v.constant and v not in self.results}
            todo += makers - needed
            needed |= makers
        return sorted(needed, key=self.order.__getitem__)

    def _compute(self, op: Op) -> bool:
        with np.errstate(all="ignore"):  # the logarithm of 0 is infinite here as it is in torch
            results = self._call(op)
            for value, result in zip(op.outputs, results or (), strict=False):  # an overload may have fewer
                if value is not None:
                    self.results[value] = _stored_as(value, result)
        return results is not None

    def _call(self, op: Op) -> tuple[Any, ...] | None:
        """An operator's results as real numbers; None if its row does not know an argument (a device)."""
        if op.kind in _CONVERSIONS:
            return (self._plain(op.args["self"]),)
        arguments = {name: self._plain(value) for name, value in op.args.items() if name != "limits"}
        try:
            results = self.table[op.kind].call(arguments)
        except (TypeError, ValueError, UsageError):
            return None
        limits = op.args.get("limits")
        return results if limits is None else (np.clip(results[0], *limits), *results[1:])

    def _plain(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._plain(v) for v in value]
        if not isinstance(value, Value):
            return value
        held = value if value.constant else replace(value, data=self.results[value])
        return held.data if held.q is None else dequantized(held)


def _stored_as(value: Value, result: Any) -> Any:
    """A result as its value holds it: the integers of a quantized one."""
    found = np.asarray(result) if value.q is None else stored(np.asarray(result, np.float32), value.q)
    return found.astype(value.dtype)


def _tell_sizes(graph: Graph) -> None:
    """A reshape's sizes are known from its result: what computes them at run time is then needed no more."""
    for op in graph.ops:
        out = op.outputs[0] if op.outputs else None
        if op.kind in ("view", "expand") and out is not None and any(v.dtype is None for v in op.inputs()):
            op.args["size"] = list(out.shape)
    read = {v for op in graph.ops for v in op.inputs()} | set(graph.outputs)
    graph.ops = [op for op in graph.ops if op.kind != "sym_size" or any(o in read for o in op.outputs)]


def stored(data: Any, q: QParams) -> Any:
    """Real numbers as the integers that stand for them, as the model's own conversion would make them."""
    fixed = (q.qmin, q.qmax, 0)
    scales, zeros = np.asarray(q.scale, np.float32), np.asarray(q.zero_point)
    if q.axis is None:
        return quantize_per_tensor(data, scales, zeros, *fixed)
    return quantize_per_channel(data, scales, zeros, q.axis, *fixed)


def dequantized(value: Value) -> Any:
    """The real numbers of a quantized constant, in single precision."""
    q = value.q
    assert q is not None
    assert value.data is not None
    rank = value.data.ndim
    zero = broadcast_params(np.asarray(q.zero_point), q.axis, rank)
    scale = broadcast_params(np.asarray(q.scale, np.float32), q.axis, rank)
    return np.asarray(
        (value.data.astype(np.int32) - zero).astype(np.float32) * scale
    )  # numpy makes numbers of 0-d ones


def fold_batch_norms(graph: Graph, factors: Callable[[Op], tuple[Any, Any]]) -> None:
    """Put a batch norm into the weights of the product before it. ``factors`` are what it multiplies by and adds."""
    makers = {v: op for op in graph.ops for v in op.outputs if v is not None}
    reads: dict[Value, int] = {}
    for op in graph.ops:
        for value in op.inputs():
            reads[value] = reads.get(value, 0) + 1
    for value in graph.outputs:
        reads[value] = reads.get(value, 0) + 1
    kept = []
    for op in graph.ops:
        product = makers.get(op.args["input"]) if op.kind == "batch_norm" else None
        if product is None or not _foldable(product, reads):
            kept.append(op)
            continue
        _fold_into(product, *factors(op))
        product.outputs = op.outputs
        if op.args.get("limits"):
            product.args["limits"] = op.args["limits"]
        makers.update({made: product for made in op.outputs if made is not None})
    graph.ops = kept


def _foldable(op: Op, reads: dict[Value, int]) -> bool:
    weight, bias = op.args.get("weight"), op.args.get("bias")
    if op.kind not in _PRODUCTS or not isinstance(weight, Value) or not weight.constant or weight.q is not None:
        return False
    once = op.outputs[0] is not None and reads.get(op.outputs[0]) == 1
    return once and (bias is None or bias.constant) and not op.args.get("limits")


def _fold_into(op: Op, scale: Any, shift: Any) -> None:
    weight, bias = op.args["weight"], op.args.get("bias")
    groups = op.args.get("groups", 1)
    data = np.asarray(weight.data, np.float64)
    if op.args.get("transposed"):
        split = data.reshape(groups, -1, *data.shape[1:])
        shape = (groups, 1, -1) + (1,) * (data.ndim - 2)
        scaled = (split * scale.reshape(shape)).reshape(data.shape)
    else:
        scaled = data * scale.reshape(-1, *(1,) * (data.ndim - 1))
    moved = shift + (0 if bias is None else np.asarray(bias.data, np.float64) * scale)
    name = weight.name
    op.args["weight"] = Value(name, weight.dtype, weight.shape, weight.dim_order, scaled.astype(weight.dtype))
    op.args["bias"] = Value(f"{name}_bias", weight.dtype, moved.shape, (0,), moved.astype(weight.dtype))
