"""Lowering of calls that quantize rows to int8 for a cache: parameters, their casts, and the rows.

The kernel that chooses scales and zero points returns them as float64 and int64, and casts follow. The graph has the
types that the casts give: a value of another type than its tensor cannot be an output of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from edgewright.ir.dtypes import ScalarType
from edgewright.ir.graph import Value
from edgewright.lowering.passes.layout import identity
from edgewright.runtime.jit.graph_builder import GraphBuilder
from edgewright.runtime.tensor import TensorSlot

Args = Mapping[str, Any]  # of a call, by the names of its signature
_F32, _INT8 = np.dtype(np.float32), np.dtype(np.int8)
_Q = "quantized_decomposed::"


def lower_row_quantization(g: GraphBuilder, key: str, args: Args, outs: Sequence[TensorSlot]) -> bool:
    """Lower a call of this family; False if it is none, or cannot be lowered."""
    lower = _LOWERINGS.get(key)
    return lower is not None and lower(g, args, outs)


def _is_contiguous(*slots: TensorSlot) -> bool:
    return all(slot.dim_order == identity(len(slot.bound)) for slot in slots)


def _choose_parameters(g: GraphBuilder, args: Args, outs: Sequence[TensorSlot]) -> bool:
    rows = args["input"]
    shape = (*rows.bound[:-1], 1)
    same = all(out.bound == shape and not out.dynamic for out in outs) and _is_contiguous(rows, *outs)
    if rows.dtype != _F32 or not g.supports(rows) or not same or args["dtype"] != ScalarType.INT8:
        return False
    contents = g.source(rows)
    for out, kind in zip(outs, ("row_scale", "row_zero_point"), strict=True):
        parameter = Value("v", _F32 if kind == "row_scale" else _INT8, shape, identity(len(shape)))
        g.emit(f"core.{kind}", g.make(parameter), self=g.get(contents))
        g.bind_result(out, parameter)
        g.row_parameters[parameter] = contents
    return True


def _quantize(g: GraphBuilder, args: Args, outs: Sequence[TensorSlot]) -> bool:
    rows, out = args["input"], outs[0]
    contents = g.source(rows)
    parameters = [g.source(args[name]) for name in ("scales", "zero_points")]
    own = all(g.row_parameters.get(value) is contents for value in parameters)
    own = own and [value.dtype for value in parameters] == [_F32, _INT8]
    is_full_range = (args["quant_min"], args["quant_max"], args["dtype"]) == (-128, 127, ScalarType.INT8)
    if not own or not is_full_range or not g.supports(out) or out.dtype != _INT8 or out.bound != rows.bound:
        return False
    if not _is_contiguous(rows, out):
        return False
    result = Value("v", _INT8, out.bound, identity(len(out.bound)))
    g.emit("core.quantize_rows", g.make(result), self=g.get(contents))
    g.bind_result(out, result)
    return True


def _cast(g: GraphBuilder, args: Args, outs: Sequence[TensorSlot]) -> bool:
    source, out = g.source(args["self"]), outs[0]
    same = source.bound == out.bound and source.dtype == out.dtype and _is_contiguous(args["self"], out)
    if source not in g.row_parameters or not same or not g.supports(out):
        return False
    g.bind_result(out, source)
    return True


_LOWERINGS: dict[str, Callable[[GraphBuilder, Args, Sequence[TensorSlot]], bool]] = {
    f"{_Q}choose_qparams_per_token_asymmetric.out": _choose_parameters,
    f"{_Q}quantize_per_token.out": _quantize,
    "aten::_to_copy.out": _cast,
    "dim_order_ops::_to_dim_order_copy.out": _cast,
}
ROW_QUANTIZATION = frozenset(_LOWERINGS)
