"""What XNNPACK takes: one row per operator, with the limits of its nodes as rules."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.backends.table import (
    DYNAMIC,
    FLOAT,
    OK,
    STATIC,
    Backend,
    OpSpec,
    Rule,
    argument_is,
    constant,
    dtypes_in,
    max_rank,
    not_empty,
    one_dtype,
    over,
    pool_arguments,
    rank_in,
    tensor,
    tensors,
)
from edgewright.backends.xnnpack import compute, images, moves
from edgewright.ir.graph import Dim, Op, Value
from edgewright.ir.ports import Same
from edgewright.passes.quantization import activation_limits

_CONVOLUTIONS = ("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d")
ACTIVATIONS = ("relu", "hardtanh", "clamp")


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
    elif op.kind in ("mul", "linear", *_CONVOLUTIONS):
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


@rule("products are of two matrices, or of as many pairs")
def batched(op: Op) -> object:
    ranks = [len(v.shape) for n in ("self", "mat2") if (v := tensor(op, n)) is not None]
    return OK if ranks in ([2, 2], [3, 3]) else ranks


BOTH, ALL = (FLOAT, STATIC), (FLOAT, STATIC, DYNAMIC)


def _unary(op: str, kind: str = "", config: str = "", **arguments: str) -> OpSpec:
    return OpSpec(op, compute.unary(kind or op, **arguments), config=config)


ROWS: tuple[OpSpec, ...] = (
    OpSpec("linear", compute.linear, (constant("weight", "bias"), dynamic_weights), ALL, ACTIVATIONS,
           config="LinearConfig"),
    OpSpec("mm", compute.matmul, (batched,), config="MMConfig"),
    OpSpec("addmm", compute.matmul,
           (constant("self", "mat2"), argument_is("alpha", 1), argument_is("beta", 1)), (FLOAT,), ACTIVATIONS,
           config="AddmmConfig"),
    OpSpec("bmm", compute.batch_matmul, (batched,), config="BMMConfig"),
    *(
        OpSpec(op, images.convolution, (constant("weight", "bias"), image_or_sequence, transposed_scales,
                                        dynamic_convolution, dynamic_weights, one_dynamic_sequence), ALL, ACTIVATIONS,
               config="ConvolutionConfig")
        for op in _CONVOLUTIONS
    ),
    OpSpec("add", compute.binary("add"), (argument_is("alpha", 1), one_kind), BOTH, ACTIVATIONS,
           config="AddConfig"),
    OpSpec("sub", compute.binary("sub"), (argument_is("alpha", 1), one_kind), BOTH, ACTIVATIONS,
           config="SubConfig"),
    OpSpec("rsub", compute.binary("sub", "other", "self"), (argument_is("alpha", 1), one_kind), BOTH, ACTIVATIONS,
           config="SubConfig"),
    OpSpec("mul", compute.binary("mul"), (one_kind,), BOTH, ACTIVATIONS, config="MulConfig"),
    OpSpec("div", compute.binary("div"), (argument_is("rounding_mode", None),), config="DivConfig"),
    OpSpec("maximum", compute.binary("maximum"), (), config="MaximumConfig"),
    OpSpec("minimum", compute.binary("minimum"), (), config="MinimumConfig"),
    *(
        OpSpec(op, compute.clamp(lambda o, name=op: activation_limits(name, o)), (same_parameters,), BOTH,
               ports={"out": Same("self")}, config=config)
        for op, config in (("relu", "ReLUConfig"), ("hardtanh", "HardtanhConfig"), ("clamp", "ClampConfig"))
    ),
    _unary("abs", config="AbsConfig"), _unary("ceil", config="CeilConfig"), _unary("floor", config="FloorConfig"),
    _unary("neg", config="NegConfig"), _unary("exp", config="ExpConfig"), _unary("log", config="LogConfig"),
    _unary("sqrt", config="SquareRootConfig"), _unary("rsqrt", config="ReciprocalSquareRootConfig"),
    _unary("sin", config="SinConfig"), _unary("cos", config="CosConfig"), _unary("tanh", config="TanhConfig"),
    _unary("sigmoid", config="SigmoidConfig"), _unary("hardswish", config="HardswishConfig"),
    OpSpec("gelu", compute.unary("gelu"), (argument_is("approximate", "none"), dtypes_in("float32")),
           config="GeluConfig"),
    _unary("leaky_relu", config="LeakyReLUConfig", negative_slope="negative_slope"),
    OpSpec("prelu", compute.prelu, (constant("weight"),), config="PreluConfig"),
    OpSpec("elu", compute.unary("elu", alpha="alpha"), (argument_is("scale", 1), argument_is("input_scale", 1)),
           config="ELUConfig"),
    OpSpec("pow", compute.unary("square"), (squares,), config="PowConfig"),
    OpSpec("square", compute.unary("square"), config="PowConfig"),
    OpSpec("softmax", compute.softmax, (has_dims,), config="SoftmaxConfig"),
    OpSpec("amax", images.maximum_over, (extreme_of_images,), config="MaxDimConfig"),
    OpSpec("max_dim", images.maximum_over, (extreme_of_images, first_result), config="MaxDimConfig"),
    OpSpec("max_pool2d", images.max_pool2d, (rank_in("self", 4), window, stride_within_kernel, ceil_mode_static,
                                             first_result, same_parameters), BOTH, config="MaxPool2dConfig"),
    OpSpec("avg_pool2d", images.avg_pool2d, (rank_in("self", 4), window, plain_average), config="AvgPoolingConfig"),
    OpSpec("adaptive_avg_pool2d", images.global_average, (one_pixel,), BOTH, config="AdaptiveAvgPool2dConfig"),
    OpSpec("mean", images.global_average, (over_images,), BOTH, config="MeanDimConfig"),
    OpSpec("upsample_bilinear2d", images.upsample_bilinear2d, (known_size,), config="UpsampleBilinear2dConfig"),
    OpSpec("cat", moves.cat, (several, same_parameters), BOTH, config="CatConfig"),
    OpSpec("stack", moves.stack, (several, one_dynamic, same_parameters), BOTH, config="CatConfig"),
    OpSpec("pixel_shuffle", moves.pixel_shuffle, (rank_in("self", 4), one_dynamic_size, same_parameters), BOTH,
           config="PermuteConfig"),
    OpSpec("permute", moves.permute, (same_parameters,), BOTH, config="PermuteConfig"),
    OpSpec("transpose", moves.permute, (same_parameters,), BOTH, config="PermuteConfig"),
    OpSpec("t", moves.permute, (rank_in("self", 2), same_parameters), BOTH, config="PermuteConfig"),
    OpSpec("expand", moves.same, (no_repeats, same_parameters), BOTH, config="CloneConfig"),
    OpSpec("view", moves.view, (one_dynamic_size, same_parameters), BOTH, config="ViewCopyConfig"),
    OpSpec("unsqueeze", moves.view, (one_dynamic_size, same_parameters), BOTH, config="UnsqueezeCopyConfig"),
    OpSpec("squeeze", moves.view, (one_dynamic_size, same_parameters), BOTH, config="SqueezeCopyConfig"),
    OpSpec("slice", moves.slice_, (plain_slice, known_dimension, same_parameters), BOTH, config="SliceCopyConfig"),
    *(
        OpSpec(op, moves.split, (known_dimension,), config="SliceCopyConfig")
        for op in ("split", "split_with_sizes")
    ),
    OpSpec("select", moves.select, (known_dimension, one_dynamic, same_parameters), BOTH, config="SliceCopyConfig"),
    OpSpec("unbind", moves.select, (known_dimension, one_dynamic), config="SliceCopyConfig"),
    OpSpec("pad", moves.pad, (positive_pads, same_parameters), BOTH, config="ConstantPadConfig"),
    OpSpec("clone", moves.same, (same_type,), BOTH, config="CloneConfig CloneDimOrderConfig"),
    OpSpec("cast", moves.same, (same_type,), config="ToDimOrderCopyConfig"),
    OpSpec("batch_norm", compute.batch_norm, (constant("weight", "bias", "running_mean", "running_var"), first_result),
           absorbs=ACTIVATIONS, config="BatchNormConfig"),
    OpSpec("quantize", compute.convert, (), (STATIC,), config="QuantizedPerTensorConfig QuantizeAffineConfig"),
    OpSpec("dequantize", compute.convert, (), (STATIC,), config="DeQuantizedPerTensorConfig DeQuantizeAffineConfig"),
    OpSpec("convert", compute.convert, (), (DYNAMIC,), config="ChooseQParamsAffineConfig"),
)  # fmt: skip

BACKEND = Backend(
    "xnnpack",
    ROWS,
    (
        dtypes_in("float32", "float16"),
        one_dtype(),
        int8,
        blocks,
        near_scales,
        not_empty(),
        some_rank,
        known_numbers,
        max_rank(6),
    ),
    id="XnnpackBackend",
    title="XNNPACK",
    summary="Any Arm or x86 CPU. Stock runtimes (Android, iOS, Python) carry XNNPACK; here its blobs run without it.",
)
