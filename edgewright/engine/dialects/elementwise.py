"""Rules that compile vendors' elementwise operators to vector integer arithmetic; each dialect registers its own.

A rule raises ``IntRangeError`` if the operator may exceed 64 bits or its parameters have no exact integer form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.engine.codegen.ranged_int import IntRangeError, RangedInt, RangedIntBuilder
from edgewright.ir.graph import Op, Value

Args = list[RangedInt]
ElementwiseRule = Callable[[RangedIntBuilder, Op, Args], RangedInt]
ELEMENTWISE: dict[str, ElementwiseRule] = {}
TABLE_ONLY: set[str] = set()  # operators that only a table over all input values can compute


def elementwise_rule(*kinds: str) -> Callable[[ElementwiseRule], ElementwiseRule]:
    """Register a rule for operators of these kinds."""

    def register(rule: ElementwiseRule) -> ElementwiseRule:
        for kind in kinds:
            ELEMENTWISE[kind] = rule
        return rule

    return register


def elementwise_operands(op: Op) -> list[Value]:
    """The tensors that an operator reads element by element."""
    if op.kind.startswith(("tflite.", "qnn.", "enn.")):
        return list(op.args["inputs"])
    names = ["input", "a", "b", "condition", "on_true", "on_false"]
    names += ["multiplier", "shift"] if op.args.get("per_channel") else []
    return [op.args[name] for name in names if name in op.args]


def dtype_range(value: Value) -> tuple[int, int]:
    """The smallest and largest value of a tensor's integer type."""
    if value.dtype is None or value.dtype.kind not in "biu":
        raise IntRangeError("float operand")
    if value.dtype.kind == "b":
        return 0, 1
    info: Any = np.iinfo(value.dtype)
    return int(info.min), int(info.max)


def result_of(op: Op) -> Value:
    """The only result of an elementwise operator."""
    out = op.outputs[0]
    assert out is not None
    return out


# Operators with the same meaning for all vendors.


@elementwise_rule("tosa.maximum", "tflite.MAXIMUM")
def _maximum(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    return i.largest(*args)


@elementwise_rule("tosa.minimum", "tflite.MINIMUM")
def _minimum(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    return i.smallest(*args)
