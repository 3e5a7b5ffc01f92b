"""Constants known now are computed now: dequantized weights, operators on constants, batch norms into weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.errors import UsageError
from edgewright.ir.graph import Graph, Op, QParams, Value
from edgewright.ir.numerics import spread
from edgewright.ir.ops import OpTable
from edgewright.ir.reference.quant import quantize_per_channel, quantize_per_tensor

_LARGEST = 1 << 16  # bytes that a constant may grow to by being computed ahead
_PRODUCTS = ("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d", "linear")


def fold_constants(graph: Graph, table: OpTable) -> None:
    """Replace operators on constants by their results, and sizes that reshapes are told by those of their results."""
    _tell_sizes(graph)
    kept = []
    outputs = set(graph.outputs)
    for op in graph.ops:
        out = op.outputs[0] if len(op.outputs) == 1 else None
        inputs = list(op.inputs())
        if out is None or out in outputs or not inputs or not all(v.constant for v in inputs) or op.graphs:
            kept.append(op)
            continue
        result = _computed(op, table, sum(v.nbytes for v in inputs))
        if result is None:
            kept.append(op)
        else:
            out.data = result
    graph.ops = kept


def _tell_sizes(graph: Graph) -> None:
    """A reshape's sizes are known from its result: what computes them at run time is then needed no more."""
    for op in graph.ops:
        out = op.outputs[0] if op.outputs else None
        if op.kind in ("view", "expand") and out is not None and any(v.dtype is None for v in op.inputs()):
            op.args["size"] = list(out.shape)
    read = {v for op in graph.ops for v in op.inputs()} | set(graph.outputs)
    graph.ops = [op for op in graph.ops if op.kind != "sym_size" or any(o in read for o in op.outputs)]


def _computed(op: Op, table: OpTable, given: int) -> Any:
    out = op.outputs[0]
    assert out is not None
    if op.kind == "dequantize":
        value = op.args["self"]
        return dequantized(value).astype(out.dtype)
    if op.kind == "quantize" and out.q is not None:
        return stored(op.args["self"].data, out.q).astype(out.dtype)
    if op.kind not in table or out.nbytes > max(given, _LARGEST) or any(v.q is not None for v in op.inputs()):
        return None
    arguments = {name: _plain(value) for name, value in op.args.items() if name != "limits"}
    try:
        result = np.asarray(table[op.kind].reference(**arguments)).astype(out.dtype)
    except (TypeError, UsageError):  # an argument that only torch knows (a memory format, a device)
        return None
    limits = op.args.get("limits")
    return result if limits is None else np.clip(result, *limits).astype(out.dtype)


def _plain(value: Any) -> Any:
    if isinstance(value, Value):
        return value.data
    return [_plain(v) for v in value] if isinstance(value, list) else value


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
    zero = spread(np.asarray(q.zero_point), q.axis, rank)
    scale = spread(np.asarray(q.scale, np.float32), q.axis, rank)
    return (value.data.astype(np.int32) - zero).astype(np.float32) * scale


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
