"""The partitioner every backend's is made of: rows and rules decide, users exclude, a group becomes a blob."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from torch.export import ExportedProgram

from edgewright.backends.table import Backend
from edgewright.errors import UsageError
from edgewright.frontend.delegate import LoweredBackendModule
from edgewright.ir.graph import Graph, Op
from edgewright.ir.opset import OPS
from edgewright.partition.apply import Application
from edgewright.partition.report import PartitionReport
from edgewright.passes.quantization import fold_quantization

log = logging.getLogger("edgewright.partition")

Exclusion = Callable[[Op], "str | None"]


def DontPartition(*operators: Any) -> Exclusion:  # noqa: N802  (a name users know)
    """Leave these operators alone: by name (``conv2d``, ``aten.add.Tensor``) or as torch operators."""
    names = {str(o) for o in operators}

    def why(op: Op) -> str | None:
        row = OPS.get(op.kind)
        listed = op.kind in names or (row is not None and not names.isdisjoint(row.aten))
        return "excluded by DontPartition" if listed else None

    return why


def DontPartitionModule(*modules: Any) -> Exclusion:  # noqa: N802
    """Leave alone what is in modules of these paths or classes."""
    paths = {m for m in modules if isinstance(m, str)}

    def why(op: Op) -> str | None:
        path = op.origin.module
        inside = any(path == p or path.startswith(p + ".") for p in paths)
        typed = any(cls in op.origin.classes for cls in (m.__name__ for m in modules if isinstance(m, type)))
        return "excluded by DontPartitionModule" if inside or typed else None

    return why


def DontPartitionName(*nodes: str) -> Exclusion:  # noqa: N802
    """Leave alone the nodes of these names."""

    def why(op: Op) -> str | None:
        found = {op.origin.node, *(o.name for o in op.outputs if o is not None)} & set(nodes)
        return "excluded by DontPartitionName" if found else None

    return why


class Partitioner:
    """Base of the backends' partitioners. ``reports`` holds what the last lowering took, by method."""

    backend: Backend
    backend_id: str
    kept: tuple[Any, ...] = ()  # torch operators to leave whole for this backend

    def __init__(self, exclude: Sequence[Any] = (), *, per_op_mode: bool = False, verbose: bool = False) -> None:
        self.exclude = [_exclusion(e) for e in exclude]
        self.per_op_mode = per_op_mode
        self.verbose = verbose
        self.reports: dict[str, PartitionReport] = {}

    def target(self) -> Any:
        """What rules are asked about; None if the backend has one kind of device only."""
        return None

    def lower(self, group: Graph) -> LoweredBackendModule:
        """The blob of a group."""
        raise NotImplementedError

    def keep(self, ops: Sequence[Op]) -> bool:
        """False to leave a whole group alone."""
        return True

    def refusals(self, op: Op) -> list[str]:
        """Every reason not to take an operator, as sentences."""
        excluded = [why for exclusion in self.exclude if (why := exclusion(op))]
        return excluded or [str(r) for r in self.backend.refusals(op, self.target())]

    def partition(self, exported: ExportedProgram, method: str = "forward") -> ExportedProgram:
        """The program with what this backend takes as delegate calls."""
        work = Application(exported, method, self.backend.name)
        absorbs = {row.op: row.absorbs for row in self.backend.rows.values()}
        folded = fold_quantization(work.graph, OPS, absorbs)
        done = work.run(folded, self.refusals, self.lower, single=self.per_op_mode, keep=self.keep)
        self.reports[method] = work.report
        (print if self.verbose else log.info)(str(work.report))
        return done


def _exclusion(given: Any) -> Exclusion:
    """An exclusion of ours, or any ``OperatorSupportBase`` of torch.fx, which excludes what it supports."""
    if hasattr(given, "is_node_supported"):
        rule = "takes DontPartition, DontPartitionModule, DontPartitionName or a function of an Op"
        raise UsageError("exclude", rule, value=type(given).__name__)
    if not callable(given):
        raise UsageError("exclude", "must hold functions of an operator", value=given)
    chosen: Exclusion = given
    return chosen
