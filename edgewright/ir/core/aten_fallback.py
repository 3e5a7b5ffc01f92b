"""ATen operators in core graphs: the op table's reference for kinds without a core implementation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.ir.core.registry import EvaluationContext
from edgewright.ir.graph import Array, Op, Value

_OURS = ("limits", "outside")  # arguments that core graphs add


def aten_reference(kind: str) -> Callable[[EvaluationContext, Op], Any] | None:
    """The op table's reference, on values in their compute types; None if the table has no such operator."""
    from edgewright.ir.aten.ops import OPS

    row = OPS.get(kind)
    if row is None:
        return None

    def run(ex: EvaluationContext, op: Op) -> tuple[Array, ...]:
        made = row.call({name: _read(ex, given) for name, given in op.args.items() if name not in _OURS})
        return tuple(_store_result(ex, op, out, result) for out, result in zip(op.outputs, made, strict=False))

    return run


def is_aten_op(kind: str) -> bool:
    from edgewright.ir.aten.ops import OPS

    return kind in OPS


def aten_shape(op: Op) -> tuple[int, ...]:
    """The shape of the first result, by the op table's shape function."""
    from edgewright.ir.aten.ops import OPS

    made = OPS[op.kind].shape(**{name: _empty(given) for name, given in op.args.items() if name not in _OURS})
    first = made[0] if isinstance(made, list) else made
    return tuple(int(n) for n in first)


def _read(ex: EvaluationContext, given: Any) -> Any:
    if isinstance(given, list | tuple):
        return [_read(ex, g) for g in given]
    return ex.real(given) if isinstance(given, Value) else given


def _store_result(ex: EvaluationContext, op: Op, out: Value | None, result: Any) -> Array:
    array = np.asarray(result)
    if out is None:
        return array
    return ex.store(op, array) if out is op.outputs[0] else array.astype(out.dtype, copy=False)


def _empty(given: Any) -> Any:
    """A broadcast array of a value's shape, without memory."""
    if isinstance(given, list | tuple):
        return [_empty(g) for g in given]
    return np.broadcast_to(np.zeros((), given.dtype), given.bound) if isinstance(given, Value) else given
