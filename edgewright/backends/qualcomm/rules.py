"""What the HTP asks of operators. ``target`` is a ``QnnTarget``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.backends.table import OK, Rule, over, pool_arguments, spread, tensor, tensors
from edgewright.ir.graph import Op, Value

_PLAIN = ("float32", "int32", "bool")
# Of these, constants are real numbers until they are lowered.
_REAL = {"bias", "weight", "running_mean", "running_var"}


def rule(text: str) -> Callable[[Callable[[Op, Any], object]], Rule]:
    """A rule whose sentence stands above its function."""
    return lambda why: Rule(text, why)


def _weight(op: Op, value: Value) -> bool:
    return value is op.args.get("weight") or value is op.args.get("bias")


@rule("activations must be of 8 or 16 bits, unsigned and with one scale; weights of 8 bits or 4, without a zero point")
def storage(op: Op, target: Any) -> object:
    for value in tensors(op):
        q = value.q
        if q is None:
            continue
        said = f"{value.name}: {q.dtype}" + (" by channel" if q.axis is not None else "")
        if q.dynamic or q.block:
            return f"{said}, found as it runs or in blocks"
        if _weight(op, value):
            if str(q.dtype) not in ("int8", "int32") or np.any(np.asarray(q.zero_point)):
                return said
        elif str(q.dtype) not in ("uint8", "uint16") or q.axis is not None:
            return said
    return OK


@rule("activations must all have as many bits")
def one_width(op: Op, target: Any) -> object:
    held = sorted({str(v.dtype) for v in tensors(op) if v.q is not None and not _weight(op, v)})
    return ", ".join(held) if len(held) > 1 else OK


@rule("elements that are not quantized must be float32, int32 or bool")
def plain(op: Op, target: Any) -> object:
    bad = sorted({str(v.dtype) for v in tensors(op) if v.q is None and str(v.dtype) not in _PLAIN})
    return ", ".join(bad) if bad else OK


@rule("real numbers are computed with generate_htp_compiler_spec(use_fp16=True) only: quantize the model, or say so")
def real_numbers_allowed(op: Op, target: Any) -> object:
    if op.kind in ("quantize", "dequantize") or target is None or target.fp16:
        return OK
    held = {id(op.args[n]) for n in _REAL if isinstance(op.args.get(n), Value)}
    real = [v.name for v in tensors(op) if v.q is None and str(v.dtype) == "float32" and id(v) not in held]
    return ", ".join(real) if real else OK


@rule("operands and results must all be quantized, or none")
def all_or_none(op: Op, target: Any) -> object:
    held = [v for v in tensors(op) if not any(v is op.args.get(n) for n in _REAL) and str(v.dtype) != "bool"]
    loose = [v.name for v in held if v.q is None]
    return ", ".join(loose) if loose and len(loose) < len(held) else OK


@rule("images must come with their batch and channels")
def whole_images(op: Op, target: Any) -> object:
    x = tensor(op, "input")
    return OK if x is not None and len(x.shape) == len(op.args["weight"].shape) else "another rank"


@rule("transposed windows must be without gaps; grouped ones without output padding and with one scale for all weights")
def plain_transposed(op: Op, target: Any) -> object:
    if not op.args.get("transposed"):
        return OK
    if any(d != 1 for d in spread(op, "dilation", 1)):
        return f"dilation {op.args['dilation']}"
    if op.args.get("groups", 1) == 1:
        return OK
    if any(spread(op, "output_padding", 0)):
        return f"output_padding {op.args['output_padding']}"
    q = op.args["weight"].q
    return "by channel" if q is not None and q.axis is not None else OK


@rule("only the values may be read, not their places")
def values_only(op: Op, target: Any) -> object:
    read = [o.name for o in op.outputs[1:] if o is not None]
    return ", ".join(read) if read else OK


@rule("windows must be without gaps, no larger than the image, and of images with batch and channels")
def plain_window(op: Op, target: Any) -> object:
    if len(op.args["self"].shape) != 4:
        return f"rank {len(op.args['self'].shape)}"
    kernel, _, _, dilation = pool_arguments(op)
    if any(d != 1 for d in dilation):
        return f"dilation {dilation}"
    return OK if all(k <= n for k, n in zip(kernel, op.args["self"].bound[2:], strict=True)) else f"window {kernel}"


@rule("averages must not be rounded up to hang over the edge, and must divide by the window")
def plain_average(op: Op, target: Any) -> object:
    kernel = pool_arguments(op)[0]
    if op.args.get("ceil_mode"):
        return "ceil_mode"
    divisor = op.args.get("divisor_override")
    return OK if divisor in (None, kernel[0] * kernel[1]) else f"divisor {divisor}"


@rule("sizes must be multiples of those of the result, of images with batch and channels")
def even_windows(op: Op, target: Any) -> object:
    x, out = op.args["self"], op.outputs[0]
    if len(x.shape) != 4 or out is None:
        return f"rank {len(x.shape)}"
    pairs = list(zip(x.bound[2:], out.bound[2:], strict=True))
    return OK if all(m and n % m == 0 for n, m in pairs) else x.bound


@rule("something must be reduced, and the result must be of the type of what it is made from")
def reduces(op: Op, target: Any) -> object:
    out, x = op.outputs[0], op.args["self"]
    if not x.shape or not over(op):
        return "no dimension"
    return str(op.args["dtype"]) if op.args.get("dtype") is not None and out is not None and out.q is None else OK


@rule("images must have four dimensions, batch and channels first")
def four_dims(op: Op, target: Any) -> object:
    rank = len(next(iter(op.inputs())).shape)
    return OK if rank == 4 else rank


@rule("normalisation must be over the last dimension")
def last_only(op: Op, target: Any) -> object:
    shape = list(op.args["normalized_shape"])
    return OK if len(shape) == 1 else shape


@rule("statistics must be constant: the model must be in eval()")
def fixed_statistics(op: Op, target: Any) -> object:
    held = [op.args.get(n) for n in ("running_mean", "running_var")]
    return OK if all(isinstance(v, Value) and v.constant for v in held) else "computed"


@rule("alpha must be 1")
def no_alpha(op: Op, target: Any) -> object:
    alpha = op.args.get("alpha", 1)
    return OK if alpha == 1 else alpha


@rule("division must not be rounded")
def true_division(op: Op, target: Any) -> object:
    mode = op.args.get("rounding_mode")
    return OK if mode is None else mode


@rule("one operand must be a tensor that is computed, and numbers must be finite")
def some_tensor(op: Op, target: Any) -> object:
    wild = [v for v in op.args.values() if isinstance(v, float) and not np.isfinite(v)]
    return wild[0] if wild else OK if any(not v.constant for v in op.inputs()) else "constants"


@rule("logarithms must be of 8 bits or real numbers: the HTP's of 16 bits is wrong")
def narrow(op: Op, target: Any) -> object:
    q = op.args["self"].q
    return str(q.dtype) if q is not None and q.dtype.itemsize > 1 else OK


@rule("limits must be numbers")
def number_limits(op: Op, target: Any) -> object:
    held = [n for n in ("min", "max") if isinstance(op.args.get(n), Value)]
    return ", ".join(held) if held else OK


@rule("elu must have scales of 1")
def plain_elu(op: Op, target: Any) -> object:
    scales = [op.args.get(n, 1) for n in ("scale", "input_scale")]
    return OK if all(s == 1 for s in scales) else scales


@rule("rounding must be to whole numbers")
def whole_numbers(op: Op, target: Any) -> object:
    decimals = op.args.get("decimals", 0)
    return decimals if decimals else OK


@rule("padding must not be negative, and filled with a number that is stored in the tensor")
def outward(op: Op, target: Any) -> object:
    given, q = list(op.args["pad"]), op.args["self"].q
    value = op.args.get("value") or 0
    if any(p < 0 for p in given):
        return given
    if not np.isfinite(float(value)):
        return value
    if q is None:
        return OK
    ends = [(n - q.zero_point) * q.scale for n in (q.qmin, q.qmax)]
    return OK if ends[0] - q.scale / 2 <= value <= ends[1] + q.scale / 2 else value


@rule("images must be resized by the quotient of their sizes")
def true_factors(op: Op, target: Any) -> object:
    x, out = op.args["input" if "input" in op.args else "self"], op.outputs[0]
    given = op.args.get("scale_factors") or [op.args.get("scales_h"), op.args.get("scales_w")]
    if out is None or len(x.shape) != 4:
        return "rank"
    exact = [m / n for m, n in zip(out.bound[2:], x.bound[2:], strict=True)]
    off = [g for g, e in zip(given, exact, strict=True) if g is not None and abs(g - e) > 1e-6]
    return off or OK


@rule("nearest pixels are found of images that grow to multiples of their size")
def whole_factors(op: Op, target: Any) -> object:
    x, out = op.args["input" if "input" in op.args else "self"], op.outputs[0]
    if out is None or len(x.shape) != 4:
        return "rank"
    pairs = list(zip(out.bound[2:], x.bound[2:], strict=True))
    return OK if all(m and m % n == 0 for m, n in pairs) else out.bound


@rule("tensors must have a dimension")
def has_dims(op: Op, target: Any) -> object:
    return OK if next(iter(op.inputs())).shape else "none"


@rule("quantization must be of a whole tensor, with numbers known now")
def known(op: Op, target: Any) -> object:
    stored = op.outputs[0] if op.kind != "dequantize" else op.args["self"]
    return OK if stored is not None and stored.q is not None and stored.q.axis is None else "by channel"


@rule("what is combined with and, or, xor must be truth values")
def truths(op: Op, target: Any) -> object:
    held = sorted({str(v.dtype) for v in tensors(op) if str(v.dtype) != "bool"})
    return ", ".join(held) if held else OK
