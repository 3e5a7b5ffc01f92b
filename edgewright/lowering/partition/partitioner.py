"""Base partitioner: a backend's rows and rules select operators, users exclude some, and each group becomes a blob."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import fx
from torch.export import ExportedProgram

from edgewright.backends.table import STATIC, Backend
from edgewright.errors import UsageError
from edgewright.formats.schema import CompileSpec
from edgewright.frontend.affine import affine_operators
from edgewright.frontend.delegate import LoweredBackendModule
from edgewright.frontend.prepare import prepare
from edgewright.frontend.reduce_rank import reduce_rank
from edgewright.ir.aten.dialect import ATEN
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Graph, Op, Origin
from edgewright.ir.verify import verify
from edgewright.lowering.kernel_resolution import composites, kernel_set
from edgewright.lowering.partition.apply import Application
from edgewright.lowering.partition.exclude import Excluder, as_exclusion
from edgewright.lowering.partition.report import PartitionReport
from edgewright.lowering.passes import apply
from edgewright.lowering.passes.constant_folding import fold_constants
from edgewright.lowering.passes.qdq_folding import fold_quantization

log = logging.getLogger("edgewright.lowering.partition")


class DelegationSpec(NamedTuple):
    """The backend of a partition, and its compile specs."""

    backend_id: str
    compile_specs: list[CompileSpec]


@dataclass
class PartitionResult:
    """A program whose nodes are tagged by partition, and the backend of each tag; named as in ExecuTorch."""

    tagged_exported_program: ExportedProgram
    partition_tags: dict[str, DelegationSpec]


class Partitioner:
    """Base of the backends' partitioners. ``reports``: results of the last lowering, by method. ``runtime``: what the
    program will run in, as lowering sets it."""

    backend: Backend
    runtime: str = "wheel"

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
        """A partitioner with default options, for a device named on the command line."""
        if target is not None:
            raise UsageError(
                f"backend {cls.backend.name!r}", "has one kind of device, and takes no target", value=target
            )
        return cls()

    @classmethod
    def for_simulation(cls, target: str | None) -> Partitioner:
        """For a program that runs on the host only. Backends with ``BackendInfo.simulates`` override it."""
        raise UsageError(f"backend {cls.backend.name!r}", "cannot compile for simulation only")

    @classmethod
    def for_spec(cls, spec: Any, *, simulate_only: bool = False) -> Partitioner:
        """For a user's compile spec. Backends with ``BackendInfo.read_spec`` override it."""
        raise UsageError(f"backend {cls.backend.name!r}", "has no compile spec", value=type(spec).__name__)

    def simulate(self) -> None:
        """Compile for the host only from now on, if the backend can (``BackendInfo.simulates``)."""

    def for_inspection(self) -> Partitioner:
        """This partitioner for a program with intermediate results as outputs, which runs a few times on the host.

        Backends whose compiler spends its time on memory of no use there override it.
        """
        return self

    def target(self) -> Any:
        """The argument of rules; None if the backend has one kind of device only."""
        return None

    def lower(self, group: Graph) -> LoweredBackendModule:
        """Lower a group to a blob."""
        if self.backend.emit is None:
            raise NotImplementedError
        blob, named, *twin = self.backend.emit(group)
        return LoweredBackendModule(self.backend.id, blob, {}, named, twin[0] if twin else None)

    @property
    def no_decompose(self) -> frozenset[Any]:
        """The torch operators that are not decomposed for this backend."""
        return composites(self.backend)

    def accepts_group(self, ops: Sequence[Op]) -> bool:
        """False to reject an entire group: one of trivial operators alone is left on the CPU."""
        rows = [self.backend.rows.get(op.kind) for op in ops]
        return any(row is None or not row.is_trivial for row in rows)

    def rejections(self, op: Op) -> list[str]:
        """All reasons not to delegate an operator, as sentences."""
        return [str(r) for r in self.backend.rejections(op, self.target())]

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[Any], Callable[[fx.Node], bool] | None]:
        """ExecuTorch's form of ``no_decompose``: the operators of a program that stay as they are, and no filter."""
        called = {node.target for node in ep.graph.nodes if node.op == "call_function"}
        return sorted(self.no_decompose & called, key=str), None

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """What would be delegated, without compiling it: a program whose nodes are tagged by partition
        (``meta["delegation_tag"]``), as in ExecuTorch. ``to_backend`` lowers."""
        preserved = self.no_decompose.union(affine_operators())
        prepared = self.rewrite(prepare(exported_program, kernel_set(self.runtime).supports, preserved, strict=False))
        application, folded, rejections = self._match(prepared, "forward")
        tags = application.tag(folded, rejections, single=self.per_op_mode, accepts_group=self.accepts_group)
        self.reports["forward"] = application.report
        specs = [CompileSpec(key=key, value=value) for key, value in self.program_specs().items()]
        return PartitionResult(prepared, {tag: DelegationSpec(self.backend.id, specs) for tag in tags})

    @property
    def name_exclusions(self) -> list[Excluder]:
        """The exclusions by name, which may match nothing."""
        return [exclusion for exclusion in self.exclude if isinstance(exclusion, Excluder)]

    def program_specs(self) -> Mapping[str, bytes]:
        """The compile specs of every partition in the file."""
        return {}

    def rewrite(self, exported: ExportedProgram) -> ExportedProgram:
        """A program as the backend needs it, before operators are matched."""
        return exported

    def delegate(self, exported: ExportedProgram, method: str = "forward") -> ExportedProgram:
        """The program with the supported operators as delegate calls."""
        application, folded, rejections = self._match(self.rewrite(exported), method)
        delegated = application.run(
            folded, rejections, self.lower, single=self.per_op_mode, accepts_group=self.accepts_group
        )
        self.reports[method] = application.report
        log.info("%s", application.report.verdict)
        if self.verbose:
            print(application.report)
        return delegated

    def _match(
        self, exported: ExportedProgram, method: str
    ) -> tuple[Application, Graph, Callable[[Op], Sequence[str]]]:
        """The program with quantization folded into its operators, and the reasons not to delegate each."""
        if self.backend.max_rank is not None:
            reduce_rank(exported.graph_module, self.backend.max_rank)
        application = Application(exported, method, self.backend.name)
        excluded = self._exclusion_reasons(application)
        rows = self.backend.rows.values()
        absorbs = {row.op: row.absorbs for row in rows}
        static = frozenset(row.op for row in rows if STATIC in row.precisions)
        numbers = frozenset(row.op for row in rows if row.numbers)
        folded = fold_quantization(application.graph, OPS, absorbs, excluded.keys(), static, numbers)
        verify(folded, ATEN)
        apply(folded, lambda graph: fold_constants(graph, OPS))  # so that rules see computed weights as constants
        return application, folded, lambda op: excluded.get(op.origin) or self.rejections(op)

    def _exclusion_reasons(self, application: Application) -> dict[Origin, list[str]]:
        """User exclusions by operator origin, which folding preserves."""
        reasons_by_origin: dict[Origin, list[str]] = {}
        for op in application.graph.ops if self.exclude else ():
            node = next((application.nodes.get(o) for o in op.outputs if o is not None), None)
            reasons = [reason for exclusion in self.exclude if (reason := exclusion(op, node))]
            if reasons:
                reasons_by_origin[op.origin] = reasons
        return reasons_by_origin


def partitioner_of(backend: Backend) -> type[Partitioner]:
    """The partitioner class of a backend without a custom one: rows, rules and ``emit`` define it."""
    if backend.emit is None:
        raise UsageError(f"backend {backend.name!r}", "must say how a group becomes a blob (emit)")
    name = f"{backend.name.title().replace('_', '')}Partitioner"
    return type(name, (Partitioner,), {"backend": backend, "__doc__": backend.info.summary})
