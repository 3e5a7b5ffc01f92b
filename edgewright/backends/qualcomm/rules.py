"""Constraints of data types and operators on the HTP. ``target`` is a ``QnnTarget``."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.qualcomm.target import BLOCK_MULTIPLE, BLOCKWISE_ARCH, INT16_WEIGHTS_ARCH, WITHOUT_FP16
from edgewright.backends.rules import rule
from edgewright.backends.table import OK, Rule, conv_argument, pool_params, reduced_dims, tensors
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Op, Value
from edgewright.ir.ports import Index

_FLOATS = ("float32", "float16")
_PLAIN_TYPES = (*_FLOATS, "int32", "bool")
# Operators that create constants.
CONSTANT_OPS = ("arange", "full", "zeros", "ones", "scalar_tensor")
CASTS = ("cast", *CONSTANT_OPS)
# Constants that stay floating point until lowering.
_FLOAT_CONSTANTS = {"bias", "weight", "running_mean", "running_var"}


def _is_weight(op: Op, value: Value) -> bool:
    return op.kind != "embedding" and (value is op.args.get("weight") or value is op.args.get("bias"))


@rule(
    "activations must be unsigned, of 8 or 16 bits and per tensor; weights symmetric, of 4 or 8 bits, or 16 bits "
    "from v73 on; blockwise weights of 4 bits, in blocks of a multiple of 8 channels, for 1x1 windows and 16-bit "
    "activations, from v69 on"
)
def quantization_scheme(op: Op, target: Any) -> object:
    for value in tensors(op):
        q = value.q
        if q is None:
            continue
        text = f"{value.name}: {q.dtype}" + (" per channel" if q.axis is not None else "")
        if q.dynamic or (q.block and not _blocks_fit(op, value, target)):
            return f"{text}, dynamic or blockwise"
        if _is_weight(op, value):
            wide = str(q.dtype) == "int16" and (target is None or target.htp.arch >= INT16_WEIGHTS_ARCH)
            if not (wide or str(q.dtype) in ("int8", "int32")) or np.any(np.asarray(q.zero_point)):
                return text
        elif str(q.dtype) not in ("uint8", "uint16") or q.axis is not None:
            return text
    return OK


def _blocks_fit(op: Op, value: Value, target: Any) -> bool:
    x, q = op.args.get("input"), value.q
    assert q is not None
    is_pointwise = op.kind in ("linear", "conv1d", "conv2d") and op.args.get("groups", 1) == 1 and _is_weight(op, value)
    is_pointwise = is_pointwise and all(n == 1 for n in value.bound[2:])
    wide = isinstance(x, Value) and str(x.dtype) == "uint16" and q.qmax <= 7
    return (
        is_pointwise
        and wide
        and (q.block or 0) % BLOCK_MULTIPLE == 0
        and (target is None or target.htp.arch >= BLOCKWISE_ARCH)
    )


@rule("activations must all have the same number of bits")
def equal_bit_width(op: Op, target: Any) -> object:
    types = sorted({str(v.dtype) for v in tensors(op) if v.q is not None and not _is_weight(op, v)})
    return ", ".join(types) if len(types) > 1 else OK


@rule(
    "elements that are not quantized must be float32 or float16 (both computed in 16 bits; export bfloat16 models "
    "as model.half() or model.float()), int32 or bool; int64 may only hold indices, counts and casts"
)
def plain_types(op: Op, target: Any) -> object:
    wide = {v for v in _index_values(op) if str(v.dtype) == "int64"}
    bad = {str(v.dtype) for v in tensors(op) if v.q is None and str(v.dtype) not in _PLAIN_TYPES and v not in wide}
    return ", ".join(sorted(bad)) if bad else OK


def _index_values(op: Op) -> list[Value]:
    """Indices and counts, which fit in int32."""
    row = OPS.get(op.kind)
    if row is None:
        return []
    if op.kind in CASTS:
        return tensors(op)
    inputs = [v for name, port in row.ports.items() if isinstance(port, Index) for v in values_of(op.args.get(name))]
    outputs = op.outputs if isinstance(row.ports.get("out"), Index) else op.outputs[1:]
    return [*inputs, *(o for o in outputs if o is not None)]


def values_of(inputs: Any) -> list[Value]:
    """The tensors of an argument."""
    return [v for v in (inputs if isinstance(inputs, list) else [inputs]) if isinstance(v, Value)]


@rule("int64 constants must fit in int32")
def int64_range(op: Op, target: Any) -> object:
    for value in op.inputs():
        if value.constant and str(value.dtype) == "int64" and value.data is not None:
            outliers = value.data[np.abs(value.data) >= 1 << 31]
            if outliers.size:
                return int(outliers.flat[0])
    return OK


@rule(
    "floating point needs generate_htp_compiler_spec(use_fp16=True), and is not supported by "
    f"{', '.join(WITHOUT_FP16[:-1])} or {WITHOUT_FP16[-1]}: quantize the model, or set use_fp16"
)
def float_allowed(op: Op, target: Any) -> object:
    if op.kind in ("quantize", "dequantize") or target is None or (target.fp16 and target.htp.has_fp16):
        return OK
    if op.kind in CONSTANT_OPS:
        return OK
    types = {op.args[n] for n in _FLOAT_CONSTANTS if isinstance(op.args.get(n), Value)}
    floats = [v.name for v in tensors(op) if v.q is None and str(v.dtype) in _FLOATS and v not in types]
    return ", ".join(floats) if floats else OK


@rule("inputs and outputs must all be quantized, or none")
def all_or_none(op: Op, target: Any) -> object:
    counted = set(_index_values(op))
    types = [v for v in tensors(op) if not any(v is op.args.get(n) for n in _FLOAT_CONSTANTS) and v not in counted]
    unquantized = [v.name for v in types if v.q is None and str(v.dtype) in _FLOATS]
    return ", ".join(unquantized) if unquantized and any(v.q is not None for v in types) else OK


@rule("operators on int32 or bool must give int32 or bool; cast them to floating point first")
def integer_results(op: Op, target: Any) -> object:
    out, inputs = op.outputs[0], list(op.inputs())
    if op.kind in CASTS or out is None or not inputs or any(_is_real(v) for v in inputs):
        return OK
    return f"{out.dtype} of {inputs[0].dtype}" if _is_real(out) else OK


def _is_real(value: Value) -> bool:
    return value.q is not None or str(value.dtype) in _FLOATS


@rule("at least one dimension must be reduced, and input and output types must be equal")
def reduced_types(op: Op, target: Any) -> object:
    out, x = op.outputs[0], op.args["self"]
    if not x.shape or not reduced_dims(op):
        return "no dimension"
    return str(op.args["dtype"]) if op.args.get("dtype") is not None and out is not None and out.q is None else OK


@rule("logarithms must be 8-bit or floating point: the HTP's 16-bit result is wrong")
def log_bit_width(op: Op, target: Any) -> object:
    q = op.args["self"].q
    return str(q.dtype) if q is not None and q.dtype.itemsize > 1 else OK


@rule("clamp limits must be numbers")
def scalar_limits(op: Op, target: Any) -> object:
    types = [n for n in ("min", "max") if isinstance(op.args.get(n), Value)]
    return ", ".join(types) if types else OK


@rule("scale and input_scale of elu must be 1")
def elu_scales(op: Op, target: Any) -> object:
    scales = [op.args.get(n, 1) for n in ("scale", "input_scale")]
    return OK if all(s == 1 for s in scales) else scales


@rule("decimals of round must be 0")
def round_decimals(op: Op, target: Any) -> object:
    decimals = op.args.get("decimals", 0)
    return decimals if decimals else OK


@rule("operands must all be quantized or floating point, or all int32, or all bool; cast them first")
def equal_operands(op: Op, target: Any) -> object:
    kinds = {"real" if _is_real(v) else str(v.dtype) for v in op.inputs()}
    return " and ".join(sorted(str(v.dtype) for v in op.inputs())) if len(kinds) > 1 else OK


@rule("operands of logical operators must be bool")
def bool_operands(op: Op, target: Any) -> object:
    types = sorted({str(v.dtype) for v in tensors(op) if str(v.dtype) != "bool"})
    return ", ".join(types) if types else OK


@rule("exponents must be nonzero numbers, and of 16-bit tensors 2 or 0.5: the HTP's result is wrong otherwise")
def supported_exponent(op: Op, target: Any) -> object:
    exponent = op.args["exponent"]
    if isinstance(exponent, Value) or exponent == 0:
        return "a tensor" if isinstance(exponent, Value) else 0
    q = op.args["self"].q if isinstance(op.args["self"], Value) else None
    return exponent if q is not None and q.dtype.itemsize > 1 and exponent not in (2, 0.5) else OK


@rule("instance norm must use the statistics of its input, which must be batched")
def instance_statistics(op: Op, target: Any) -> object:
    rank = len(op.args["input"].shape)
    return "running statistics" if not op.args["use_input_stats"] else OK if rank in (3, 4) else f"rank {rank}"


@rule("sorting must not be required to be stable")
def unstable_sort(op: Op, target: Any) -> object:
    return "stable" if op.args.get("stable") else OK


@rule("input and output types must be equal")
def equal_types(op: Op, target: Any) -> object:
    x, out = op.args["self"], op.outputs[0]
    return OK if out is None or out.q is not None or out.dtype == x.dtype else f"{x.dtype} to {out.dtype}"


@rule("quantized embedding tables must be constant")
def constant_table(op: Op, target: Any) -> object:
    out, weight = op.outputs[0], op.args["weight"]
    return OK if out is None or (out.q is None and weight.q is None) or weight.constant else "computed"


@rule("index tensors must not be boolean masks, and must index adjacent dimensions")
def adjacent_indices(op: Op, target: Any) -> object:
    inputs = op.args["indices"]
    where = [d for d, v in enumerate(inputs) if v is not None]
    masks = [v.name for v in inputs if v is not None and str(v.dtype) not in ("int32", "int64")]
    if masks:
        return ", ".join(masks)
    return OK if where and where[-1] - where[0] == len(where) - 1 else f"dimensions {where}"


@rule("operands must be floating point")
def float_operands(op: Op, target: Any) -> object:
    dtype = op.args["self"].dtype
    return OK if str(dtype) in _FLOATS else dtype


# --------------------------------------------------------------- convolution, pooling, resizing and padding


@rule(
    "transposed convolutions must have dilation 1; grouped ones no output padding and per-tensor weights; 3-D ones one "
    "group and the same stride for height and width"
)
def conv_transpose_params(op: Op, target: Any) -> object:
    if not op.kind.startswith("conv_transpose"):
        return OK
    if any(d != 1 for d in conv_argument(op, "dilation", 1)):
        return f"dilation {op.args['dilation']}"
    if len(op.args["weight"].shape) == 5:
        return _conv_transpose3d_params(op)
    if op.args.get("groups", 1) == 1:
        return OK
    if any(conv_argument(op, "output_padding", 0)):
        return f"output_padding {op.args['output_padding']}"
    q = op.args["weight"].q
    return "per channel" if q is not None and q.axis is not None else OK


def _conv_transpose3d_params(op: Op) -> object:
    """The HTP's results are wrong for others."""
    steps, groups = conv_argument(op, "stride", 1), op.args.get("groups", 1)
    return f"{groups} groups in 3-D" if groups != 1 else OK if steps[1] == steps[2] else f"strides {steps}"


@rule("the input of pooling must be NCHW, dilation 1, and the window not larger than the image")
def pool_window(op: Op, target: Any) -> object:
    if len(op.args["self"].shape) != 4:
        return f"rank {len(op.args['self'].shape)}"
    kernel, _, _, dilation = pool_params(op)
    if any(d != 1 for d in dilation):
        return f"dilation {dilation}"
    return OK if all(k <= n for k, n in zip(kernel, op.args["self"].bound[2:], strict=True)) else f"window {kernel}"


@rule("average pooling must have ceil_mode False and divide by the window size")
def avg_pool_divisor(op: Op, target: Any) -> object:
    kernel = pool_params(op)[0]
    if op.args.get("ceil_mode"):
        return "ceil_mode"
    divisor = op.args.get("divisor_override")
    return OK if divisor in (None, kernel[0] * kernel[1]) else f"divisor {divisor}"


def uniform_windows(rank: int) -> Rule:
    @rule(f"the input must have rank {rank}, with sizes that are multiples of the output size")
    def check(op: Op, target: Any) -> object:
        x, out = op.args["self"], op.outputs[0]
        if len(x.shape) != rank or out is None:
            return f"rank {len(x.shape)}"
        pairs = list(zip(x.bound[2:], out.bound[2:], strict=True))
        return OK if all(m and n % m == 0 for n, m in pairs) else x.bound

    return check


@rule("padding must not be negative, and its value must be representable in the tensor")
def padding_value(op: Op, target: Any) -> object:
    padding, q = list(op.args["pad"]), op.args["self"].q
    value = op.args.get("value") or 0
    if any(p < 0 for p in padding):
        return padding
    if not np.isfinite(float(value)):
        return value
    if q is None:
        return OK
    ends = [(n - q.zero_point) * q.scale for n in (q.qmin, q.qmax)]
    return OK if ends[0] - q.scale / 2 <= value <= ends[1] + q.scale / 2 else value


@rule("the input of 3-D average pooling must be NCDHW, the divisor the window size, and padding not counted")
def avg_pool3d_params(op: Op, target: Any) -> object:
    x, divisor = op.args["self"], op.args.get("divisor_override")
    if len(x.shape) != 5:
        return f"rank {len(x.shape)}"
    if op.args.get("ceil_mode") or divisor is not None:
        return "ceil_mode" if op.args.get("ceil_mode") else f"divisor {divisor}"
    return "padding" if any(op.args.get("padding") or []) and op.args.get("count_include_pad", True) else OK


@rule("bicubic resizing of 16-bit tensors must have align_corners False: the HTP's result is wrong otherwise")
def bicubic_corners(op: Op, target: Any) -> object:
    q = next(iter(op.inputs())).q
    return "align_corners" if op.args["align_corners"] and q is not None and q.dtype.itemsize > 1 else OK


@rule("grid sampling must be bilinear, or nearest in floating point: rounding a quantized grid selects other pixels")
def grid_sample_mode(op: Op, target: Any) -> object:
    mode, q = op.args["interpolation_mode"], op.args["input"].q
    return "bicubic" if mode > 1 else "nearest" if mode == 1 and q is not None else OK


@rule("padding mode must be reflect, with rank at most 4 and no negative padding")
def reflect_padding(op: Op, target: Any) -> object:
    x, mode = op.args["self"], op.args.get("mode", "reflect")
    if mode != "reflect":
        return mode
    padding = op.args["pad" if "pad" in op.args else "padding"]
    return f"rank {len(x.shape)}" if not 0 < len(x.shape) < 5 else padding if any(p < 0 for p in padding) else OK
