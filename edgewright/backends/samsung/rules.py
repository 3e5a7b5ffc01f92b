"""Constraints of ENN's operators as rules, including cases that ExecuTorch lowers incorrectly."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.rules import rule
from edgewright.backends.samsung.conv import conv_argument, conv_padding
from edgewright.backends.samsung.dialect.table import ELEMENT_NAMES
from edgewright.backends.samsung.lower import QUANT_DTYPES
from edgewright.backends.table import OK, pool_params, reduced_dims, tensor_arg, tensors
from edgewright.ir.graph import Op, Value

# Constants that stay floating point until lowering.
_FLOAT_PARAMS = ("bias", "weight", "running_mean", "running_var")
_INDEX_ARGS = ("indices", "index")


def _tensor_args(op: Op, names: tuple[str, ...]) -> set[Value]:
    items = [op.args.get(n) for n in names]
    return {v for item in items for v in (item if isinstance(item, list) else [item]) if isinstance(v, Value)}


@rule("quantized tensors must have 8 or 16 bits; activations must be quantized statically, per tensor")
def quantized_storage(op: Op, target: Any) -> object:
    weights = _tensor_args(op, ("weight", "mat2"))
    for value in tensors(op):
        q = value.q
        if q is None:
            continue
        detail = f"{value.name}: {q.dtype}" + (" per channel" if q.axis is not None else "")
        if q.dynamic or q.block:
            return f"{detail}, dynamic or blockwise"
        if str(q.dtype) not in QUANT_DTYPES or (q.axis is not None and value not in weights):
            return detail
    return OK


@rule("quantized activations must all have the same type")
def one_quantized_dtype(op: Op, target: Any) -> object:
    weights = _tensor_args(op, ("weight", "mat2"))
    dtypes = sorted({str(v.q.dtype) for v in tensors(op) if v.q is not None and v not in weights})
    return ", ".join(dtypes) if len(dtypes) > 1 and op.kind != "requantize" else OK


@rule("inputs and outputs must all be quantized, or none")
def all_or_none(op: Op, target: Any) -> object:
    exempt = (
        _tensor_args(op, (*_FLOAT_PARAMS, *_INDEX_ARGS)) if op.kind != "embedding" else _tensor_args(op, _INDEX_ARGS)
    )
    values = [v for v in tensors(op) if v not in exempt]
    unquantized = [v.name for v in values if v.q is None]
    return ", ".join(unquantized) if unquantized and len(unquantized) < len(values) else OK


@rule(
    "tensors that are not quantized must be float32 or float16 (for a bfloat16 model, export model.half() or "
    "model.float()), and indices int32 or int64"
)
def element_types(op: Op, target: Any) -> object:
    indices = _tensor_args(op, _INDEX_ARGS) | (set(op.outputs[1:]) if op.kind == "topk" else set())
    integer_types = ("int32", "int64")
    float_types = tuple(ELEMENT_NAMES) if op.kind == "cast" else ("float32", "float16")
    dtypes = [(str(v.dtype), integer_types if v in indices else float_types) for v in tensors(op) if v.q is None]
    invalid = sorted({kind for kind, allowed in dtypes if kind not in allowed})
    return ", ".join(invalid) if invalid else OK


@rule("weights must be quantized if and only if the input is")
def weights_match_input(op: Op, target: Any) -> object:
    pairs = {"addmm": ("mat1", "mat2"), "mm": ("self", "mat2")}.get(op.kind, ("input", "weight"))
    x, weight = (tensor_arg(op, name) for name in pairs)
    if x is None or weight is None or (x.q is None) == (weight.q is None):
        return OK
    return f"{weight.name}: {weight.dtype}"


@rule("output padding must not be larger than padding")
def output_padding_within_padding(op: Op, target: Any) -> object:
    if not op.args.get("transposed"):
        return OK
    output_padding = conv_argument(op, "output_padding", 0)
    return output_padding if any(e > p for e, (p, _) in zip(output_padding, conv_padding(op), strict=True)) else OK


@rule("weights of grouped transposed convolutions must be quantized per tensor")
def grouped_transposed_per_tensor(op: Op, target: Any) -> object:
    q = op.args["weight"].q
    grouped = op.args.get("transposed") and op.args.get("groups", 1) > 1
    return "per channel" if grouped and q is not None and q.axis is not None else OK


@rule("alpha and beta must be 1")
def unit_alpha_beta(op: Op, target: Any) -> object:
    factors = {name: op.args.get(name, 1) for name in ("alpha", "beta")}
    not_one = {name: n for name, n in factors.items() if n != 1}
    return not_one or OK


@rule("the bias must be a vector with one element per column")
def bias_per_column(op: Op, target: Any) -> object:
    shape = op.args["self"].shape
    return OK if shape == (op.args["mat2"].shape[1],) else list(shape)


@rule("the input of pooling must be NCHW, and ceil_mode False")
def pool_window(op: Op, target: Any) -> object:
    if len(op.args["self"].shape) != 4:
        return f"rank {len(op.args['self'].shape)}"
    return "ceil_mode" if op.args.get("ceil_mode") else OK


@rule("divisor_override must be the window size")
def avg_pool_divisor(op: Op, target: Any) -> object:
    kernel = pool_params(op)[0]
    divisor = op.args.get("divisor_override")
    return OK if divisor in (None, kernel[0] * kernel[1]) else f"divisor {divisor}"


@rule("the input must be NCHW, with sizes that are multiples of the output size")
def divisible_sizes(op: Op, target: Any) -> object:
    x, out = op.args["self"], op.outputs[0]
    if len(x.shape) != 4 or out is None:
        return f"rank {len(x.shape)}"
    pairs = list(zip(x.bound[2:], out.bound[2:], strict=True))
    return OK if all(m and n % m == 0 for n, m in pairs) else x.bound


@rule("at least one dimension must be reduced, and input and output types must be equal")
def reduction(op: Op, target: Any) -> object:
    x, out = op.args["self"], op.outputs[0]
    if not x.shape or not reduced_dims(op):
        return "no dimension"
    return OK if out is None or x.q is not None or out.dtype == x.dtype else str(out.dtype)


@rule("slopes must be constant, one for all channels or one per channel")
def prelu_slopes(op: Op, target: Any) -> object:
    x, weight = op.args["self"], tensor_arg(op, "weight")
    if weight is None or not weight.constant or weight.q is not None:
        return "computed"
    count = int(np.prod(weight.bound))
    return OK if count == 1 or (len(x.shape) > 1 and count == x.bound[1]) else count


@rule("clamp limits must be numbers in ascending order, at least one of them")
def constant_limits(op: Op, target: Any) -> object:
    names = ("min_val", "max_val") if op.kind == "hardtanh" else ("min", "max")
    low, high = (op.args.get(n) for n in names)
    if isinstance(low, Value) or isinstance(high, Value):
        return "tensors"
    if op.kind == "relu6":
        return OK
    limits = [float(n) for n in (low, high) if n is not None]
    if not limits or any(np.isnan(n) for n in limits):
        return limits
    return OK if limits == sorted(limits) else limits


@rule("padding must not be negative, and its value must be 0")
def zero_padding(op: Op, target: Any) -> object:
    pads, value = list(op.args["pad"]), op.args.get("value") or 0
    return pads if any(p < 0 for p in pads) else OK if value == 0 else value


@rule("nearest-neighbor resizing must be to a multiple of the input size: ENN selects other pixels otherwise")
def integer_scale_factors(op: Op, target: Any) -> object:
    x, out = op.args["input" if "input" in op.args else "self"], op.outputs[0]
    if out is None or len(x.shape) != 4:
        return f"rank {len(x.shape)}"
    pairs = list(zip(out.bound[2:], x.bound[2:], strict=True))
    return OK if all(m and m % n == 0 for m, n in pairs) else out.bound


@rule("at most one tensor may be constant")
def at_most_one_constant(op: Op, target: Any) -> object:
    constants = [t.name for t in op.args["tensors"] if t.constant]
    return ", ".join(constants) if len(constants) > 1 else OK


@rule("indexing must use exactly one index tensor, not a boolean mask")
def one_index_tensor(op: Op, target: Any) -> object:
    indices = [t for t in op.args["indices"] if t is not None]
    return OK if len(indices) == 1 else f"{len(indices)} tensors"


@rule("the index tensor must have rank 1")
def index_rank_1(op: Op, target: Any) -> object:
    rank = len(op.args["index"].shape)
    return OK if rank == 1 else f"rank {rank}"


@rule("topk must be over the last dimension, with largest=True and sorted=True")
def topk_form(op: Op, target: Any) -> object:
    rank = len(op.args["self"].shape)
    if not rank or op.args.get("dim", -1) % rank != rank - 1:
        return f"dim {op.args.get('dim', -1)}"
    false_arguments = [name for name in ("largest", "sorted") if not op.args.get(name, True)]
    return ", ".join(false_arguments) if false_arguments else OK


@rule("casts must be between element types of ENN")
def enn_dtypes(op: Op, target: Any) -> object:
    invalid = sorted({str(v.dtype) for v in tensors(op) if str(v.dtype) not in ELEMENT_NAMES})
    return ", ".join(invalid) if invalid else OK
