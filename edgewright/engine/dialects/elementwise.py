"""The table of vendors' operators on single elements, as arithmetic on vectors of integers. Each dialect's own module
(``tosa_elements.py``, …) fills it.

An operator that would need more than 64 bits, or has numbers that no arithmetic here is right for, raises
``IntRangeError``.
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
TABLE_ONLY: set[str] = set()  # functions that only a table of all bytes can do


def elementwise_rule(*kinds: str) -> Callable[[ElementwiseRule], ElementwiseRule]:
    def register(made: ElementwiseRule) -> ElementwiseRule:
        for kind in kinds:
            ELEMENTWISE[kind] = made
        return made

    return register


def elementwise_operands(op: Op) -> list[Value]:
    """The tensors that an operator works through element by element."""
    if op.kind.startswith(("tflite.", "qnn.", "enn.")):
        return list(op.args["inputs"])
    names = ["input", "a", "b", "condition", "on_true", "on_false"]
    names += ["multiplier", "shift"] if op.args.get("per_channel") else []
    return [op.args[name] for name in names if name in op.args]


def dtype_range(value: Value) -> tuple[int, int]:
    """The least and the largest that a tensor can hold."""
    if value.dtype is None or value.dtype.kind not in "biu":
        raise IntRangeError("real numbers")
    if value.dtype.kind == "b":
        return 0, 1
    info: Any = np.iinfo(value.dtype)
    return int(info.min), int(info.max)


def result_of(op: Op) -> Value:
    """What an operator on single elements makes."""
    out = op.outputs[0]
    assert out is not None
    return out


# What every vendor means alike.


@elementwise_rule("tosa.maximum", "tflite.MAXIMUM")
def _largest(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    return i.largest(*given)


@elementwise_rule("tosa.minimum", "tflite.MINIMUM")
def _smallest(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    return i.smallest(*given)
