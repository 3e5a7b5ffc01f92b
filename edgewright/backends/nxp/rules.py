"""Constraints of Neutron's operators, as rules. ``target`` is a ``NeutronTargetSpec`` or None."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.nxp.conv import is_depthwise, window_params
from edgewright.backends.nxp.lower import RELU_KINDS, same_qparams
from edgewright.backends.nxp.movement import pad_widths, selected_indices
from edgewright.backends.nxp.pool import image_input, pool_window, spatial_rank
from edgewright.backends.rules import rule
from edgewright.backends.table import (
    OK,
    Rule,
    constant,
    conv_argument,
    conv_kernel,
    max_rank,
    not_empty,
    reduced_dims,
    static_shape,
    tensors,
)
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.value_storage import activation_limits

MAX_WINDOW_PARAM, MAX_KERNEL_SIZE, MAX_GROUPS = 4096, 65535, 10
DEFAULT_MACS = 8  # MACs of a pipeline if no target is specified


def _weight(op: Op) -> Any:
    return op.args.get("weight") if op.kind != "prelu" else None


@rule("inputs and outputs must be quantized: use NeutronQuantizer")
def quantized(op: Op, target: Any) -> object:
    unquantized_ok = {op.args.get(n) for n in ("bias", "weight" if op.kind == "prelu" else "bias")}
    unquantized_ok |= {op.args["self"]} if op.kind == "addmm" else set()
    unquantized = [v.name for v in tensors(op) if v.q is None and not v.constant]
    unquantized += [
        v.name
        for v in tensors(op)
        if v.q is None and v.constant and v not in unquantized_ok and not _is_arithmetic_constant(op, v)
    ]
    return ", ".join(unquantized) if unquantized else OK


def _is_arithmetic_constant(op: Op, value: Value) -> bool:
    """True for constant operands of arithmetic, which the lowering quantizes."""
    return value.constant and op.kind in ("add", "sub", "rsub", "mul", "div")


@rule("quantized tensors must be int8, per tensor (per channel for weights of convolutions only)")
def int8_storage(op: Op, target: Any) -> object:
    weight = _weight(op)
    for value in tensors(op):
        q = value.q
        if q is None or value is op.args.get("bias") or (op.kind == "addmm" and value is op.args["self"]):
            continue
        per_channel = q.axis is not None and not (value is weight and op.kind.startswith("conv"))
        if str(q.dtype) != "int8" or q.dynamic or q.block or per_channel:
            return f"{value.name}: {q.dtype}" + (" per channel" if per_channel else "")
        if value in (weight, op.args.get("mat2") if op.kind in ("mm", "addmm") else None) and np.any(q.zero_point):
            return f"{value.name}: zero point {q.zero_point}"
    return OK


@rule("tensors must have at least one dimension")
def not_scalar(op: Op, target: Any) -> object:
    scalars = [v.name for v in tensors(op) if not v.shape and not v.constant]
    return ", ".join(scalars) if scalars else OK


GLOBAL_RULES: tuple[Rule, ...] = (quantized, int8_storage, static_shape(), not_empty(), not_scalar, max_rank(5))


# --------------------------------------------------------------------------------------------------- convolutions


@rule("weights must be quantized along their output channels")
def weight_axis(op: Op, target: Any) -> object:
    weight = op.args["weight"]
    expected_axis = 1 if op.args.get("transposed") else 0
    axis = weight.q.axis if isinstance(weight, Value) and weight.q is not None else None
    return OK if axis is None or axis % len(weight.shape) == expected_axis else axis


@rule(f"kernel, stride and dilation must be at most {MAX_WINDOW_PARAM}")
def window_params_fit(op: Op, target: Any) -> object:
    largest = max(window_params(op))
    return largest if largest > MAX_WINDOW_PARAM else OK


@rule(f"kernel height * width * input channels (rounded up to a pipeline's MACs) must be at most {MAX_KERNEL_SIZE}")
def kernel_fits(op: Op, target: Any) -> object:
    macs = DEFAULT_MACS if target is None else target.get_num_macs()
    channels = op.args["weight"].bound[0 if op.args.get("transposed") else 1]
    taps = int(np.prod(conv_kernel(op))) * -(-channels // macs) * macs
    return taps if taps > MAX_KERNEL_SIZE else OK


@rule(f"a grouped convolution must be depthwise or have at most {MAX_GROUPS} groups")
def groups_fit(op: Op, target: Any) -> object:
    groups = op.args["groups"]
    return OK if groups <= MAX_GROUPS or is_depthwise(op) else groups


@rule("transposed convolutions must have one group, no dilation, a stride of 1 or 2 not larger than the kernel, and "
      "padding smaller than the kernel")  # fmt: skip
def transposed_conv_fits(op: Op, target: Any) -> object:
    kernel, stride = conv_kernel(op), conv_argument(op, "stride", 1)
    if op.args["groups"] != 1 or any(d != 1 for d in conv_argument(op, "dilation", 1)):
        return f"groups {op.args['groups']}, dilation {op.args['dilation']}"
    if any(s > 2 or s > k for s, k in zip(stride, kernel, strict=True)):
        return f"stride {stride}"
    pads, output_padding = conv_argument(op, "padding", 0), conv_argument(op, "output_padding", 0)
    invalid = any(p >= k or o > p for p, k, o in zip(pads, kernel, output_padding, strict=True))
    return f"padding {pads}, output padding {output_padding}" if invalid else OK


constant_weights = constant("weight", "bias")
constant_matrix = constant("mat2")


@rule("the bias must be a constant with one element per column, and alpha and beta must be 1")
def addmm_form(op: Op, target: Any) -> object:
    invalid = [n for n in ("alpha", "beta") if op.args.get(n, 1) != 1]
    if op.kind == "addmm":
        bias, columns = op.args["self"], op.args["mat2"].bound[1]
        if not bias.constant or list(bias.bound) not in ([columns], [1, columns]):
            return f"{bias.name} of {list(bias.bound)}"
    return ", ".join(invalid) if invalid else OK


@rule("both matrices must have rank 3 and zero point 0")
def symmetric_operands(op: Op, target: Any) -> object:
    pair = [op.args["self"], op.args["mat2"]]
    zeros = [int(np.asarray(v.q.zero_point)) for v in pair if v.q is not None]
    return OK if all(len(v.shape) == 3 for v in pair) and not any(zeros) else f"zero points {zeros}"


# --------------------------------------------------------------------------------------------------- other operators


@rule("inputs and outputs must have the same scale and zero point")
def one_qparams(op: Op, target: Any) -> object:
    quantized_values = [v for v in tensors(op) if v.q is not None]
    return (
        OK
        if all(same_qparams(quantized_values[0], v) for v in quantized_values)
        else ", ".join(f"{v.name} {v.q.scale:g}" for v in quantized_values if v.q)
    )


@rule("one operand must have the output's shape, and both must be tensors or numbers")
def one_full_operand(op: Op, target: Any) -> object:
    out = op.outputs[0]
    assert out is not None
    pair = [op.args["self"], op.args["other"]]
    full = [v for v in pair if isinstance(v, Value) and not v.constant and v.bound == out.bound]
    numbers = all(isinstance(v, Value | int | float) and not isinstance(v, bool) for v in pair)
    return OK if full and numbers else [list(v.bound) for v in pair if isinstance(v, Value)]


@rule("the divisor must be a constant without zeros, and rounding_mode None")
def constant_divisor(op: Op, target: Any) -> object:
    other = op.args["other"]
    is_constant = not isinstance(other, Value) or other.constant
    if not is_constant or op.args.get("rounding_mode") is not None or op.args.get("mode") is not None:
        return op.args.get("rounding_mode") or "a computed divisor"
    data = np.asarray(other.data if isinstance(other, Value) else other)
    zero = np.asarray(other.q.zero_point) if isinstance(other, Value) and other.q else 0
    return OK if np.all(data - zero) else "zero"


@rule(
    "clamp limits must be constants in ascending order, and those of a ReLU variant if input and output scales differ"
)
def constant_limits(op: Op, target: Any) -> object:
    limits = activation_limits(op.kind, op)
    if limits is None or limits == (-float("inf"), float("inf")) or limits[0] > limits[1]:
        return limits if limits is not None else "tensors"
    assert op.outputs[0] is not None
    return OK if same_qparams(op.args["self"], op.outputs[0]) or limits in RELU_KINDS else limits


@rule("the input must be nonnegative: its zero point must be -128")
def nonnegative_input(op: Op, target: Any) -> object:
    q = op.args["self"].q
    uncalibrated = q is None or (q.scale, q.zero_point) == (1.0, 0)
    return OK if uncalibrated or int(np.asarray(q.zero_point)) == -128 else q.zero_point


@rule("the ratio of input to output scale must be at least 1/512 and less than 128")
def hardswish_scales(op: Op, target: Any) -> object:
    x, out = op.args["self"].q, op.outputs[0].q if op.outputs[0] is not None else None
    if x is None or out is None:
        return OK
    factor = float(np.asarray(x.scale)) / float(np.asarray(out.scale))
    return OK if 1 / 512 <= factor < 128 else f"{factor:g}"


@rule("the output must have scale 1/256 and zero point -128")
def unit_range(op: Op, target: Any) -> object:
    return _check_output_qparams(op, 1 / 256, -128)


@rule("the output must have scale 1/128 and zero point 0")
def signed_range(op: Op, target: Any) -> object:
    return _check_output_qparams(op, 1 / 128, 0)


def _check_output_qparams(op: Op, scale: float, zero: int) -> object:
    out = op.outputs[0]
    if out is None or out.q is None or (out.q.scale, out.q.zero_point) == (1.0, 0):  # before calibration
        return OK
    actual = float(np.asarray(out.q.scale)), int(np.asarray(out.q.zero_point))
    return OK if abs(actual[0] / scale - 1) < 1e-5 and actual[1] == zero else f"{actual[0]:g} and {actual[1]}"


@rule("softmax must have at most 2040 elements per row, 4096 rows and 524288 elements in total")
def softmax_fits(op: Op, target: Any) -> object:
    x = op.args["self"]
    if not x.shape:
        return "no dimension"
    total, row = int(np.prod(x.bound)), x.bound[op.args["dim"]]
    return OK if row <= 2040 and total // row <= 4096 and total <= 524288 else f"{total // row} rows of {row}"


# ------------------------------------------------------------- pooling, resizing, reductions and data movement


@rule("ceil_mode must be False, dilation 1, and the divisor the window size")
def pool_form(op: Op, target: Any) -> object:
    if op.args.get("ceil_mode"):
        return "ceil_mode True"
    if any(d != 1 for d in op.args.get("dilation") or [1]):
        return f"dilation {op.args['dilation']}"
    if op.args.get("divisor_override") is not None:
        return f"divisor {op.args['divisor_override']}"
    padded = any(op.args.get("padding") or [0]) and op.kind.startswith("avg")
    return "count_include_pad False" if padded and op.args.get("count_include_pad", True) is False else OK


@rule(f"windows and strides must be at most {MAX_WINDOW_PARAM}")
def pool_fits(op: Op, target: Any) -> object:
    kernel, stride, _ = pool_window(op)
    return OK if max(*kernel, *stride) <= MAX_WINDOW_PARAM else max(*kernel, *stride)


@rule("input sizes must be divisible by output sizes")
def divisible(op: Op, target: Any) -> object:
    dims = spatial_rank(op)
    assert op.outputs[0] is not None
    sizes = list(zip(op.args["self"].bound[-dims:], op.outputs[0].bound[-dims:], strict=True))
    return OK if all(m and n % m == 0 for n, m in sizes) else sizes


@rule("scale factors of a resize must be exactly 1, 2, 4 or 8")
def upscale_factor(op: Op, target: Any) -> object:
    x, out = image_input(op), op.outputs[0]
    assert out is not None
    factors = [m / n for n, m in zip(x.bound[2:], out.bound[2:], strict=True)]
    arguments = op.args.get("scale_factors") or [op.args.get("scales_h"), op.args.get("scales_w")]
    different = any(g is not None and abs(g - f) > 1e-6 for g, f in zip(arguments, factors, strict=True))
    return factors if different or not set(factors) <= {1.0, 2.0, 4.0, 8.0} else OK


@rule("at least one dimension must be reduced")
def has_reduced_dims(op: Op, target: Any) -> object:
    return OK if op.args["self"].shape and reduced_dims(op) else "none"


@rule("slices must be contiguous (step 1)")
def contiguous_slice(op: Op, target: Any) -> object:
    if not op.args["self"].shape:
        return "no dimension"
    indices = selected_indices(op)
    return (
        OK
        if indices and indices == list(range(indices[0], indices[0] + len(indices)))
        else f"step {op.args.get('step', 1)}"
    )


@rule("padding must not be negative, and its value must be finite")
def nonnegative_padding(op: Op, target: Any) -> object:
    widths = pad_widths(op)
    if not np.isfinite(op.args.get("value") or 0):
        return op.args["value"]
    return OK if all(n >= 0 for pair in widths for n in pair) else widths


@rule("padding mode must be reflect")
def reflect_only(op: Op, target: Any) -> object:
    mode = op.args.get("mode", "reflect")
    return OK if mode == "reflect" else mode


@rule("expand must not repeat elements")
def no_broadcast(op: Op, target: Any) -> object:
    assert op.outputs[0] is not None
    return OK if op.outputs[0].bound == op.args["self"].bound else list(op.outputs[0].bound)
