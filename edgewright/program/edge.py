"""``to_edge`` and ``to_edge_transform_and_lower``: exported models to programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from torch.export import ExportedProgram

from edgewright.errors import UsageError
from edgewright.frontend.plain_tensors import require_buffers
from edgewright.frontend.prepare import prepare
from edgewright.hints import did_you_mean
from edgewright.lowering.kernel_resolution import KernelSet, kernel_set
from edgewright.lowering.partition.partitioner import Partitioner
from edgewright.lowering.partition.report import PartitionReport, merge
from edgewright.program.config import EdgeCompileConfig, ExecutorchBackendConfig
from edgewright.program.methods import Programs, check_methods, methods_by_name
from edgewright.program.passes import Passes, apply_passes, pass_list, tabulate
from edgewright.program.program_manager import ExecutorchProgramManager
from edgewright.program.shared_state import keep_reads_of_state
from edgewright.quantize.affine import affine_operators
from edgewright.quantize.eval_mode import require_inference

__all__ = ["EdgeProgramManager", "ExecutorchProgramManager", "to_edge", "to_edge_transform_and_lower"]


def to_edge(
    programs: Programs,
    constant_methods: Mapping[str, Any] | None = None,
    compile_config: EdgeCompileConfig | None = None,
    generate_etrecord: bool = False,
) -> EdgeProgramManager:
    """Rewrite exported programs to operators that the target's runtime has kernels for.

    ``generate_etrecord`` is accepted for compatibility: ``get_etrecord`` of the program always works.
    """
    return _manager(programs, constant_methods, compile_config)._rewrite()


def to_edge_transform_and_lower(
    programs: Programs,
    transform_passes: Passes | None = None,
    partitioner: Any = None,
    constant_methods: Mapping[str, Any] | None = None,
    compile_config: EdgeCompileConfig | None = None,
    generate_etrecord: bool = False,
) -> EdgeProgramManager:
    """``to_edge``, then the passes, then the partitioners in order of priority: one, a list, or a mapping from methods
    to either. ``generate_etrecord`` as in ``to_edge``."""
    manager = _manager(programs, constant_methods, compile_config)
    if transform_passes:
        manager = manager.transform(transform_passes)
    for chosen in _partitioners(partitioner):
        manager = manager._delegate(chosen)
    return manager._rewrite()


def _manager(
    programs: Programs, constant_methods: Mapping[str, Any] | None, config: EdgeCompileConfig | None
) -> EdgeProgramManager:
    exported = methods_by_name(programs)
    for program in exported.values():
        require_inference(program)
        require_buffers(program)
    manager = EdgeProgramManager(keep_reads_of_state(exported), constant_methods or {}, config or EdgeCompileConfig())
    manager.sources = exported
    return manager


def _partitioners(partitioner: Any) -> list[Any]:
    if partitioner is None:
        return []
    if isinstance(partitioner, Mapping):
        by_method = {name: _partitioners(each) for name, each in partitioner.items()}
        longest = max(map(len, by_method.values()), default=0)
        return [{name: each[rank] for name, each in by_method.items() if rank < len(each)} for rank in range(longest)]
    return list(partitioner) if isinstance(partitioner, Sequence) else [partitioner]


class EdgeProgramManager:
    """Methods rewritten for the target, before emission."""

    def __init__(
        self, programs: dict[str, ExportedProgram], constant_methods: Mapping[str, Any], config: EdgeCompileConfig
    ) -> None:
        self.compile_config = config
        if not isinstance(constant_methods, Mapping):
            remedy = 'Such as {"get_length": 128}.'
            raise UsageError("constant_methods", "must be values by name", value=constant_methods, remedy=remedy)
        self.constant_methods = dict(constant_methods)
        clash = sorted(set(programs) & set(self.constant_methods))
        if clash:
            raise UsageError("constant_methods", "must not repeat names of methods", value=", ".join(clash))
        runtime = config.runtime if isinstance(config.runtime, str) else tuple(config.runtime)
        self.kernels: KernelSet = kernel_set(runtime)
        self._no_decompose = frozenset([*config.preserve_ops, *config._core_aten_ops_exception_list])
        self.partition_reports: dict[str, PartitionReport] = {}  # by method
        self._exported = dict(programs)
        self.sources = self._exported  # the exported programs, before any rewriting

    @cached_property
    def _programs(self) -> dict[str, ExportedProgram]:
        """The rewritten programs, computed on first use: a partitioner gets the originals."""
        return {name: self._prepare(program) for name, program in self._exported.items()}

    def _rewrite(self) -> EdgeProgramManager:
        """Rewrite now, so that errors are raised here; returns self."""
        _ = self._programs
        return self

    def _prepare(self, program: ExportedProgram, preserved: Sequence[Any] = ()) -> ExportedProgram:
        no_decompose = self._no_decompose | set(preserved)
        return prepare(program, self.kernels.takes, no_decompose, strict=self.compile_config._check_ir_validity)

    @property
    def methods(self) -> set[str]:
        return set(self._exported)

    @property
    def config_methods(self) -> set[str]:
        """Names of the constant methods."""
        return set(self.constant_methods)

    def exported_program(self, method_name: str = "forward") -> ExportedProgram:
        if method_name not in self._programs:
            names = sorted(self._programs)
            raise UsageError(f"method {method_name!r}", f"must be one of {', '.join(names)}",
                             remedy=did_you_mean(method_name, names))  # fmt: skip
        return self._programs[method_name]

    def transform(self, passes: Passes, compile_config: EdgeCompileConfig | None = None) -> EdgeProgramManager:
        """A manager with ``passes`` applied: functions of a graph module that modify it in place or return another (or
        a PassResult). A mapping assigns passes to each method."""
        config = compile_config or self.compile_config
        check_methods("passes", passes, self.methods)
        changed = {}
        for name, program in self._programs.items():
            selected = passes.get(name, ()) if isinstance(passes, Mapping) else pass_list(passes)
            changed[name] = apply_passes(program, selected)
        manager = EdgeProgramManager(changed, self.constant_methods, config)
        manager.partition_reports = dict(self.partition_reports)
        manager.sources = self.sources
        return manager._rewrite()

    def to_backend(self, partitioner: Any) -> EdgeProgramManager:
        """Delegate what a backend supports: a partitioner, or a mapping from methods to them."""
        return self._delegate(partitioner)._rewrite()

    def _delegate(self, partitioner: Any) -> EdgeProgramManager:
        chosen = partitioner if isinstance(partitioner, Mapping) else dict.fromkeys(self._exported, partitioner)
        check_methods("partitioner", chosen, self.methods)
        changed = dict(self._exported)
        for name, each in chosen.items():
            if not isinstance(each, Partitioner):
                remedy = "Backends come with their own partitioner classes; pass one of those."
                raise UsageError("partitioner", "must be a partitioner of an Edgewright backend",
                                 value=type(each).__name__, remedy=remedy)  # fmt: skip
            preserved = [*each.kept, *affine_operators()]
            changed[name] = each.partition(self._prepare(self._exported[name], preserved), name)
        manager = EdgeProgramManager(changed, self.constant_methods, self.compile_config)
        reports = {name: merge(self.partition_reports.get(name), each.reports[name]) for name, each in chosen.items()}
        manager.partition_reports = {**self.partition_reports, **reports}
        manager.sources = self.sources
        return manager

    def to_executorch(self, config: ExecutorchBackendConfig | None = None) -> ExecutorchProgramManager:
        """Plan memory and emit the program."""
        config = config or ExecutorchBackendConfig()
        manager = self.transform(config.passes) if config.passes else self
        return ExecutorchProgramManager(manager, config)

    def __str__(self) -> str:
        return "\n\n".join(f"{name}\n{tabulate(p.graph)}" for name, p in self._programs.items())
