"""Exclusion of operators by name: ``skip_node_id_set`` and ``skip_node_op_set``."""

from __future__ import annotations

from typing import Any

from torch import fx

from edgewright.errors import UsageError
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Op
from edgewright.lowering.partition.exclude import Excluder, node_names, warn_unknown

NODES, OPERATORS = "skip_node_id_set", "skip_node_op_set"


class NameExclusions(Excluder):
    """Excludes operators by name: returns the reason, or None. Nodes may be named as in the exported program, as after
    decomposition, or as in ExecuTorch; operators as in torch (``aten.add.Tensor``) or in the op table. Records the
    names that occur, to warn about those that match nothing."""

    def __init__(self, nodes: Any = None, operators: Any = None) -> None:
        self.sets = {NODES: _names(NODES, nodes), OPERATORS: _names(OPERATORS, operators)}
        self._warned: set[str] = set()
        self.seen: dict[str, dict[str, None]] = {NODES: {}, OPERATORS: {}}  # in order of appearance

    def reason(self, op: Op, node: fx.Node | None) -> str | None:
        row = OPS.get(op.kind) or OPS.of(op)
        aliases = () if row is None else (row.name, *row.aten)
        names = {NODES: node_names(op, node), OPERATORS: (op.kind, *aliases)}
        for option, candidates in names.items():
            self.seen[option].update(dict.fromkeys(candidates))
        return next(
            (f"is in {option}" for option, candidates in names.items() if self.sets[option] & set(candidates)), None
        )

    def warn_unused(self) -> None:
        """Warn about names that match no operator."""
        for option, names in self.sets.items():
            candidates = [name for name in self.seen[option] if option == NODES or name.count(".") > 1]
            for name in sorted(names - self.seen[option].keys() - self._warned):
                self._warned.add(name)
                warn_unknown(option, name, candidates)


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
