"""The limits of XNNPACK's nodes, as rules."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.backends.table import (
    OK,
    Rule,
    over,
    pool_arguments,
    tensor,
    tensors,
)
from edgewright.ir.graph import Dim, Op, Value

CONVOLUTIONS = ("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d")


def rule(text: str) -> Callable[[Callable[[Op], object]], Rule]:
    """A rule whose sentence stands above its function."""
    return lambda why: Rule(text, lambda op, target: why(op))


@rule("parameters must be the same before and after")
def same_parameters(op: Op) -> object:
    q = {v.q for v in tensors(op) if v.q is not None}
    return f"{len(q)} different scales" if len(q) > 1 else OK


@rule("integers must be 8 bits wide, symmetric in weights, with one scale for activations")
def int8(op: Op) -> object:
    for value in tensors(op):
        q = value.q
        if q is None:
            continue
        wide = str(q.dtype) != "int8"
        weight = value is op.args.get("weight")
        lopsided = weight and q.zero_point not in (0, (0,) * len(_listed(q.zero_point)))
        if wide or lopsided or (not value.constant and q.axis is not None and not q.dynamic):
            return f"{value.name}: {q.dtype}, zero point {q.zero_point}"
    return OK


@rule("weights with a scale for each block must be a matrix of 4 bits, in blocks of 32 elements or a multiple")
def blocks(op: Op) -> object:
    for value in tensors(op):
        q = value.q
        if q is not None and q.block and ((q.qmin, q.qmax) != (-8, 7) or q.block % 32 or len(value.shape) != 2):
            return f"{q.qmin} to {q.qmax}, {q.block} elements"
    return OK


@rule("scales of integers must not be too far apart")
def near_scales(op: Op) -> object:
    """What the factors that integers are multiplied by may be, at least and below: by XNNPACK's fixed-point forms."""
    out = op.outputs[0]
    if out is None or out.q is None or out.q.dynamic or out.q.axis is not None:
        return OK
    given = [np.asarray(v.q.scale, np.float64) for v in op.inputs() if v.q is not None and not v.q.dynamic]
    unit = np.asarray(out.q.scale, np.float64)
    if op.kind in ("add", "sub", "rsub"):
        factors, least = [g / unit for g in given], 2.0**-10
    elif op.kind in ("mul", "linear", *CONVOLUTIONS):
        factors, least = ([math.prod(given) / unit] if given else []), 2.0**-16 if op.kind == "mul" else 0.0
    else:
        factors, least = [g / unit for g in given], 2.0**-8
    far = [float(f) for factor in factors for f in np.ravel(factor) if not least <= f < 2.0**8]
    return f"a factor of {far[0]:.3g}" if far else OK


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple) else [value]


@rule("convolutions are of images or sequences")
def image_or_sequence(op: Op) -> object:
    value = tensor(op, "input")
    return OK if value is not None and len(value.shape) in (3, 4) else value and len(value.shape)


@rule("transposed convolutions have one scale per output channel, and one group if it differs by channel")
def transposed_scales(op: Op) -> object:
    weight = tensor(op, "weight")
    if not op.args["transposed"] or weight is None or weight.q is None or weight.q.axis is None:
        return OK
    return OK if op.args["groups"] == 1 and weight.q.axis == 1 else f"{op.args['groups']} groups, axis {weight.q.axis}"


@rule("rows of images are quantized on the fly for plain 2-D convolutions only")
def dynamic_convolution(op: Op) -> object:
    value, weight = tensor(op, "input"), tensor(op, "weight")
    if value is None or value.q is None or not value.q.dynamic or weight is None:
        return OK
    if weight.shape[1] == 1 and op.args["groups"] > 1:
        return "depthwise"
    if op.args["transposed"]:
        return "transposed"
    return OK if len(value.shape) == 4 else "1-D"


@rule("weights of products that are quantized on the fly must be quantized by channel")
def dynamic_weights(op: Op) -> object:
    value, weight = tensor(op, "input"), tensor(op, "weight")
    if value is None or value.q is None or not value.q.dynamic:
        return OK
    return OK if weight is not None and weight.q is not None and weight.q.axis is not None else "one scale for all"


@rule("pooling strides must not be larger than the window")
def stride_within_kernel(op: Op) -> object:
    kernel, stride, _, _ = pool_arguments(op)
    return stride if any(s > k for s, k in zip(stride, kernel, strict=True)) else OK


@rule("ceil_mode needs static shapes")
def ceil_mode_static(op: Op) -> object:
    return "dynamic" if op.args.get("ceil_mode") and any(v.dynamic for v in tensors(op)) else OK


@rule("average pooling must not count padding or round up, and must divide by the window")
def plain_average(op: Op) -> object:
    kernel, _, padding, _ = pool_arguments(op)
    if op.args.get("ceil_mode"):
        return "ceil_mode"
    if op.args.get("count_include_pad", True) and any(padding):
        return "count_include_pad"
    divisor = op.args.get("divisor_override")
    return OK if divisor in (None, kernel[0] * kernel[1]) else f"divisor {divisor}"


@rule("means are taken over height and width of images")
def over_images(op: Op) -> object:
    value, dims = tensor(op, "self"), op.args.get("dim")
    if value is None or len(value.shape) != 4 or not isinstance(dims, list):
        return "all dimensions" if dims is None else dims  # a detail, never None: that would say the rule holds
    return OK if sorted(d % 4 for d in dims) == [2, 3] and op.args.get("dtype") is None else dims


@rule("the output of adaptive pooling must be one pixel")
def one_pixel(op: Op) -> object:
    size = op.args["output_size"]
    value = tensor(op, "self")
    return OK if list(size) == [1, 1] and value is not None and len(value.shape) == 4 else size


@rule("a dimension must be named")
def has_dims(op: Op) -> object:
    value = tensor(op, "self")
    return OK if value is not None and value.shape else "rank 0"


@rule("extremes are taken over height or width of images whose size is known now")
def extreme_of_images(op: Op) -> object:
    value = tensor(op, "self")
    if value is None or len(value.shape) != 4:
        return value and f"rank {len(value.shape)}"
    dims = over(op)
    if not set(dims) <= {2, 3}:
        return dims
    sizes = [value.shape[d] for d in dims]
    dynamic = [str(s) for s in sizes if isinstance(s, Dim)]
    return ", ".join(dynamic) if dynamic else OK if any(s != 1 for s in sizes) else "one pixel"


@rule("pooling windows must be larger than one pixel")
def window(op: Op) -> object:
    kernel = pool_arguments(op)[0]
    return kernel if kernel == [1, 1] else OK


@rule("the exponent must be 2")
def squares(op: Op) -> object:
    exponent = op.args["exponent"]
    given = exponent.data if isinstance(exponent, Value) else exponent
    return OK if given is not None and np.ndim(given) == 0 and given == 2 else "computed" if given is None else given


@rule("nothing may be repeated")
def no_repeats(op: Op) -> object:
    value, out = tensor(op, "self"), op.outputs[0]
    return OK if value is not None and out is not None and value.shape == out.shape else op.args.get("size")


@rule("results must have a dimension")
def some_rank(op: Op) -> object:
    flat = [o.name for o in op.outputs if o is not None and o.dtype is not None and not o.shape]
    return ", ".join(flat) if flat else OK


@rule("numbers must be known now")
def known_numbers(op: Op) -> object:
    loose = [v.name for v in op.inputs() if v.dtype is None and op.kind not in ("view", "expand")]
    return ", ".join(loose) if loose else OK


@rule("lengths of sequences, or their number, may be known at run time only, not both")
def one_dynamic_sequence(op: Op) -> object:
    value = tensor(op, "input")
    sizes = value.shape if value is not None and len(value.shape) == 3 else ()
    dynamic = [str(s) for s in sizes if isinstance(s, Dim)]
    return ", ".join(dynamic) if len(dynamic) > 1 else OK


@rule("the size of the result must be known now")
def known_size(op: Op) -> object:
    out = op.outputs[0]
    dynamic = [str(s) for s in (out.shape[2:] if out is not None else ()) if isinstance(s, Dim)]
    return ", ".join(dynamic) if dynamic else OK


@rule("the dimension that is cut must be of a size that is known now")
def known_dimension(op: Op) -> object:
    value, dim = tensor(op, "self"), op.args["dim"]
    size = value.shape[dim % len(value.shape)] if value is not None and value.shape else 0
    return str(size) if isinstance(size, Dim) else OK


@rule("one size of what is stacked or selected may be known at run time only")
def one_dynamic(op: Op) -> object:
    found = [sum(isinstance(s, Dim) for s in v.shape) for v in tensors(op)]
    return max(found) if max(found) > 1 else OK


@rule("slices take every element of a range that is known now")
def plain_slice(op: Op) -> object:
    numbers = [op.args[n] for n in ("start", "end", "step")]
    if any(isinstance(n, Value) for n in numbers):
        return "computed at run time"
    return OK if op.args["step"] == 1 else f"step {op.args['step']}"


@rule("padding must not be negative")
def positive_pads(op: Op) -> object:
    pads = op.args["pad"]
    return OK if all(isinstance(p, int) and p >= 0 for p in pads) else pads


@rule("one size of a reshape may be known at run time only")
def one_dynamic_size(op: Op) -> object:
    out = op.outputs[0]
    dynamic = [s for s in (out.shape if out is not None else ()) if isinstance(s, Dim)]
    return len(dynamic) if len(dynamic) > 1 else OK


@rule("concatenation needs two tensors or more")
def several(op: Op) -> object:
    return OK if len(op.args["tensors"]) > 1 else len(op.args["tensors"])


@rule("only the first result may be used")
def first_result(op: Op) -> object:
    return OK if len(op.outputs) == 1 else len(op.outputs)


@rule("the element type must not change")
def same_type(op: Op) -> object:
    kinds = sorted({str(v.dtype) for v in tensors(op)})
    return ", ".join(kinds) if len(kinds) > 1 else OK


@rule("operands must all be integers, or all real numbers")
def one_kind(op: Op) -> object:
    if all(v.q is None for v in tensors(op)):
        return OK
    loose = [n for n in ("self", "other") if n in op.args and ((v := tensor(op, n)) is None or v.q is None)]
    return ", ".join(loose) if loose else OK


@rule("what is added to a product must be a number for each of its columns")
def column_bias(op: Op) -> object:
    added, matrix = op.args["self"], op.args["mat2"]
    return OK if added.shape == (matrix.shape[1],) else list(added.shape)


@rule("products are of two matrices, or of as many pairs")
def batched(op: Op) -> object:
    ranks = [len(v.shape) for n in ("self", "mat2") if (v := tensor(op, n)) is not None]
    return OK if ranks in ([2, 2], [3, 3]) else ranks
