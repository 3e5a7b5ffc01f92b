"""What Neutron asks of operators. ``target`` is a ``NeutronTargetSpec``, or None."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.nxp.conv import is_depthwise, window_sizes
from edgewright.backends.nxp.lower import LIMITED, alike
from edgewright.backends.rules import rule
from edgewright.backends.table import (
    OK,
    Rule,
    constant,
    kernel_of,
    max_rank,
    not_empty,
    spread,
    static_shape,
    tensors,
)
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.value_storage import activation_limits

MAX_STEP, MAX_TAPS, MAX_GROUPS = 4096, 65535, 10
MACS = 8  # of a pipeline, where no target says otherwise


def _weight_of(op: Op) -> Any:
    return op.args.get("weight") if op.kind != "prelu" else None


@rule("results and operands must be integers: quantize the model with NeutronQuantizer")
def quantized(op: Op, target: Any) -> object:
    free = {op.args.get(n) for n in ("bias", "weight" if op.kind == "prelu" else "bias")}
    free |= {op.args["self"]} if op.kind == "addmm" else set()
    loose = [v.name for v in tensors(op) if v.q is None and not v.constant]
    loose += [v.name for v in tensors(op) if v.q is None and v.constant and v not in free and not _factor(op, v)]
    return ", ".join(loose) if loose else OK


def _factor(op: Op, value: Value) -> bool:
    """True for constant operands of arithmetic, which lowering quantizes."""
    return value.constant and op.kind in ("add", "sub", "rsub", "mul", "div")


@rule("integers must be int8, with one scale for a whole tensor (by channel for weights of convolutions only)")
def storage(op: Op, target: Any) -> object:
    weight = _weight_of(op)
    for value in tensors(op):
        q = value.q
        if q is None or value is op.args.get("bias") or (op.kind == "addmm" and value is op.args["self"]):
            continue
        by_channel = q.axis is not None and not (value is weight and op.kind.startswith("conv"))
        if str(q.dtype) != "int8" or q.dynamic or q.block or by_channel:
            return f"{value.name}: {q.dtype}" + (" by channel" if by_channel else "")
        if value in (weight, op.args.get("mat2") if op.kind in ("mm", "addmm") else None) and np.any(q.zero_point):
            return f"{value.name}: zero point {q.zero_point}"
    return OK


@rule("tensors must have a dimension")
def ranked(op: Op, target: Any) -> object:
    flat = [v.name for v in tensors(op) if not v.shape and not v.constant]
    return ", ".join(flat) if flat else OK


EVERYWHERE: tuple[Rule, ...] = (quantized, storage, static_shape(), not_empty(), ranked, max_rank(5))


# --------------------------------------------------------------------------------------------------- convolutions


@rule("scales of weights must lie along their output channels")
def weight_axis(op: Op, target: Any) -> object:
    weight = op.args["weight"]
    wanted = 1 if op.args.get("transposed") else 0
    axis = weight.q.axis if isinstance(weight, Value) and weight.q is not None else None
    return OK if axis is None or axis % len(weight.shape) == wanted else axis


@rule(f"kernel, stride and dilation must be at most {MAX_STEP}")
def steps_fit(op: Op, target: Any) -> object:
    largest = max(window_sizes(op))
    return largest if largest > MAX_STEP else OK


@rule(f"kernel height * width * input channels (rounded up to the MACs of a pipeline) must be at most {MAX_TAPS}")
def taps_fit(op: Op, target: Any) -> object:
    macs = MACS if target is None else target.get_num_macs()
    channels = op.args["weight"].bound[0 if op.args.get("transposed") else 1]
    taps = int(np.prod(kernel_of(op))) * -(-channels // macs) * macs
    return taps if taps > MAX_TAPS else OK


@rule(f"groups must be 1, or one for each input and output channel, or at most {MAX_GROUPS}")
def groups_fit(op: Op, target: Any) -> object:
    groups = op.args["groups"]
    return OK if groups <= MAX_GROUPS or is_depthwise(op) else groups


@rule("transposed convolutions must have one group, no dilation, a stride of 1 or 2 that the kernel covers, and "
      "less padding than kernel")  # fmt: skip
def transposed_fits(op: Op, target: Any) -> object:
    kernel, stride = kernel_of(op), spread(op, "stride", 1)
    if op.args["groups"] != 1 or any(d != 1 for d in spread(op, "dilation", 1)):
        return f"groups {op.args['groups']}, dilation {op.args['dilation']}"
    if any(s > 2 or s > k for s, k in zip(stride, kernel, strict=True)):
        return f"stride {stride}"
    pads, more = spread(op, "padding", 0), spread(op, "output_padding", 0)
    bad = any(p >= k or o > p for p, k, o in zip(pads, kernel, more, strict=True))
    return f"padding {pads}, output padding {more}" if bad else OK


fixed_weights = constant("weight", "bias")
fixed_matrix = constant("mat2")


@rule("weights must be a matrix, what is added a constant for each column, and alpha and beta 1")
def plain_product(op: Op, target: Any) -> object:
    bad = [n for n in ("alpha", "beta") if op.args.get(n, 1) != 1]
    if op.kind == "addmm":
        added, columns = op.args["self"], op.args["mat2"].bound[1]
        if not added.constant or list(added.bound) not in ([columns], [1, columns]):
            return f"{added.name} of {list(added.bound)}"
    return ", ".join(bad) if bad else OK


@rule("both matrices must have rank 3 and zero points of 0")
def centred_pair(op: Op, target: Any) -> object:
    pair = [op.args["self"], op.args["mat2"]]
    zeros = [int(np.asarray(v.q.zero_point)) for v in pair if v.q is not None]
    return OK if all(len(v.shape) == 3 for v in pair) and not any(zeros) else f"zero points {zeros}"


# ---------------------------------------------------------------------------------------------------- the others


@rule("operands and results must share one scale and zero point")
def one_scale(op: Op, target: Any) -> object:
    held = [v for v in tensors(op) if v.q is not None]
    return OK if all(alike(held[0], v) for v in held) else ", ".join(f"{v.name} {v.q.scale:g}" for v in held if v.q)


@rule("one operand must have as many elements as the result, and both must be tensors or numbers")
def broadcasts(op: Op, target: Any) -> object:
    out = op.outputs[0]
    assert out is not None
    pair = [op.args["self"], op.args["other"]]
    whole = [v for v in pair if isinstance(v, Value) and not v.constant and v.bound == out.bound]
    numbers = all(isinstance(v, Value | int | float) and not isinstance(v, bool) for v in pair)
    return OK if whole and numbers else [list(v.bound) for v in pair if isinstance(v, Value)]


@rule("the divisor must be a constant without zeros, and nothing be rounded")
def fixed_divisor(op: Op, target: Any) -> object:
    other = op.args["other"]
    known = not isinstance(other, Value) or other.constant
    if not known or op.args.get("rounding_mode") is not None or op.args.get("mode") is not None:
        return op.args.get("rounding_mode") or "a computed divisor"
    data = np.asarray(other.data if isinstance(other, Value) else other)
    zero = np.asarray(other.q.zero_point) if isinstance(other, Value) and other.q else 0
    return OK if np.all(data - zero) else "zero"


@rule("limits must be numbers, low end first; with other scales than the input's they must be those of a ReLU")
def known_limits(op: Op, target: Any) -> object:
    limits = activation_limits(op.kind, op)
    if limits is None or limits == (-float("inf"), float("inf")) or limits[0] > limits[1]:
        return limits if limits is not None else "tensors"
    assert op.outputs[0] is not None
    return OK if alike(op.args["self"], op.outputs[0]) or limits in LIMITED else limits


@rule("input must not be negative: its zero point must be -128")
def not_negative(op: Op, target: Any) -> object:
    q = op.args["self"].q
    unknown = q is None or (q.scale, q.zero_point) == (1.0, 0)  # before calibration
    return OK if unknown or int(np.asarray(q.zero_point)) == -128 else q.zero_point


@rule("the input's scale must be less than 128 times the result's, and at least a 512th of it")
def swish_scales(op: Op, target: Any) -> object:
    x, out = op.args["self"].q, op.outputs[0].q if op.outputs[0] is not None else None
    if x is None or out is None:
        return OK
    factor = float(np.asarray(x.scale)) / float(np.asarray(out.scale))
    return OK if 1 / 512 <= factor < 128 else f"{factor:g} times"


@rule("results must have a scale of 1/256 and a zero point of -128")
def unit_range(op: Op, target: Any) -> object:
    return _exactly(op, 1 / 256, -128)


@rule("results must have a scale of 1/128 and a zero point of 0")
def signed_range(op: Op, target: Any) -> object:
    return _exactly(op, 1 / 128, 0)


def _exactly(op: Op, scale: float, zero: int) -> object:
    out = op.outputs[0]
    if out is None or out.q is None or (out.q.scale, out.q.zero_point) == (1.0, 0):  # before calibration
        return OK
    found = float(np.asarray(out.q.scale)), int(np.asarray(out.q.zero_point))
    return OK if abs(found[0] / scale - 1) < 1e-5 and found[1] == zero else f"{found[0]:g} and {found[1]}"


@rule("softmax must be over at most 2040 elements, at most 4096 times, and over 524288 in all")
def softmax_fits(op: Op, target: Any) -> object:
    x = op.args["self"]
    if not x.shape:
        return "no dimension"
    total, row = int(np.prod(x.bound)), x.bound[op.args["dim"]]
    return OK if row <= 2040 and total // row <= 4096 and total <= 524288 else f"{total // row} of {row}"
