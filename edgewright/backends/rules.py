"""Rules that more than one backend has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.backends.table import OK, Rule, tensor
from edgewright.ir.graph import Op, Value


def rule(text: str) -> Callable[[Callable[[Op, Any], object]], Rule]:
    """A rule whose sentence stands above its function."""
    return lambda why: Rule(text, why)


@rule("images must come with their batch and channels")
def whole_images(op: Op, target: Any) -> object:
    x = tensor(op, "input")
    return OK if x is not None and len(x.shape) == len(op.args["weight"].shape) else "another rank"


@rule("only the values may be read, not their places")
def values_only(op: Op, target: Any) -> object:
    read = [o.name for o in op.outputs[1:] if o is not None]
    return ", ".join(read) if read else OK


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


@rule("the variance of every channel must be a number above -eps, so that it has a root to divide by: train on, or set "
      "running_var to what it should be")  # fmt: skip
def rooted_statistics(op: Op, target: Any) -> object:
    variance = op.args.get("running_var")
    if not isinstance(variance, Value) or variance.data is None or variance.q is not None:
        return OK
    held = np.asarray(variance.data, np.float64).reshape(-1)
    wrong = np.flatnonzero(~(held + float(op.args.get("eps", 0.0)) > 0))
    return f"{held[wrong[0]]:g} for channel {wrong[0]}" if wrong.size else OK


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


@rule("tensors must have a dimension")
def has_dims(op: Op, target: Any) -> object:
    return OK if next(iter(op.inputs())).shape else "none"


@rule("quantization must be of a whole tensor, with numbers known now")
def known(op: Op, target: Any) -> object:
    stored = op.outputs[0] if op.kind != "dequantize" else op.args["self"]
    return OK if stored is not None and stored.q is not None and stored.q.axis is None else "by channel"


@rule("images must be resized by the quotient of their sizes")
def true_factors(op: Op, target: Any) -> object:
    x, out = op.args["input" if "input" in op.args else "self"], op.outputs[0]
    given = op.args.get("scale_factors") or [op.args.get("scales_h"), op.args.get("scales_w")]
    if out is None or len(x.shape) != 4:
        return f"rank {len(x.shape)}"
    exact = [m / n for m, n in zip(out.bound[2:], x.bound[2:], strict=True)]
    off = [g for g, e in zip(given, exact, strict=True) if g is not None and abs(g - e) > 1e-6]
    return off or OK
