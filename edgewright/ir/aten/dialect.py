"""The ATen dialect: graphs as they are imported, and as passes and partitioners see them.

A kind is an overload (``aten.add.Tensor``) or, once operators are matched with the op table, the name of a row
(``add``). Any other operator of torch may occur, because kernels and custom operators have no rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from edgewright.errors import FormatError
from edgewright.ir.aten.ops import OPS
from edgewright.ir.aten.table import OpDef
from edgewright.ir.dialect import Dialect
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.numerics import FLOAT32, Numerics

# Conversions and calls that compilation adds.
_BESIDE_ROWS = ("quantize", "dequantize", "convert", "requantize", "delegate")
_ADDED_ARGUMENTS = ("limits",)  # a clamp that was folded into the operator before it


class AtenDialect(Dialect):
    def __init__(self, name: str, title: str, rows: Mapping[str, OpDef], numerics: Numerics) -> None:
        super().__init__(name, title, rows, numerics)
        self._valid: set[tuple[str, ...]] = set()  # kinds with the names of arguments that ``check_op`` has accepted

    def row(self, kind: str) -> OpDef | None:
        return OPS.row(kind)

    def check_op(self, op: Op, memory: int) -> None:
        names = (op.kind, *op.args)
        if names in self._valid:
            return
        row = OPS.of(op) or OPS.row(op.kind)
        if row is not None:
            self.check_row(op, row, memory)
            if all(entry.when is None for entry in OPS.matching(op.kind)):  # names decide, not values
                self._valid.add(names)
        elif "." not in op.kind and op.kind not in _BESIDE_ROWS and not op.graphs:  # control flow has graphs
            raise FormatError("must be an operator of torch or of the op table", value=op.kind)

    def check_row(self, op: Op, row: Any, memory: int) -> None:
        allowed, required = _arguments(row.name)
        for name in required:
            if name not in op.args:
                raise FormatError("must be present", where=name)
        if allowed is not None and not allowed.issuperset(op.args):
            raise FormatError(f"is no argument of {row.name}", where=min(set(op.args) - allowed))

    def run_op(self, op: Op, arrays: Mapping[Value, Array], numerics: Numerics) -> Sequence[Array]:
        row = OPS.of(op) or OPS[op.kind]
        return row.call({name: arrays.get(a, a) if isinstance(a, Value) else a for name, a in op.args.items()})


@cache
def _arguments(name: str) -> tuple[frozenset[str] | None, tuple[str, ...]]:
    """The names that an operator may have, None for any, and those that it must have."""
    parameters = OPS[name].arguments.values()
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    allowed = None if len(named) < len(parameters) else frozenset((*(p.name for p in named), *_ADDED_ARGUMENTS))
    return allowed, tuple(p.name for p in named if p.default is p.empty)


ATEN = AtenDialect("aten", "ATen", OPS, FLOAT32)
