"""What users keep from a backend: by operator, by module, by name, or by a check of torch.fx."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from edgewright.errors import UsageError
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Op

Exclusion = Callable[[Op, "fx.Node | None"], "str | None"]


class Excluder:
    """Base of the exclusions: ``why`` gives the reason an operator is left alone, or None."""

    def __init__(self, *names: Any, exact: bool = True) -> None:
        if not names:
            raise UsageError(type(self).__name__, "must name what to leave alone")
        if not isinstance(exact, bool):
            raise UsageError(f"{type(self).__name__}(exact)", "must be True or False", value=exact)
        self.names = tuple(str(name) for name in names)
        self.exact = exact

    def found(self, *candidates: str) -> bool:
        """True if a name is one of the candidates or, unless ``exact``, a part of one."""
        return any(n == c or (not self.exact and n in c) for n in self.names for c in candidates if c)

    def why(self, op: Op) -> str | None:
        raise NotImplementedError

    def __call__(self, op: Op, node: fx.Node | None = None) -> str | None:
        return self.why(op)


class DontPartition(Excluder):
    """Leave these operators alone: as torch operators or by name (``conv2d``, ``aten.add``, ``aten.add.Tensor``).

    ``exact=False`` matches parts of names.
    """

    def why(self, op: Op) -> str | None:
        row = OPS.get(op.kind) or OPS.of(op)
        packet = op.kind.rpartition(".")[0] if op.kind.count(".") > 1 else ""
        alike = (row.name, *row.aten) if row is not None and self.exact else (row.name,) if row is not None else ()
        hit = self.found(op.kind, packet, *alike)  # max_pool2d has become max_pool2d_with_indices by now
        return "excluded by DontPartition" if hit else None


class DontPartitionModule(Excluder):
    """Leave alone what is in these modules: by path (``features.3``), class, or name of a class.

    ``module_name`` is the name of a class, ``instance_name`` a path. ``exact=False`` matches parts of names.
    """

    def __init__(
        self, *modules: Any, module_name: str | None = None, instance_name: str | None = None, exact: bool = True
    ) -> None:
        given = [m.__name__ if isinstance(m, type) else m for m in modules]
        super().__init__(*given, *(n for n in (module_name, instance_name) if n is not None), exact=exact)

    def why(self, op: Op) -> str | None:
        steps = op.origin.module.split(".")
        paths = [".".join(steps[: i + 1]) for i in range(len(steps))]
        return "excluded by DontPartitionModule" if self.found(*paths, *op.origin.classes) else None


class DontPartitionName(Excluder):
    """Leave alone the nodes of these names. ``exact=False`` matches parts of names."""

    def why(self, op: Op) -> str | None:
        made = [o.name for o in op.outputs if o is not None]
        return "excluded by DontPartitionName" if self.found(op.origin.node, *made) else None


def as_exclusion(given: Any) -> Exclusion:
    """An exclusion: ours, a function of an operator, or any ``OperatorSupportBase`` (what it denies is left alone)."""
    if isinstance(given, Excluder):
        return given
    check = getattr(given, "is_node_supported", None)
    if check is not None and not isinstance(given, type):
        reason = f"excluded by {type(given).__name__}"
        return lambda op, node: reason if node is not None and not check({}, node) else None
    if callable(given) and not isinstance(given, type):
        return lambda op, node: given(op)
    rule = "must hold DontPartition(...), DontPartitionModule(...), DontPartitionName(...), an OperatorSupportBase"
    raise UsageError("exclude", f"{rule} or a function of an operator", value=given)
