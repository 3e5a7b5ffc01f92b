"""ATen operators in core graphs: the op table's reference for kinds without a core implementation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.ir.core.registry import EvaluationContext
from edgewright.ir.graph import Array, Op, Value

_CORE_ARGS = ("limits", "outside")  # arguments that core graphs add


def aten_reference(kind: str) -> Callable[[EvaluationContext, Op], Any] | None:
    """The op table's reference, on values in their compute types; None if the table has no such operator."""
    from edgewright.ir.aten.ops import OPS

    row = OPS.get(kind.removeprefix("core."))
    if row is None:
        return None

    def run(ex: EvaluationContext, op: Op) -> tuple[Array, ...]:
        results = row.call(
            {name: _read_real(ex, argument) for name, argument in op.args.items() if name not in _CORE_ARGS}
        )
        return tuple(_store_result(ex, op, out, result) for out, result in zip(op.outputs, results, strict=False))

    return run


def is_aten_op(kind: str) -> bool:
    from edgewright.ir.aten.ops import OPS

    return kind.removeprefix("core.") in OPS


def aten_shape(op: Op) -> tuple[int, ...]:
    """The shape of the first result, by the op table's shape function."""
    from edgewright.ir.aten.ops import OPS

    shapes = OPS[op.name].shape(
        **{name: _zeros_view(argument) for name, argument in op.args.items() if name not in _CORE_ARGS}
    )
    first = shapes[0] if isinstance(shapes, list) else shapes
    return tuple(int(n) for n in first)


def _read_real(ex: EvaluationContext, argument: Any) -> Any:
    if isinstance(argument, list | tuple):
        return [_read_real(ex, g) for g in argument]
    return ex.real(argument) if isinstance(argument, Value) else argument


def _store_result(ex: EvaluationContext, op: Op, out: Value | None, result: Any) -> Array:
    array = np.asarray(result)
    if out is None:
        return array
    return ex.store(op, array) if out is op.outputs[0] else array.astype(out.dtype, copy=False)


def _zeros_view(argument: Any) -> Any:
    """Values as zeros broadcast to their shape, which take no memory."""
    if isinstance(argument, list | tuple):
        return [_zeros_view(g) for g in argument]
    return np.broadcast_to(np.zeros((), argument.dtype), argument.bound) if isinstance(argument, Value) else argument
