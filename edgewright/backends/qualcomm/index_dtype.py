"""Narrows int64 indices to int32: outputs of operators that compute indices, and data movement of those."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edgewright.backends.qualcomm.lower import INT32, INT64
from edgewright.backends.qualcomm.rules import values_of
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Op, Value
from edgewright.ir.ports import Index, Same


class IndexNarrowing:
    """Tracks which values of a graph are indices. Operators must be visited in execution order."""

    def __init__(self) -> None:
        self._indices: set[Value] = set()

    def narrow(self, op: Op) -> Op:
        """The operator with int32 indices, as the HTP receives it."""
        self._indices |= {o for o in self._index_outputs(op) if o.dtype == INT64}
        if self._indices.isdisjoint([*op.inputs(), *(o for o in op.outputs if o is not None)]):
            return op
        outputs = [None if o is None else self._narrow(o) for o in op.outputs]
        return replace(op, args={name: self._narrow(argument) for name, argument in op.args.items()}, outputs=outputs)

    def _index_outputs(self, op: Op) -> list[Value]:
        """Outputs that are indices: all of an operator that computes or moves indices, and the second of one that
        returns values and indices."""
        outputs, row = [o for o in op.outputs if o is not None], OPS.get(op.kind)
        ports = dict(row.ports) if row is not None else {}
        port = ports.pop("out", None)
        if isinstance(port, Index):
            return [] if any(isinstance(p, Index) for p in ports.values()) else outputs  # those only join integers
        if not isinstance(port, Same):
            return []
        operands = [
            v for name, p in ports.items() if name == port.port or p == port for v in values_of(op.args.get(name))
        ]
        if not any(v.dtype == INT64 for v in operands):
            return outputs[1:]
        return outputs if self._indices.issuperset(operands) else []

    def _narrow(self, argument: Any) -> Any:
        if isinstance(argument, list | tuple):
            return [self._narrow(g) for g in argument]
        return replace(argument, dtype=INT32) if isinstance(argument, Value) and argument in self._indices else argument
