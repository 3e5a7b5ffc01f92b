"""Reference interpreter of a host twin's QNN graph, in numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Array, Graph, GraphError, Op, Value
from edgewright.ir.liveness import last_uses
from edgewright.ir.qnn.dtypes import converted, real, stored
from edgewright.ir.qnn.table import PREFIX, QNN, REAL, STORED, QnnOp


def execute(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """The outputs for ``inputs``; what nobody reads any more is let go."""
    held: dict[Value, Array] = dict(zip(graph.inputs, inputs, strict=True))
    for op, dead in last_uses(graph).items():
        for out, made in zip(op.outputs, _made(op, _given(op, held)), strict=True):
            if out is not None:
                held[out] = _fitting(op, out, made)
        for value in dead:
            held.pop(value, None)
    return [v.data if v.data is not None else held[v] for v in graph.outputs]


def known(kind: str) -> bool:
    return kind.removeprefix(PREFIX) in QNN


def run_op(op: Op, held: Mapping[Value, Array], numerics: str = "qnn") -> Array | tuple[Array, ...]:
    """What an operator makes of its constants and of the values held."""
    if len(op.outputs) > 1:
        made = _made(op, _given(op, held))
        return tuple(m if v is None else _fitting(op, v, m) for v, m in zip(op.outputs, made, strict=True))
    (one,), out = _made(op, _given(op, held)), op.outputs[0]
    return one.reshape(out.bound) if out is not None and one.size == 1 else one


def _given(op: Op, held: Mapping[Value, Array]) -> list[Array]:
    return [v.data if v.data is not None else held[v] for v in op.args["inputs"]]


def _made(op: Op, given: Sequence[Array]) -> list[Array]:
    row, values, out = QNN[op.kind.removeprefix(PREFIX)], op.args["inputs"], op.outputs[0]
    assert out is not None
    if row.domain == REAL:
        if row.single and values[0].q is not None and values[0].dtype.itemsize == 1:
            return [_looked_up(op, row, values[0], out, given[0])]
        made = row.meaning(_params(op, out), *(real(v, a) for v, a in zip(values, given, strict=True)))
        return [stored(out, made)]
    if row.domain == STORED:
        alike = [_movable(v, a, out) for v, a in zip(values, given, strict=True)]
        moved = row.meaning(_params(op, out), *alike)
        return list(moved) if isinstance(moved, list) else [moved]
    return [row.meaning(op, given)]


def _movable(value: Value, array: Array, out: Value) -> Array:
    """What is moved, as the result holds it; integers that are indices stay what they are."""
    return converted(value, array, out) if value.q is not None or array.dtype.kind == "f" else array


def _params(op: Op, out: Value) -> dict[str, Any]:
    """Parameters, what errors are about, the result's shape, and how it stores 0 and what it is filled up with."""
    params = {**op.args, "shape": out.bound, "subject": subject_of(op), "zero": zero_of(out)}
    if "pad_constant_value" in params:
        fill = np.asarray(params["pad_constant_value"], np.float32)
        params["fill"] = stored(out, fill)
    return params


def subject_of(op: Op) -> str:
    out = op.outputs[0]
    return op.kind if out is None else f"{op.kind} {out.name!r}"


def zero_of(out: Value) -> int:
    """What stands for 0."""
    return 0 if out.q is None or out.q.axis is not None else int(np.asarray(out.q.zero_point))


def _looked_up(op: Op, row: QnnOp, value: Value, out: Value, array: Array) -> Array:
    """Functions of bytes are computed once for each of the 256."""
    assert value.dtype is not None
    every = np.arange(256, dtype=np.uint8).view(value.dtype)
    table = stored(out, row.meaning(_params(op, out), real(value, every)))
    return table[array.view(np.uint8)]


def _fitting(op: Op, out: Value, made: Array) -> Array:
    if (made.shape or (1,)) != (out.bound or (1,)):  # a number alone has a dimension in QNN
        raise GraphError(f"{op.kind} {out.name!r}", f"must give the shape {out.bound}", value=made.shape)
    typed = made if made.dtype == out.dtype else made.astype(out.dtype)
    return np.ascontiguousarray(typed).reshape(out.bound)
