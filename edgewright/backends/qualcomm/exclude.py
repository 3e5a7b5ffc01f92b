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
_MAX_LISTED = 8  # names listed in a warning


class NameExclusions:
    """Excludes operators by name: returns the reason, or None. Nodes may be named as in the exported program or as
    after decomposition; operators as in torch (``aten.add.Tensor``) or in the op table. Records all names that occur,
    to warn about names that match nothing."""

    def __init__(self, nodes: Any = None, operators: Any = None) -> None:
        self.names = {NODES: _names(NODES, nodes), OPERATORS: _names(OPERATORS, operators)}
        self.seen: dict[str, dict[str, None]] = {NODES: {}, OPERATORS: {}}  # in order of appearance

    def __call__(self, op: Op) -> str | None:
        row = OPS.get(op.kind) or OPS.of(op)
        aliases = () if row is None else (row.name, *row.aten)
        names = {NODES: (op.origin.node, *op.origin.exported_nodes), OPERATORS: (op.kind, *aliases)}
        for option, candidates in names.items():
            self.seen[option].update(dict.fromkeys(candidates))
        return next(
            (f"is in {option}" for option, candidates in names.items() if self.names[option] & set(candidates)), None
        )

    def warn_unused(self) -> None:
        """Warn about names that match no operator."""
        for option, names in self.names.items():
            candidates = [name for name in self.seen[option] if option == NODES or name.count(".") > 1]
            for name in sorted(names - self.seen[option].keys()):
                hint = did_you_mean(name, candidates) or f"There are {', '.join(candidates[:_MAX_LISTED])}."
                log.warning("%s: nothing is called %r, so nothing is excluded. %s", option, name, hint)


def _names(option: str, names_arg: Any) -> frozenset[str]:
    items = (
        None
        if names_arg is None or isinstance(names_arg, str) or not hasattr(names_arg, "__iter__")
        else list(names_arg)
    )
    if names_arg is not None and (items is None or not all(isinstance(name, str) for name in items)):
        example = "conv2d" if option == NODES else "aten.relu.default"
        raise UsageError(option, "must be a set of names", value=names_arg, remedy=f'Such as {{"{example}"}}.')
    return frozenset(items or ())
