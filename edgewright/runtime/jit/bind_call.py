"""Lowering of one kernel call: an operator of the ATen dialect, which ``lowering/aten_to_core`` lowers.

Calls that depend on the file alone are evaluated at load. A call that cannot be lowered, or whose arguments are
invalid, is left to its kernel, which reports what is wrong.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from edgewright.errors import EdgewrightError
from edgewright.formats.operator_signatures import Kind, operators
from edgewright.ir.aten.ops import OPS
from edgewright.ir.aten.table import OpClass
from edgewright.ir.graph import Array, Op, Value
from edgewright.lowering.aten_to_core import LOWERINGS
from edgewright.lowering.passes.layout import identity, permuted_order
from edgewright.runtime.infer_shapes import MOVING, RuntimeInt
from edgewright.runtime.jit.cost import call_cost
from edgewright.runtime.jit.fold_batch_norm import fold_batch_norm
from edgewright.runtime.jit.graph_builder import GraphBuilder
from edgewright.runtime.jit.moving_calls import lower_moving_call
from edgewright.runtime.jit.row_quantization import ROW_QUANTIZATION, lower_row_quantization
from edgewright.runtime.registry import all_kernels
from edgewright.runtime.tensor import TensorSlot

log = logging.getLogger("edgewright.runtime")

Args = Mapping[str, Any]  # of a call, by the names of its signature: tensor slots, lists of them, and numbers
_MAX_FOLDED_ELEMENTS = 1 << 20  # elements folded when a program is loaded
_SHAPE_ONLY = ("aten::full_like.out", "aten::fill.Scalar_out")  # read only the shape of their input
_CREATION_OPS = {f"aten::{name}" for name in ("full.out", "ones.out", "zeros.out", "arange.out", "arange.start_out",
                                         "scalar_tensor.out", "empty.out")}  # fmt: skip
_CREATION_OPS |= {*_SHAPE_ONLY, "dim_order_ops::_empty_dim_order.out"}
_INVALID = (EdgewrightError, ValueError, LookupError, ArithmeticError, TypeError)  # reported when the call runs
_COPY = "aten::copy_"
# Kernels of operators that are not the out variant of an overload in the op table.
_KINDS = {
    "dim_order_ops::_clone_dim_order.out": "clone", "dim_order_ops::_to_dim_order_copy.out": "cast",
    "et_copy::_h2d_copy.out": "clone", "et_copy::_d2h_copy.out": "clone", "aten::index_put_": "index_put",
    "aten::fill.Tensor_out": "fill", "aten::_upsample_bilinear2d_aa.out": "upsample_bilinear2d_aa",
    **{f"quantized_decomposed::{name}.{overload}": name for name in ("embedding_byte", "embedding_4bit",
                                                              "embedding_2bit") for overload in ("out", "dtype_out")},
}  # fmt: skip
_QPARAMS = ("scale", "scales", "zero_point", "zero_points")  # constants of any type
# Those whose lowering defines all results, not only the first.
_ALL_RESULTS = ("max_dim", "min_dim", "topk", "var_mean", "choose_qparams_per_token_asymmetric")
# Operators along a dimension: rank-0 operands are lowered as rank 1.
_ALONG_DIMENSION = {
    "argmax", "argmin", "max_dim", "min_dim", "topk", "cumsum", "any", "prod", "amax", "amin", "mean", "sum", "softmax",
    "log_softmax", "gather", "scatter", "scatter_value", "scatter_add", "index_select", "var", "var_mean", "repeat",
    "transpose", "flip", "roll", "pad",
}  # fmt: skip
_VIEWS = {OpClass.RESHAPE, OpClass.TRANSPOSE, OpClass.BROADCAST, OpClass.SLICE, OpClass.JOIN}


@cache
def _kinds(key: str) -> list[str]:
    """The operators that a kernel may compute, which depends on its arguments."""
    if key in _KINDS:
        return [_KINDS[key]]
    signature = operators().get(key)
    return [] if signature is None else [row.name for row in OPS.matching(signature.functional)]


@cache
def has_lowering(key: str) -> bool:
    """Whether calls of a kernel can be lowered at all."""
    special = key in MOVING or key in _CREATION_OPS or key == _COPY or key in ROW_QUANTIZATION
    return special or any(kind in LOWERINGS for kind in _kinds(key))


@cache
def defines_all_results(key: str) -> bool:
    """Whether the lowering of a kernel defines all results, not only the first."""
    lists = any(a.kind is Kind.TENSORS for a in operators()[key].outputs)
    return lists or any(kind in _ALL_RESULTS for kind in _kinds(key))


def lower_call(g: GraphBuilder, key: str, args: Args, outs: Sequence[TensorSlot]) -> bool:
    """Lower a call; False if that is not possible."""
    try:
        if key.startswith("llama::") or any(isinstance(a, RuntimeInt) for a in args.values()):
            return lower_moving_call(g, key, args, outs)
        if lower_row_quantization(g, key, args, outs):
            return True
        if key == _COPY:
            return _bind_copy(g, args["self"], args["src"])
        if key == "aten::index_put_":
            outs = [args["self"]]
        elif _fold_constants(g, key, args, outs):
            return True
        return _lower_op(g, key, args, outs if defines_all_results(key) else outs[:1])
    except _INVALID as error:
        log.debug("%s stays with numpy: %s", key, error)
        return False


# ----------------------------------------------------------------------------------------------------------- operators


def _lower_op(g: GraphBuilder, key: str, args: Args, outs: Sequence[TensorSlot]) -> bool:
    slots = list(_slots(args))
    tensors = _slots({name: argument for name, argument in args.items() if name not in _QPARAMS})
    if not g.supports(*tensors, *outs) or args.get("dim_order") not in (None, list(outs[0].dim_order)):
        return False
    op = Op("", {name: _as_value(g, argument) for name, argument in args.items()}, [])
    rows = [OPS[kind] for kind in _kinds(key) if kind in OPS]
    op.kind = next((row.name for row in rows if row.when is None or row.when(op)), _KINDS.get(key, ""))
    if op.kind not in LOWERINGS or not _may_start(g, op.kind, slots) or _pads_beyond_stride(op):
        return False
    if op.kind in _ALONG_DIMENSION:
        op.args = {name: _as_rank1(g, argument) for name, argument in op.args.items()}
    shapes = _shapes(key, op, outs)
    if any(out.bound != shape and (out.bound, shape) != ((), (1,)) for out, shape in zip(outs, shapes, strict=True)):
        return False  # the kernel resizes the result, or reports it
    results = [Value("v", out.dtype, shape, identity(len(shape))) for out, shape in zip(outs, shapes, strict=True)]
    op.outputs = list(results)
    if not fold_batch_norm(g, op, slots):
        LOWERINGS[op.kind](g, op)
    g.macs += call_cost(op)
    for out, value in zip(outs, results, strict=True):
        g.bind_result(out, _in_shape(g, value, out))
    return True


def _may_start(g: GraphBuilder, kind: str, slots: Sequence[TensorSlot]) -> bool:
    """Whether a call may be lowered here: data movement extends a segment, and never starts one or moves constants."""
    if g.complete or kind not in OPS or OPS[kind].op_class not in _VIEWS:
        return True
    moved = any(g.constant_data(slot) is None for slot in slots)
    return moved and (bool(g.graph.ops) or any(map(g.is_bound, slots)))


def _pads_beyond_stride(op: Op) -> bool:
    """Whether the output padding of a transposed convolution is larger than PyTorch's own kernels expect."""
    return bool(op.args.get("transposed")) and any(
        p >= s for p, s in zip(op.args["output_padding"], op.args["stride"], strict=False)
    )


def _slots(args: Args) -> Iterator[TensorSlot]:
    for arg in args.values():
        yield from (x for x in (arg if isinstance(arg, list) else [arg]) if isinstance(x, TensorSlot))


def _as_value(g: GraphBuilder, argument: Any) -> Any:
    if isinstance(argument, list):
        return [_as_value(g, x) for x in argument]
    return g.source(argument) if isinstance(argument, TensorSlot) else argument


def _as_rank1(g: GraphBuilder, argument: Any) -> Any:
    if not isinstance(argument, Value) or argument.shape:
        return argument
    if argument.data is not None:
        return g.constant(argument.data.reshape(1))
    value = Value("v", argument.dtype, (1,), (0,))
    g.alias(value, (0,), g.view(g.get(argument), (1,)))
    return value


def _shapes(key: str, op: Op, outs: Sequence[TensorSlot]) -> list[tuple[int, ...]]:
    """The shapes of the results, from the kernel's shape function, which checks the arguments."""
    elementwise = op.kind in OPS and OPS[op.kind].op_class is OpClass.ELEMENTWISE
    if elementwise and all(v.bound == outs[0].bound for v in op.inputs()):
        return [outs[0].bound]
    shape = all_kernels()[key].shape
    args = {name: _without_contents(argument) for name, argument in op.args.items()}
    shapes = OPS[op.kind].shape(**args) if shape is None else shape(*args.values())
    shapes = shapes if isinstance(shapes, list) else [shapes]
    return [tuple(map(int, s)) for s in shapes if s is not None][: len(outs)]


def _without_contents(argument: Any) -> Any:
    """A tensor as shape functions read it: an array that repeats one element."""
    if isinstance(argument, list):
        return [_without_contents(a) for a in argument]
    if not isinstance(argument, Value):
        return argument
    return np.ndarray(argument.bound, argument.dtype, bytes(16), strides=(0,) * len(argument.bound))


def _in_shape(g: GraphBuilder, value: Value, out: TensorSlot) -> Value:
    """A result in the shape of its slot, which differs only if operands of rank 0 were lowered as rank 1."""
    if value.bound == out.bound:
        return value
    scalar = Value("v", out.dtype, (), ())
    g.alias(scalar, (), g.view(g.get(value), ()))
    return scalar


def _bind_copy(g: GraphBuilder, target: TensorSlot, source: TensorSlot) -> bool:
    """``copy_`` of what the segment computes: the new contents of a tensor are a value like any other (SSA form). The
    engine writes them over the old ones if nothing reads those any more."""
    supported = g.supports_same_dtype(target, source) and target.bound == source.bound and g.is_bound(source)
    if not supported or source is target or g.constant_data(source) is not None:
        return False
    g.bind_result(target, g.source(source))
    return True


# ----------------------------------------------------------------------------------------------------------- constants


def _fold_constants(g: GraphBuilder, key: str, args: Args, outs: Sequence[TensorSlot]) -> bool:
    """Bind the results as constants if the call reads nothing but constants of the file."""
    slots = list(_slots(args))
    if not (slots or key in _CREATION_OPS) or any(o.dynamic or o.dtype.kind not in "fiub" for o in outs):
        return False
    shape_only = key in _SHAPE_ONLY
    if not shape_only and any(g.constant_data(slot) is None for slot in slots):
        return False
    if any(not s.bound and s.dynamic for s in slots):
        return False
    if sum(math.prod(s.bound) for s in (*slots, *outs)) > _MAX_FOLDED_ELEMENTS:
        return _fold_cast(g, key, args, outs) or _fold_transpose(g, key, args, outs)
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
        g.bind_constant(out, np.array(slot.array, order="C"))
    return True


def _fold_cast(g: GraphBuilder, key: str, args: Args, outs: Sequence[TensorSlot]) -> bool:
    """Convert a large constant (16-bit weights of a product that adds up in float32) at load, once for all shapes."""
    if "cast" not in _kinds(key) or not g.supports_float(args["self"]) or not g.supports_float(*outs):
        return False
    data = g.constant_data(args["self"])
    if data is None:
        return False
    g.bind_constant(outs[0], g.cast_constant(data, outs[0].dtype))
    return True


def _fold_transpose(g: GraphBuilder, key: str, args: Args, outs: Sequence[TensorSlot]) -> bool:
    """Transpose a large constant (the weights of a product) at load, once for all shapes of a method."""
    kinds = _kinds(key)
    if not kinds or OPS[kinds[0]].op_class is not OpClass.TRANSPOSE or not g.supports_float(args["self"], *outs):
        return False
    op = Op(kinds[0], {**args, "self": g.source(args["self"])}, [])
    order = permuted_order(op, identity(len(args["self"].bound)))
    data = g.transpose_constant(op.args["self"].data, tuple(order.index(d) for d in range(len(order))))
    g.bind_constant(outs[0], data)
    return bool(data.shape == outs[0].bound)


def _load_constants(g: GraphBuilder, argument: Any, shape_only: bool) -> Any:
    if isinstance(argument, list):
        return [_load_constants(g, x, shape_only) for x in argument]
    if not isinstance(argument, TensorSlot):
        return argument
    contents: Array | None = (
        np.broadcast_to(np.zeros((), argument.dtype), argument.bound) if shape_only else g.constant_data(argument)
    )
    return contents
