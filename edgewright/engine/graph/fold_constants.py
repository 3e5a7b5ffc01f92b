"""Constant folding: small operators that read nothing but constants are evaluated once, by the reference.

Our compiler folds constants, so few graphs have such operators; translations and lowerings may expect that what they
translate has a computed operand.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.errors import EdgewrightError
from edgewright.ir.core.dialect import CORE
from edgewright.ir.dialect import FindDialect
from edgewright.ir.graph import Array, Graph, Op, Value
from edgewright.ir.numerics import Numerics

_ERRORS = (EdgewrightError, ValueError, LookupError, TypeError, ArithmeticError)  # the step reports them when it runs
_MAX_ELEMENTS = 1 << 16  # of a result: folded weights would be in memory twice


def fold_constants(graph: Graph, numerics: Numerics, find_dialect: FindDialect) -> Graph:
    """The graph without operators whose operands are all constant; the same graph if it has none."""
    folded: dict[Value, Value] = {}
    ops: list[Op] = []
    for op in graph.ops:
        op = _substitute(op, folded)
        results = _evaluate(op, numerics, find_dialect)
        if results is None:
            ops.append(op)
        else:
            folded |= results
    if not folded:
        return graph
    return Graph(graph.name, graph.inputs, [folded.get(v, v) for v in graph.outputs], ops)


def _substitute(op: Op, folded: dict[Value, Value]) -> Op:
    if not any(value in folded for value in op.inputs()):
        return op

    def substitute(argument: Any) -> Any:
        if isinstance(argument, list | tuple):
            return type(argument)(substitute(item) for item in argument)
        return folded.get(argument, argument) if isinstance(argument, Value) else argument

    return replace(op, args={name: substitute(argument) for name, argument in op.args.items()})


def _evaluate(op: Op, numerics: Numerics, find_dialect: FindDialect) -> dict[Value, Value] | None:
    """The results of an operator as constants; None if it reads computed values, or raises an error."""
    operands = list(op.inputs())
    if not operands or any(not v.constant for v in operands):
        return None
    dialect = CORE if op.kind.startswith("core.") else find_dialect(op.kind.partition(".")[0])
    outputs = [out for out in op.outputs if out is not None]
    if dialect is None or any(out.dynamic or (out.q is not None and out.q.dynamic) for out in outputs):
        return None
    if sum(math.prod(out.bound) for out in outputs) > _MAX_ELEMENTS:
        return None
    try:
        with np.errstate(all="ignore"):
            results = dialect.run_op(op, {}, numerics)
    except _ERRORS:
        return None
    pairs = zip(op.outputs, results, strict=True)
    return {out: _constant(out, result) for out, result in pairs if out is not None}


def _constant(out: Value, result: Array) -> Value:
    return replace(out, data=np.ascontiguousarray(result, out.dtype).reshape(out.bound))
