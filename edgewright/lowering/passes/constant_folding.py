"""Constant folding: operators on constants, dequantized weights, and batch norms into weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.errors import UsageError
from edgewright.ir.aten.reference.quant import quantize_per_channel, quantize_per_tensor
from edgewright.ir.aten.table import OpClass, OpTable
from edgewright.ir.graph import Graph, Op, QParams, Value
from edgewright.ir.numerics import broadcast_params

_MAX_CONSTANT_BYTES = 1 << 16  # bytes that a folded constant may have even if its sources are smaller
_WORKSPACE = 1 << 28  # bytes of an intermediate result
_CONVERSIONS = ("dequantize", "quantize", "requantize")  # always folded, whatever the size
_LINEAR_LAYERS = ("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d", "linear")


def fold_constants(graph: Graph, table: OpTable) -> None:
    """Replace operators on constants with their results, and dynamic sizes of reshapes with static ones.

    Only results that other operators read are stored, so only those must be small: an MLP on a table of coordinates
    becomes its last layer's result, however wide the layers before it are.
    """
    _make_sizes_static(graph)
    folder = _ConstantFolder(table, graph)
    remaining = []
    live = {v for v in graph.outputs if isinstance(v, Value)} | {source for _, source in graph.updates}
    for op in reversed(graph.ops):
        read = [v for v in op.outputs if v is not None and v in live]
        if op in folder.sources and (not read or folder.fold(op, read)):
            continue
        remaining.append(op)
        live |= set(op.inputs()) | {v for g in op.graphs.values() for inner in g.ops for v in inner.inputs()}
    graph.ops = remaining[::-1]


class _ConstantFolder:
    """Evaluates what depends on constants only. ``sources``: such operators, with the constants they depend on."""

    def __init__(self, table: OpTable, graph: Graph) -> None:
        self.table = table
        self.graph_outputs = {v for v in graph.outputs if isinstance(v, Value)} | {
            source for _, source in graph.updates
        }
        self.sources: dict[Op, set[Value]] = {}
        self.producers: dict[Value, Op] = {}
        self.results: dict[Value, Any] = {}
        self.order = {op: position for position, op in enumerate(graph.ops)}
        for op in graph.ops:
            self._visit(op)

    def _visit(self, op: Op) -> None:
        inputs = self._operands(op)
        if op.graphs or not self._is_computable(op):
            return
        if all(v.constant or v in self.producers for v in inputs):
            self.sources[op] = {
                s for v in inputs for s in (self.sources[self.producers[v]] if v in self.producers else {v})
            }
            self.producers.update({v: op for v in op.outputs if v is not None})

    def _operands(self, op: Op) -> list[Value]:
        """The tensors that an operator's results depend on; those that create tensors read shapes only."""
        return [] if self._creates(op) else list(op.inputs())

    def _creates(self, op: Op) -> bool:
        return op.kind in self.table and self.table[op.kind].op_class is OpClass.CREATION

    def _is_computable(self, op: Op) -> bool:
        tensors = [*op.inputs(), *(o for o in op.outputs if o is not None)]
        if any(v.dtype is None or v.dynamic or (v.q is not None and (v.q.block or v.q.dynamic)) for v in tensors):
            return False
        has_reference = op.kind in _CONVERSIONS or (op.kind in self.table and not self.table[op.kind].random)
        return has_reference and all(o is None or o.nbytes <= _WORKSPACE for o in op.outputs)

    def fold(self, op: Op, read: list[Value]) -> bool:
        """Store the results of an operator that others read; False if they are too large or graph outputs, or infinite
        and cheap to create: devices disagree about infinite constants."""
        limit = max(sum(v.nbytes for v in self.sources[op]), _MAX_CONSTANT_BYTES)
        too_large = op.kind not in _CONVERSIONS and any(v.nbytes > limit for v in read)
        if (
            too_large
            or not self.graph_outputs.isdisjoint(read)
            or not all(self._evaluate(step) for step in self._needed_ops(op))
            or (self._creates(op) and not all(np.isfinite(self.results[value]).all() for value in read))
        ):
            return False
        for value in read:
            value.data = self.results[value]
        return True

    def _needed_ops(self, op: Op) -> list[Op]:
        """The operators to evaluate for an operator's results, in order."""
        needed, todo = {op}, [op]
        while todo:
            operands = self._operands(todo.pop())
            producers = {self.producers[v] for v in operands if not v.constant and v not in self.results}
            todo += producers - needed
            needed |= producers
        return sorted(needed, key=self.order.__getitem__)

    def _evaluate(self, op: Op) -> bool:
        with np.errstate(all="ignore"):  # log(0) is infinite, as in torch
            results = self._call(op)
            for value, result in zip(op.outputs, results or (), strict=False):  # an overload may have fewer
                if value is not None:
                    self.results[value] = _encode_result(value, result)
        return results is not None

    def _call(self, op: Op) -> tuple[Any, ...] | None:
        """An operator's results in floating point; None if its reference rejects an argument (a device)."""
        if op.kind in _CONVERSIONS:
            return (self._float_value(op.args["self"]),)
        read = _shape_of if self._creates(op) else self._float_value
        arguments = {name: read(value) for name, value in op.args.items() if name != "limits"}
        try:
            results = self.table[op.kind].call(arguments)
        except (TypeError, ValueError, UsageError):
            return None
        limits = op.args.get("limits")
        return results if limits is None else (np.clip(results[0], *limits), *results[1:])

    def _float_value(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._float_value(v) for v in value]
        if not isinstance(value, Value):
            return value
        constant = value if value.constant else replace(value, data=self.results[value])
        return constant.data if constant.q is None else dequantize_constant(constant)


def _shape_of(value: Any) -> Any:
    """A tensor of a value's shape and type, for operators that do not read its elements."""
    return np.broadcast_to(np.zeros((), value.dtype), value.bound) if isinstance(value, Value) else value


def _encode_result(value: Value, result: Any) -> Any:
    """A result in its value's dtype, quantized if the value is."""
    data = np.asarray(result) if value.q is None else quantize_array(np.asarray(result, np.float32), value.q)
    return data.astype(value.dtype)


def _make_sizes_static(graph: Graph) -> None:
    """Make the sizes of reshapes static where the result's shape is, and drop unused size operators."""
    for op in graph.ops:
        out = op.outputs[0] if op.outputs else None
        if op.kind in ("view", "expand") and out is not None and any(v.dtype is None for v in op.inputs()):
            op.args["size"] = list(out.shape)
    read = {v for op in graph.ops for v in op.inputs()} | set(graph.outputs)
    graph.ops = [op for op in graph.ops if op.kind != "sym_size" or any(o in read for o in op.outputs)]


def quantize_array(data: Any, q: QParams) -> Any:
    """Quantize floats as the model's own quantize node would."""
    fixed = (q.qmin, q.qmax, 0)
    scales, zeros = np.asarray(q.scale, np.float32), np.asarray(q.zero_point)
    if q.axis is None:
        return quantize_per_tensor(data, scales, zeros, *fixed)
    return quantize_per_channel(data, scales, zeros, q.axis, *fixed)


def dequantize_constant(value: Value) -> Any:
    """The float32 contents of a quantized constant."""
    q = value.q
    assert q is not None
    assert value.data is not None
    rank = value.data.ndim
    zero = broadcast_params(np.asarray(q.zero_point), q.axis, rank)
    scale = broadcast_params(np.asarray(q.scale, np.float32), q.axis, rank)
    return np.asarray(
        (value.data.astype(np.int32) - zero).astype(np.float32) * scale
    )  # arithmetic turns 0-d arrays into scalars


def fold_batch_norms(graph: Graph, factors: Callable[[Op], tuple[Any, Any]]) -> None:
    """Fold a batch norm into the weights of the layer before it. ``factors``: its scale and shift."""
    producers = {v: op for op in graph.ops for v in op.outputs if v is not None}
    reads: dict[Value, int] = {}
    for op in graph.ops:
        for value in op.inputs():
            reads[value] = reads.get(value, 0) + 1
    for value in graph.outputs:
        reads[value] = reads.get(value, 0) + 1
    remaining = []
    for op in graph.ops:
        layer = producers.get(op.args["input"]) if op.kind == "batch_norm" else None
        if layer is None or not _can_fold_into(layer, reads):
            remaining.append(op)
            continue
        _fold_into(layer, *factors(op))
        layer.outputs = op.outputs
        if op.args.get("limits"):
            layer.args["limits"] = op.args["limits"]
        producers.update({result: layer for result in op.outputs if result is not None})
    graph.ops = remaining


def _can_fold_into(op: Op, reads: dict[Value, int]) -> bool:
    weight, bias = op.args.get("weight"), op.args.get("bias")
    if op.kind not in _LINEAR_LAYERS or not isinstance(weight, Value) or not weight.constant or weight.q is not None:
        return False
    single_reader = op.outputs[0] is not None and reads.get(op.outputs[0]) == 1
    return single_reader and (bias is None or bias.constant) and not op.args.get("limits")


def _fold_into(op: Op, scale: Any, shift: Any) -> None:
    weight, bias = op.args["weight"], op.args.get("bias")
    groups = op.args.get("groups", 1)
    data = np.asarray(weight.data, np.float64)
    if op.args.get("transposed"):
        grouped = data.reshape(groups, -1, *data.shape[1:])
        shape = (groups, 1, -1) + (1,) * (data.ndim - 2)
        new_weight = (grouped * scale.reshape(shape)).reshape(data.shape)
    else:
        new_weight = data * scale.reshape(-1, *(1,) * (data.ndim - 1))
    new_bias = shift + (0 if bias is None else np.asarray(bias.data, np.float64) * scale)
    name = weight.name
    op.args["weight"] = Value(name, weight.dtype, weight.shape, weight.dim_order, new_weight.astype(weight.dtype))
    op.args["bias"] = Value(f"{name}_bias", weight.dtype, new_bias.shape, (0,), new_bias.astype(weight.dtype))
