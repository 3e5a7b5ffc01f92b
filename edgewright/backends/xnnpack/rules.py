"""Constraints of XNNPACK's nodes, as rules."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.backends.table import (
    OK,
    Rule,
    pool_params,
    reduced_dims,
    tensor_arg,
    tensors,
)
from edgewright.formats.executorch_releases import OLDEST, RELEASES, split_runtime
from edgewright.ir.graph import Dim, Op, Value

CONVOLUTIONS = ("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d")


def rule(text: str) -> Callable[[Callable[[Op], object]], Rule]:
    """Decorator: a ``Rule`` from a check function and the sentence that users see."""
    return lambda check: Rule(text, lambda op, target: check(op))


def since(release: str) -> Rule:
    """The node is in XNNPACK delegates of this release of ExecuTorch and newer; the rules' target is the runtime."""

    def check(op: Op, runtime: Any) -> object:
        _, found = split_runtime(runtime or OLDEST)
        return OK if RELEASES.index(found) >= RELEASES.index(release) else f"runtime {runtime or OLDEST}"

    return Rule(f"needs ExecuTorch {release} or newer (runtime='android-{release}')", check)


@rule("the lower bound must not be above the upper bound")
def ordered_bounds(op: Op) -> object:
    low, high = op.args.get("min"), op.args.get("max")
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return OK
    return OK if low <= high else f"{low} and {high}"


@rule("inputs and outputs must have the same quantization parameters")
def same_qparams(op: Op) -> object:
    q = {v.q for v in tensors(op) if v.q is not None}
    return f"{len(q)} different scales" if len(q) > 1 else OK


@rule("quantized tensors must be int8: weights symmetric, activations per tensor")
def int8(op: Op) -> object:
    for value in tensors(op):
        q = value.q
        if q is None:
            continue
        wide = str(q.dtype) != "int8"
        weight = value is op.args.get("weight")
        lopsided = weight and q.zero_point not in (0, (0,) * len(_as_list(q.zero_point)))
        if wide or lopsided or (not value.constant and q.axis is not None and not q.dynamic):
            return f"{value.name}: {q.dtype}, zero point {q.zero_point}"
    return OK


@rule("blockwise quantized weights must be 4-bit matrices with a block size that is a multiple of 32")
def int4_blocks(op: Op) -> object:
    for value in tensors(op):
        q = value.q
        if q is not None and q.block and ((q.qmin, q.qmax) != (-8, 7) or q.block % 32 or len(value.shape) != 2):
            return f"{q.qmin} to {q.qmax}, {q.block} elements"
    return OK


@rule("the ratio of input to output scales must be within the range of XNNPACK's fixed-point multipliers")
def requant_range(op: Op) -> object:
    """Limits of the requantization multipliers, which depend on the fixed-point format of each operator."""
    out = op.outputs[0]
    if out is None or out.q is None or out.q.dynamic or out.q.axis is not None:
        return OK
    scales = [np.asarray(v.q.scale, np.float64) for v in op.inputs() if v.q is not None and not v.q.dynamic]
    out_scale = np.asarray(out.q.scale, np.float64)
    if op.kind in ("add", "sub", "rsub"):
        factors, minimum = [g / out_scale for g in scales], 2.0**-10
    elif op.kind in ("mul", "linear", *CONVOLUTIONS):
        factors, minimum = ([math.prod(scales) / out_scale] if scales else []), 2.0**-16 if op.kind == "mul" else 0.0
    else:
        factors, minimum = [g / out_scale for g in scales], 2.0**-8
    invalid = [float(f) for factor in factors for f in np.ravel(factor) if not minimum <= f < 2.0**8]
    return f"a factor of {invalid[0]:.3g}" if invalid else OK


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple) else [value]


@rule("convolutions must be 1-D or 2-D and batched")
def conv_rank(op: Op) -> object:
    value = tensor_arg(op, "input")
    return OK if value is not None and len(value.shape) in (3, 4) else value and len(value.shape)


@rule("per-channel quantized transposed convolutions must have one group, with scales per output channel")
def transposed_conv_scales(op: Op) -> object:
    weight = tensor_arg(op, "weight")
    if not op.args["transposed"] or weight is None or weight.q is None or weight.q.axis is None:
        return OK
    return OK if op.args["groups"] == 1 and weight.q.axis == 1 else f"{op.args['groups']} groups, axis {weight.q.axis}"


@rule("dynamically quantized convolutions must be 2-D, neither depthwise nor transposed")
def dynamic_convolution(op: Op) -> object:
    value, weight = tensor_arg(op, "input"), tensor_arg(op, "weight")
    if value is None or value.q is None or not value.q.dynamic or weight is None:
        return OK
    if weight.shape[1] == 1 and op.args["groups"] > 1:
        return "depthwise"
    if op.args["transposed"]:
        return "transposed"
    return OK if len(value.shape) == 4 else "1-D"


@rule("weights of dynamically quantized operators must be quantized per channel")
def dynamic_weights(op: Op) -> object:
    value, weight = tensor_arg(op, "input"), tensor_arg(op, "weight")
    if value is None or value.q is None or not value.q.dynamic:
        return OK
    return OK if weight is not None and weight.q is not None and weight.q.axis is not None else "per tensor"


@rule("pooling strides must not be larger than the window")
def stride_within_kernel(op: Op) -> object:
    kernel, stride, _, _ = pool_params(op)
    return stride if any(s > k for s, k in zip(stride, kernel, strict=True)) else OK


@rule("ceil_mode needs static shapes")
def ceil_mode_static(op: Op) -> object:
    return "dynamic" if op.args.get("ceil_mode") and any(v.dynamic for v in tensors(op)) else OK


@rule("average pooling must exclude padding, round sizes down, and divide by the window size")
def avg_pool_divisor(op: Op) -> object:
    kernel, _, padding, _ = pool_params(op)
    if op.args.get("ceil_mode"):
        return "ceil_mode"
    if op.args.get("count_include_pad", True) and any(padding):
        return "count_include_pad"
    divisor = op.args.get("divisor_override")
    return OK if divisor in (None, kernel[0] * kernel[1]) else f"divisor {divisor}"


@rule("means must be over height and width of an NCHW tensor")
def spatial_mean(op: Op) -> object:
    value, dims = tensor_arg(op, "self"), op.args.get("dim")
    if value is None or len(value.shape) != 4 or not isinstance(dims, list):
        return "all dimensions" if dims is None else dims  # never None: that would mean that the rule holds
    return OK if sorted(d % 4 for d in dims) == [2, 3] and op.args.get("dtype") is None else dims


@rule("the output size of adaptive pooling must be 1x1")
def global_pool_only(op: Op) -> object:
    size = op.args["output_size"]
    value = tensor_arg(op, "self")
    return OK if list(size) == [1, 1] and value is not None and len(value.shape) == 4 else size


@rule("tensors must have at least one dimension")
def not_scalar(op: Op) -> object:
    value = tensor_arg(op, "self")
    return OK if value is not None and value.shape else "rank 0"


@rule("maxima must be over static height or width of an NCHW tensor")
def static_spatial_dims(op: Op) -> object:
    value = tensor_arg(op, "self")
    if value is None or len(value.shape) != 4:
        return value and f"rank {len(value.shape)}"
    dims = reduced_dims(op)
    if not set(dims) <= {2, 3}:
        return dims
    sizes = [value.shape[d] for d in dims]
    dynamic = [str(s) for s in sizes if isinstance(s, Dim)]
    return ", ".join(dynamic) if dynamic else OK if any(s != 1 for s in sizes) else "one pixel"


@rule("pooling windows must be larger than 1x1")
def kernel_above_one(op: Op) -> object:
    kernel = pool_params(op)[0]
    return kernel if kernel == [1, 1] else OK


@rule("the exponent must be 2")
def exponent_two(op: Op) -> object:
    exponent = op.args["exponent"]
    number = exponent.data if isinstance(exponent, Value) else exponent
    return (
        OK if number is not None and np.ndim(number) == 0 and number == 2 else "computed" if number is None else number
    )


@rule("expand must not repeat elements")
def no_broadcast(op: Op) -> object:
    value, out = tensor_arg(op, "self"), op.outputs[0]
    return OK if value is not None and out is not None and value.shape == out.shape else op.args.get("size")


@rule("outputs must have at least one dimension")
def no_scalar_outputs(op: Op) -> object:
    scalars = [o.name for o in op.outputs if o is not None and o.dtype is not None and not o.shape]
    return ", ".join(scalars) if scalars else OK


@rule("scalar arguments must be static")
def static_scalars(op: Op) -> object:
    symbolic = [v.name for v in op.inputs() if v.dtype is None and op.kind not in ("view", "expand")]
    return ", ".join(symbolic) if symbolic else OK


@rule("at most one dimension of a sequence may be dynamic")
def one_dynamic_sequence(op: Op) -> object:
    value = tensor_arg(op, "input")
    sizes = value.shape if value is not None and len(value.shape) == 3 else ()
    dynamic = [str(s) for s in sizes if isinstance(s, Dim)]
    return ", ".join(dynamic) if len(dynamic) > 1 else OK


@rule("the output size must be static")
def static_output_size(op: Op) -> object:
    out = op.outputs[0]
    dynamic = [str(s) for s in (out.shape[2:] if out is not None else ()) if isinstance(s, Dim)]
    return ", ".join(dynamic) if dynamic else OK


@rule("the size of the sliced dimension must be static")
def static_dimension(op: Op) -> object:
    value, dim = tensor_arg(op, "self"), op.args["dim"]
    size = value.shape[dim % len(value.shape)] if value is not None and value.shape else 0
    return str(size) if isinstance(size, Dim) else OK


@rule("at most one dimension of stacked or selected tensors may be dynamic")
def at_most_one_dynamic_dim(op: Op) -> object:
    counts = [sum(isinstance(s, Dim) for s in v.shape) for v in tensors(op)]
    return max(counts) if max(counts) > 1 else OK


@rule("slices must have static bounds and step 1")
def unit_step_slice(op: Op) -> object:
    numbers = [op.args[n] for n in ("start", "end", "step")]
    if any(isinstance(n, Value) for n in numbers):
        return "computed at run time"
    return OK if op.args["step"] == 1 else f"step {op.args['step']}"


@rule("padding must not be negative")
def nonnegative_padding(op: Op) -> object:
    pads = op.args["pad"]
    return OK if all(isinstance(p, int) and p >= 0 for p in pads) else pads


@rule("at most one dimension of a reshape may be dynamic")
def one_dynamic_output_dim(op: Op) -> object:
    out = op.outputs[0]
    dynamic = [s for s in (out.shape if out is not None else ()) if isinstance(s, Dim)]
    return len(dynamic) if len(dynamic) > 1 else OK


@rule("concatenation needs at least two tensors")
def two_or_more(op: Op) -> object:
    return OK if len(op.args["tensors"]) > 1 else len(op.args["tensors"])


@rule("only the first output may be used")
def first_output_only(op: Op) -> object:
    return OK if len(op.outputs) == 1 else len(op.outputs)


@rule("the element type must not change")
def same_dtype(op: Op) -> object:
    kinds = sorted({str(v.dtype) for v in tensors(op)})
    return ", ".join(kinds) if len(kinds) > 1 else OK


@rule("operands must all be quantized, or none")
def all_or_none_quantized(op: Op) -> object:
    if all(v.q is None for v in tensors(op)):
        return OK
    unquantized = [n for n in ("self", "other") if n in op.args and ((v := tensor_arg(op, n)) is None or v.q is None)]
    return ", ".join(unquantized) if unquantized else OK


@rule("the bias of a matrix product must be a vector with one element per column")
def bias_per_column(op: Op) -> object:
    bias, matrix = op.args["self"], op.args["mat2"]
    return OK if bias.shape == (matrix.shape[1],) else list(bias.shape)


@rule("operands of a matrix product must both have rank 2, or both rank 3")
def matmul_rank(op: Op) -> object:
    ranks = [len(v.shape) for n in ("self", "mat2") if (v := tensor_arg(op, n)) is not None]
    return OK if ranks in ([2, 2], [3, 3]) else ranks
