"""Lowering of elementwise arithmetic, activations, unary functions, quantization and casts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgewright.backends.samsung.dialect.elementwise import FUNCTIONS
from edgewright.backends.samsung.dialect.table import ELEMENT_NAMES
from edgewright.backends.samsung.lower import FLOAT32, EnnLowering, float_data, output
from edgewright.ir.graph import Op
from edgewright.lowering.passes.value_storage import activation_limits

Lower = Callable[[EnnLowering, Op], None]
# Functions, and whether their node has the parameter ``quant_dtype``.
UNARY = {op: (kind, kind in ("RELU", "HARDSWISH", "HardSigmoid", "GELU")) for op, kind in FUNCTIONS.items()}
BINARY = {
    "add": ("ELTSUM", True), "sub": ("SUB", True), "mul": ("ELTMUL", True), "div": ("ELTDIV", True),
    "maximum": ("MAXIMUM", False), "minimum": ("MIN", False),
}  # fmt: skip


def node(kind: str, with_quant_dtype: bool, *names: str) -> Lower:
    """A node with these operands, in order."""
    return lambda low, op: low.finish(
        op, kind, [low.operand(op, n) for n in names or ("self",)], with_quant_dtype=with_quant_dtype
    )


def power(low: EnnLowering, op: Op) -> None:
    low.finish(op, "POW", [low.operand(op, "self"), low.operand(op, "exponent")], with_quant_dtype=False)


def clamp(low: EnnLowering, op: Op) -> None:
    """Activations that are a clamp, other than ReLU."""
    limits = activation_limits(op.kind, op)
    assert limits is not None
    low.clamp(low.get(op.args["self"]), low.make(output(op)), *limits)


def leaky_relu(low: EnnLowering, op: Op) -> None:
    slope = low.constant(np.full((1,), op.args.get("negative_slope", 0.01), FLOAT32))
    low.finish(op, "PRELU", [low.get(op.args["self"]), slope], with_quant_dtype=False)


def prelu(low: EnnLowering, op: Op) -> None:
    """Slopes are float32."""
    slope = low.constant(np.asarray(float_data(op.args["weight"]), FLOAT32))
    low.finish(op, "PRELU", [low.get(op.args["self"]), slope], with_quant_dtype=False)


def convert(low: EnnLowering, op: Op) -> None:
    """Quantize, dequantize or requantize."""
    low.convert(low.get(op.args["self"]), low.make(output(op)))


def cast(low: EnnLowering, op: Op) -> None:
    x, out = op.args["self"], output(op)
    if x.dtype == out.dtype:
        low.alias(out, tuple(range(len(out.shape))), low.get(x))
    else:
        low.finish(op, "CAST", [low.get(x)], with_quant_dtype=False, out_dtype=ELEMENT_NAMES[str(out.dtype)])
