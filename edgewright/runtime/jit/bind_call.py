"""Lowering of one kernel call: constant-folds what depends on the file alone, and dispatches the rest."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from edgewright.errors import EdgewrightError
from edgewright.formats.operator_signatures import operators
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Array, Op, Value
from edgewright.lowering.aten_to_core import LOWERINGS as ATEN_TO_CORE
from edgewright.lowering.passes.layout import identity
from edgewright.runtime.jit.cost import call_cost
from edgewright.runtime.jit.graph_builder import GraphBuilder, make_value
from edgewright.runtime.jit.registry import FALLBACKS, LOWERINGS, MULTI_RESULT, Args
from edgewright.runtime.registry import all_kernels
from edgewright.runtime.tensor import TensorSlot

log = logging.getLogger("edgewright.runtime")

_MAX_FOLDED_ELEMENTS = 1 << 20  # elements folded when a program is loaded
_SHAPE_ONLY = ("aten::full_like.out", "aten::fill.Scalar_out")  # read only the shape of their input
_CREATION_OPS = {f"aten::{name}" for name in ("full.out", "ones.out", "zeros.out", "arange.out", "arange.start_out",
                                         "scalar_tensor.out", "empty.out")}  # fmt: skip
_CREATION_OPS |= {*_SHAPE_ONLY, "dim_order_ops::_empty_dim_order.out"}
_INVALID = (EdgewrightError, ValueError, LookupError, ArithmeticError, TypeError)  # reported when the call runs
# Kernels that compute an operator of the op table, but are not an out variant of it.
_KINDS: dict[str, str] = {}
# Operators along a dimension: rank-0 operands are lowered as rank 1.
_RANK1_OPS = {f"aten::{name}" for name in (
    "argmax.out", "argmin.out", "max.dim_max", "min.dim_min", "topk.values", "cumsum.out", "any.out", "any.dims_out",
    "any.all_out", "prod.out", "prod.int_out", "max.unary_out", "min.unary_out", "amax.out", "amin.out", "mean.out",
    "sum.IntList_out", "_softmax.out", "_log_softmax.out", "gather.out", "scatter.src_out", "scatter.value_out",
    "scatter_add.out", "index_select.out", "var.out", "var.correction_out", "var_mean.correction_out", "repeat.out",
    "transpose_copy.int_out", "flip.out", "roll.out", "constant_pad_nd.out",
)}  # fmt: skip


def has_lowering(key: str) -> bool:
    """Whether calls of a kernel can be lowered at all."""
    return key in LOWERINGS or key in FALLBACKS or key in _CREATION_OPS or bool(_rows(key).intersection(ATEN_TO_CORE))


def lower_call(g: GraphBuilder, args: Args, outs: Sequence[TensorSlot]) -> bool:
    """Lower a call. False if no lowering supports it or its arguments are invalid; the kernel then runs and reports
    that."""
    try:
        if args["key"] in _RANK1_OPS and any(not slot.bound for slot in _slots(args)):
            return _lower_rank0(g, args, outs)
        return _fold_constants(g, args, outs) or _apply_lowerings(g, args, outs)
    except (ValueError, LookupError, ArithmeticError) as error:
        log.debug("%s stays with numpy: %s", args["key"], error)
        return False


def _rows(key: str) -> set[str]:
    rows = OPS.matching(operators()[key].functional) if key in operators() else ()
    return {_KINDS[key]} if key in _KINDS else {row.name for row in rows}


def op_kind(key: str, args: Args) -> str:
    """The operator of the op table that a kernel computes; empty if there is none."""
    if key in _KINDS:
        return _KINDS[key]
    rows = OPS.matching(operators()[key].functional) if key in operators() else ()
    call = Op("", dict(args), [])
    return next((row.name for row in rows if row.when is None or row.when(call)), "")


def _lower_op(g: GraphBuilder, args: Args, outs: Sequence[TensorSlot]) -> bool | None:
    """Lower a call by its operator's function of ``lowering/aten_to_core``; None if it has none."""
    key = args["key"]
    values = {name: _as_value(g, argument) for name, argument in args.items() if name != "key"}
    kind = op_kind(key, values)
    lower = ATEN_TO_CORE.get(kind)
    if lower is None:
        return None
    outs = outs if key in MULTI_RESULT else outs[:1]
    if not g.supports(*_slots(args), *outs) or not _shapes_match(key, values, outs):
        return False
    results = [Value("v", out.dtype, out.bound, identity(len(out.bound))) for out in outs]
    op = Op(kind, values, list(results))
    lower(g, op)
    g.macs += call_cost(op)
    for out, value in zip(outs, results, strict=True):
        g.bind_result(out, value)
    return True


def _as_value(g: GraphBuilder, argument: Any) -> Any:
    if isinstance(argument, list):
        return [_as_value(g, x) for x in argument]
    return g.source(argument) if isinstance(argument, TensorSlot) else argument


def _shapes_match(key: str, args: Mapping[str, Any], outs: Sequence[TensorSlot]) -> bool:
    """Whether the results have the shapes that the call computes; a kernel resizes or reports those that do not."""
    shape = all_kernels()[key].shape
    assert shape is not None
    shapes = shape(*(_without_contents(a) for a in args.values()))
    shapes = shapes if isinstance(shapes, list) else [shapes]
    return all(out.bound == tuple(expected) for out, expected in zip(outs, shapes, strict=False))


def _without_contents(argument: Any) -> Any:
    if isinstance(argument, list):
        return [_without_contents(a) for a in argument]
    if not isinstance(argument, Value):
        return argument
    return np.broadcast_to(np.zeros((), argument.dtype), argument.bound)


def _apply_lowerings(g: GraphBuilder, args: Args, outs: Sequence[TensorSlot]) -> bool:
    lowered = _lower_op(g, args, outs)
    if lowered is not None:
        return lowered
    rows = ([LOWERINGS[args["key"]]] if args["key"] in LOWERINGS else []) + FALLBACKS.get(args["key"], [])
    return any(row(g, args, outs) for row in rows)


def _slots(args: Args) -> Iterator[TensorSlot]:
    for arg in args.values():
        yield from (x for x in (arg if isinstance(arg, list) else [arg]) if isinstance(x, TensorSlot))


def _fold_constants(g: GraphBuilder, args: Args, outs: Sequence[TensorSlot]) -> bool:
    """Bind the results as constants if the call reads nothing but constants of the file."""
    key, slots = args["key"], list(_slots(args))
    if not (slots or key in _CREATION_OPS) or any(o.dynamic or o.dtype.kind not in "fiub" for o in outs):
        return False
    shape_only = key in _SHAPE_ONLY
    if not shape_only and any(g.constant_data(slot) is None for slot in slots):
        return False
    if (
        any(not s.bound and s.dynamic for s in slots)
        or sum(math.prod(s.bound) for s in (*slots, *outs)) > _MAX_FOLDED_ELEMENTS
    ):
        return False
    kernel = all_kernels()[key]
    if not kernel.pure or kernel.signature is None or 0 in [n for o in outs for n in o.bound]:
        return False
    results = [TensorSlot(o.scalar_type, o.bound, tuple(range(len(o.bound)))) for o in outs]
    inputs = [_load_constants(g, args[a.name], shape_only) for a in kernel.signature.inputs]
    try:
        with np.errstate(all="ignore"):
            kernel(inputs, results)
    except _INVALID:
        return False
    if any(slot.array is None for slot in results):
        return False
    for out, slot in zip(outs, results, strict=True):
        assert slot.array is not None
        g.bind(out, make_value(out.bound, np.array(slot.array, order="C")), nhwc=False)
    return True


def _load_constants(g: GraphBuilder, argument: Any, shape_only: bool) -> Any:
    if isinstance(argument, list):
        return [_load_constants(g, x, shape_only) for x in argument]
    if not isinstance(argument, TensorSlot):
        return argument
    contents: Array | None = (
        np.broadcast_to(np.zeros((), argument.dtype), argument.bound) if shape_only else g.constant_data(argument)
    )
    return contents


def _lower_rank0(g: GraphBuilder, args: Args, outs: Sequence[TensorSlot]) -> bool:
    """Lower a call with rank-0 operands as the same call with operands of shape (1,)."""
    if not g.supports(*_slots(args), *outs):
        return False
    rank1 = {name: _as_rank1(g, argument) for name, argument in args.items()}
    results = [o if o.bound else TensorSlot(o.scalar_type, (1,), (0,)) for o in outs]
    if not (_fold_constants(g, rank1, results) or _apply_lowerings(g, rank1, results)):
        return False
    for out, slot in zip(outs, results, strict=True):
        if slot is not out:
            g.emit_to("core.view", out, {"self": g.value(slot), "size": []})
    return True


def _as_rank1(g: GraphBuilder, argument: Any) -> Any:
    if not isinstance(argument, TensorSlot) or argument.bound:
        return argument
    slot, value = TensorSlot(argument.scalar_type, (1,), (0,)), g.value(argument)
    if value.data is not None:
        g.bind(slot, make_value((1,), value.data.reshape(1)), nhwc=False)
    else:
        g.emit_to("core.view", slot, {"self": value, "size": [1]})
    return slot
