"""Exclusion of operators by name: ``skip_node_id_set`` and ``skip_node_op_set``."""

from __future__ import annotations

import logging
from typing import Any

from edgewright.errors import UsageError
from edgewright.hints import did_you_mean
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Op

log = logging.getLogger("edgewright.qualcomm")
NODES, OPERATORS = "skip_node_id_set", "skip_node_op_set"
_SHOWN = 8  # names, of those that there are


class Skips:
    """Why an operator is left alone, or None. Nodes are named as in the program that was given, or as they are after
    decomposing; operators as torch names them (``aten.add.Tensor``), or as the op table does. Remembers the names that
    it has met, so that one that is nowhere can be told."""

    def __init__(self, nodes: Any = None, operators: Any = None) -> None:
        self.wanted = {NODES: _names(NODES, nodes), OPERATORS: _names(OPERATORS, operators)}
        self.met: dict[str, dict[str, None]] = {NODES: {}, OPERATORS: {}}  # in their order

    def __call__(self, op: Op) -> str | None:
        row = OPS.get(op.kind) or OPS.of(op)
        known = () if row is None else (row.name, *row.aten)
        names = {NODES: (op.origin.node, *op.origin.given), OPERATORS: (op.kind, *known)}
        for option, found in names.items():
            self.met[option].update(dict.fromkeys(found))
        return next((f"is in {option}" for option, found in names.items() if self.wanted[option] & set(found)), None)

    def tell(self) -> None:
        """Warn of names that no operator has: what they were to keep from the HTP is not kept."""
        for option, wanted in self.wanted.items():
            met = [name for name in self.met[option] if option == NODES or name.count(".") > 1]
            for name in sorted(wanted - self.met[option].keys()):
                hint = did_you_mean(name, met) or f"There are {', '.join(met[:_SHOWN])}."
                log.warning("%s: nothing is called %r, and nothing is left out for it. %s", option, name, hint)


def _names(option: str, given: Any) -> frozenset[str]:
    listed = None if given is None or isinstance(given, str) or not hasattr(given, "__iter__") else list(given)
    if given is not None and (listed is None or not all(isinstance(name, str) for name in listed)):
        example = "conv2d" if option == NODES else "aten.relu.default"
        raise UsageError(option, "must be a set of names", value=given, remedy=f'Such as {{"{example}"}}.')
    return frozenset(listed or ())
