"""Integers of 64 bits that 32 can hold: places that operators have found, and what only moves them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edgewright.backends.qualcomm.lower import INT32, INT64
from edgewright.backends.qualcomm.rules import listed
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Op, Value
from edgewright.ir.ports import Index, Same


class Places:
    """Which values of a graph are places. It is told of the operators in the order in which they run."""

    def __init__(self) -> None:
        self._known: set[Value] = set()

    def held(self, op: Op) -> Op:
        """An operator as the HTP is given it: places in 32 bits, whether it makes, moves or reads them."""
        self._known |= {o for o in self._made(op) if o.dtype == INT64}
        if self._known.isdisjoint([*op.inputs(), *(o for o in op.outputs if o is not None)]):
            return op
        outputs = [None if o is None else self._narrow(o) for o in op.outputs]
        return replace(op, args={name: self._narrow(given) for name, given in op.args.items()}, outputs=outputs)

    def _made(self, op: Op) -> list[Value]:
        """The results that are places: all of an operator that counts or that moves places, and those beside the
        numbers of one that ranks."""
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
