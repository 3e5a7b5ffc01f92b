"""User exclusions from delegation: by operator, module, name, or a torch.fx support check."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx

from edgewright.errors import UsageError
from edgewright.hints import did_you_mean
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Op

log = logging.getLogger("edgewright.lowering.partition")
_MAX_LISTED = 8  # names listed in a warning
Exclusion = Callable[[Op, "fx.Node | None"], "str | None"]


class Excluder:
    """Base of the exclusions: ``reason`` returns why an operator is excluded, or None if it is not."""

    def __init__(self, *names: Any, exact: bool = True) -> None:
        if not names:
            raise UsageError(type(self).__name__, "must name what to exclude")
        if not isinstance(exact, bool):
            raise UsageError(f"{type(self).__name__}(exact)", "must be True or False", value=exact)
        self.names = tuple(str(name) for name in names)
        self.exact = exact
        self.subject = type(self).__name__  # in reasons and warnings
        self._matched: set[str] = set()
        self._candidates: dict[str, None] = {}  # all names that occur, in order

    def matches(self, *candidates: str) -> bool:
        """True if a name equals a candidate or, unless ``exact``, is part of one."""
        present = [c for c in candidates if c]
        self._candidates.update(dict.fromkeys(present))
        found = {n for n in self.names if any(n == c or (not self.exact and n in c) for c in present)}
        self._matched |= found
        return bool(found)

    def warn_unused(self) -> None:
        """Warn about names that match nothing, as they exclude nothing."""
        for name in dict.fromkeys(self.names):
            if name not in self._matched:
                self._matched.add(name)  # one warning, however often a model is lowered
                warn_unknown(self.subject, name, self._candidates)

    def reason(self, op: Op, node: fx.Node | None) -> str | None:
        raise NotImplementedError

    def __call__(self, op: Op, node: fx.Node | None = None) -> str | None:
        return self.reason(op, node)


def warn_unknown(subject: str, name: str, candidates: Iterable[str]) -> None:
    """Warn that a name excludes nothing, with the nearest of those that occur."""
    names = list(candidates)
    hint = did_you_mean(name, names) or f"There are {', '.join(names[:_MAX_LISTED])}."
    log.warning("%s: nothing is called %r, so nothing is excluded. %s", subject, name, hint)


def node_names(op: Op, node: fx.Node | None) -> tuple[str, ...]:
    """The names of a node: in the exported program, and after decomposition here and in ExecuTorch, where the
    operator's namespace comes first (``aten_relu_default_1``)."""
    if node is None or not isinstance(node.target, torch._ops.OpOverload):
        return (op.origin.node, *op.origin.exported_nodes)
    return (op.origin.node, *op.origin.exported_nodes, node.name, f"{node.target.namespace}_{node.name}")


class DontPartition(Excluder):
    """Exclude operators, as torch operators or by name (``conv2d``, ``aten.add``, ``aten.add.Tensor``).

    ``exact=False`` matches parts of names.
    """

    def reason(self, op: Op, node: fx.Node | None) -> str | None:
        entry = OPS.get(op.kind) or OPS.of(op)
        packet = op.kind.rpartition(".")[0] if op.kind.count(".") > 1 else ""
        names = (
            (entry.name, *entry.aten)
            if entry is not None and self.exact
            else (entry.name,)
            if entry is not None
            else ()
        )
        hit = self.matches(op.kind, packet, *names)  # max_pool2d has become max_pool2d_with_indices by now
        return "excluded by DontPartition" if hit else None


class DontPartitionModule(Excluder):
    """Exclude modules by path (``features.3``), class, or class name.

    ``module_name`` is a class name, ``instance_name`` a path. ``exact=False`` matches parts of names.
    """

    def __init__(
        self, *modules: Any, module_name: str | None = None, instance_name: str | None = None, exact: bool = True
    ) -> None:
        names = [m.__name__ if isinstance(m, type) else m for m in modules]
        super().__init__(*names, *(n for n in (module_name, instance_name) if n is not None), exact=exact)

    def reason(self, op: Op, node: fx.Node | None) -> str | None:
        steps = op.origin.module.split(".")
        paths = [".".join(steps[: i + 1]) for i in range(len(steps))]
        return "excluded by DontPartitionModule" if self.matches(*paths, *op.origin.classes) else None


class DontPartitionName(Excluder):
    """Exclude nodes by name: of the exported program, or of ExecuTorch's (``aten_relu_default_1``). ``exact=False``
    matches parts of names."""

    def reason(self, op: Op, node: fx.Node | None) -> str | None:
        results = [o.name for o in op.outputs if o is not None]
        return "excluded by DontPartitionName" if self.matches(*node_names(op, node), *results) else None


def as_exclusion(exclusion: Any) -> Exclusion:
    """An exclusion from one of ours, a function of an operator, or an ``OperatorSupportBase`` (what it rejects)."""
    if isinstance(exclusion, Excluder):
        return exclusion
    check = getattr(exclusion, "is_node_supported", None)
    if check is not None and not isinstance(exclusion, type):
        reason = f"excluded by {type(exclusion).__name__}"
        return lambda op, node: reason if node is not None and not check({}, node) else None
    if callable(exclusion) and not isinstance(exclusion, type):
        return lambda op, node: exclusion(op)
    rule = "must hold DontPartition(...), DontPartitionModule(...), DontPartitionName(...), an OperatorSupportBase"
    raise UsageError("exclude", f"{rule} or a function of an operator", value=exclusion)
