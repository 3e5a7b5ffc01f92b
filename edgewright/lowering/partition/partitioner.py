"""The partitioner every backend's is made of: rows and rules decide, users exclude, a group becomes a blob."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from torch.export import ExportedProgram

from edgewright.backends.table import STATIC, Backend
from edgewright.errors import UsageError
from edgewright.frontend.delegate import LoweredBackendModule
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Graph, Op, Origin, verify
from edgewright.lowering.partition.apply import Application
from edgewright.lowering.partition.exclude import as_exclusion
from edgewright.lowering.partition.report import PartitionReport
from edgewright.lowering.passes import apply
from edgewright.lowering.passes.constant_folding import fold_constants
from edgewright.lowering.passes.qdq_folding import fold_quantization

log = logging.getLogger("edgewright.lowering.partition")


class Partitioner:
    """Base of the backends' partitioners. ``reports`` holds what the last lowering took, by method."""

    backend: Backend
    backend_id: str
    kept: tuple[Any, ...] = ()  # torch operators to leave whole for this backend

    def __init__(self, exclude: Sequence[Any] = (), *, per_op_mode: bool = False, verbose: bool = False) -> None:
        if isinstance(exclude, str) or not isinstance(exclude, Sequence):
            raise UsageError("exclude", "must be a list of exclusions", value=exclude)
        for option, flag in (("per_op_mode", per_op_mode), ("verbose", verbose)):
            if not isinstance(flag, bool):
                raise UsageError(option, "must be True or False", value=flag)
        self.exclude = [as_exclusion(e) for e in exclude]
        self.per_op_mode = per_op_mode
        self.verbose = verbose
        self.reports: dict[str, PartitionReport] = {}

    @classmethod
    def for_target(cls, target: str | None) -> Partitioner:
        """A partitioner with its defaults, for a device that a command line names."""
        if target is not None:
            raise UsageError(
                f"backend {cls.backend.name!r}", "has one kind of device, and takes no target", value=target
            )
        return cls()

    def target(self) -> Any:
        """What rules are asked about; None if the backend has one kind of device only."""
        return None

    def lower(self, group: Graph) -> LoweredBackendModule:
        """The blob of a group."""
        if self.backend.emit is None:
            raise NotImplementedError
        blob, named = self.backend.emit(group)
        return LoweredBackendModule(self.backend_id, blob, {}, named)

    def keep(self, ops: Sequence[Op]) -> bool:
        """False to leave a whole group alone."""
        return True

    def refusals(self, op: Op) -> list[str]:
        """Every reason not to take an operator, as sentences."""
        return [str(r) for r in self.backend.refusals(op, self.target())]

    def partition(self, exported: ExportedProgram, method: str = "forward") -> ExportedProgram:
        """The program with what this backend takes as delegate calls."""
        work = Application(exported, method, self.backend.name)
        excluded = self._excluded(work)
        rows = self.backend.rows.values()
        absorbs = {row.op: row.absorbs for row in rows}
        static = frozenset(row.op for row in rows if STATIC in row.precisions)
        numbers = frozenset(row.op for row in rows if row.numbers)
        folded = fold_quantization(work.graph, OPS, absorbs, excluded.keys(), static, numbers)
        verify(folded)
        apply(folded, lambda graph: fold_constants(graph, OPS))  # weights that the model computes are constant to rules

        def refusals(op: Op) -> list[str]:
            return excluded.get(op.origin) or self.refusals(op)

        done = work.run(folded, refusals, self.lower, single=self.per_op_mode, keep=self.keep)
        self.reports[method] = work.report
        log.info("%s", work.report.verdict)
        if self.verbose:
            print(work.report)
        return done

    def _excluded(self, work: Application) -> dict[Origin, list[str]]:
        """Why operators are left alone by the user, by their origin, which folding keeps."""
        found: dict[Origin, list[str]] = {}
        for op in work.graph.ops if self.exclude else ():
            node = next((work.nodes.get(o) for o in op.outputs if o is not None), None)
            reasons = [why for exclusion in self.exclude if (why := exclusion(op, node))]
            if reasons:
                found[op.origin] = reasons
        return found


def partitioner_of(backend: Backend) -> type[Partitioner]:
    """The partitioner of a backend that needs none of its own: rows, rules and ``emit`` say it all."""
    if backend.emit is None:
        raise UsageError(f"backend {backend.name!r}", "must say how a group becomes a blob (emit)")
    name = f"{backend.name.title().replace('_', '')}Partitioner"
    return type(name, (Partitioner,), {"backend": backend, "backend_id": backend.id, "__doc__": backend.summary})
