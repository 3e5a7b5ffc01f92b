"""Rules shared by several backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.backends.table import OK, Rule, tensor_arg
from edgewright.ir.graph import Op, Value


def rule(text: str) -> Callable[[Callable[[Op, Any], object]], Rule]:
    """Decorator: a ``Rule`` from a check function and the sentence that users see."""
    return lambda check: Rule(text, check)


@rule("images must have batch and channel dimensions")
def batched_images(op: Op, target: Any) -> object:
    x = tensor_arg(op, "input")
    return OK if x is not None and len(x.shape) == len(op.args["weight"].shape) else "a different rank"


@rule("only the first output may be used, not indices or statistics")
def first_output_only(op: Op, target: Any) -> object:
    used = [o.name for o in op.outputs[1:] if o is not None]
    return ", ".join(used) if used else OK


@rule("images must have rank 4, in NCHW order")
def four_dims(op: Op, target: Any) -> object:
    rank = len(next(iter(op.inputs())).shape)
    return OK if rank == 4 else rank


@rule("normalization must be over the last dimension only")
def last_dim_only(op: Op, target: Any) -> object:
    shape = list(op.args["normalized_shape"])
    return OK if len(shape) == 1 else shape


@rule("statistics must be constant: the model must be in eval()")
def constant_statistics(op: Op, target: Any) -> object:
    statistics = [op.args.get(n) for n in ("running_mean", "running_var")]
    return OK if all(isinstance(v, Value) and v.constant for v in statistics) else "computed"


@rule("running_var + eps must be positive for every channel: continue training, or correct running_var")
def positive_variance(op: Op, target: Any) -> object:
    variance = op.args.get("running_var")
    if not isinstance(variance, Value) or variance.data is None or variance.q is not None:
        return OK
    values = np.asarray(variance.data, np.float64).reshape(-1)
    invalid = np.flatnonzero(~(values + float(op.args.get("eps", 0.0)) > 0))
    return f"{values[invalid[0]]:g} for channel {invalid[0]}" if invalid.size else OK


@rule("alpha must be 1")
def unit_alpha(op: Op, target: Any) -> object:
    alpha = op.args.get("alpha", 1)
    return OK if alpha == 1 else alpha


@rule("rounding_mode of a division must be None")
def true_division(op: Op, target: Any) -> object:
    mode = op.args.get("rounding_mode")
    return OK if mode is None else mode


@rule("at least one operand must be a non-constant tensor, and scalars must be finite")
def computed_operand(op: Op, target: Any) -> object:
    nonfinite = [v for v in op.args.values() if isinstance(v, float) and not np.isfinite(v)]
    return nonfinite[0] if nonfinite else OK if any(not v.constant for v in op.inputs()) else "constants"


@rule("tensors must have at least one dimension")
def not_scalar(op: Op, target: Any) -> object:
    return OK if next(iter(op.inputs())).shape else "none"


@rule("quantization must be per tensor, with constant parameters")
def per_tensor_quantized(op: Op, target: Any) -> object:
    quantized = op.outputs[0] if op.kind != "dequantize" else op.args["self"]
    return OK if quantized is not None and quantized.q is not None and quantized.q.axis is None else "per channel"


@rule("scale factors of a resize must equal the ratio of output size to input size")
def exact_scale_factors(op: Op, target: Any) -> object:
    x, out = op.args["input" if "input" in op.args else "self"], op.outputs[0]
    factors = op.args.get("scale_factors") or [op.args.get("scales_h"), op.args.get("scales_w")]
    if out is None or len(x.shape) != 4:
        return f"rank {len(x.shape)}"
    if op.args.get("align_corners"):
        return OK  # the corners alone determine the ratio
    exact = [m / n for m, n in zip(out.bound[2:], x.bound[2:], strict=True)]
    different = [g for g, e in zip(factors, exact, strict=True) if g is not None and abs(g - e) > 1e-6]
    return different or OK
