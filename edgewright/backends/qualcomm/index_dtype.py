"""Narrows int64 indices to int32: outputs of operators that compute indices, and data movement of those."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edgewright.backends.qualcomm.lower import INT32, INT64
from edgewright.backends.qualcomm.rules import listed
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Op, Value
from edgewright.ir.ports import Index, Same


class Places:
    """Tracks which values of a graph are indices. Operators must be visited in execution order."""

    def __init__(self) -> None:
        self._known: set[Value] = set()

    def held(self, op: Op) -> Op:
        """The operator with int32 indices, as the HTP receives it."""
        self._known |= {o for o in self._made(op) if o.dtype == INT64}
        if self._known.isdisjoint([*op.inputs(), *(o for o in op.outputs if o is not None)]):
            return op
        outputs = [None if o is None else self._narrow(o) for o in op.outputs]
        return replace(op, args={name: self._narrow(given) for name, given in op.args.items()}, outputs=outputs)

    def _made(self, op: Op) -> list[Value]:
        """Outputs that are indices: all of an operator that computes or moves indices, and the second of one that
        returns values and indices."""
        outputs, row = [o for o in op.outputs if o is not None], OPS.get(op.kind)
        ports = dict(row.ports) if row is not None else {}
        port = ports.pop("out", None)
        if isinstance(port, Index):
            return [] if any(isinstance(p, Index) for p in ports.values()) else outputs  # those only join integers
        if not isinstance(port, Same):
            return []
        moved = [v for name, p in ports.items() if name == port.port or p == port for v in listed(op.args.get(name))]
        if not any(v.dtype == INT64 for v in moved):
            return outputs[1:]
        return outputs if self._known.issuperset(moved) else []

    def _narrow(self, given: Any) -> Any:
        if isinstance(given, list | tuple):
            return [self._narrow(g) for g in given]
        return replace(given, dtype=INT32) if isinstance(given, Value) and given in self._known else given
