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
from edgewright.program.methods import Programs, check_methods, named
from edgewright.program.passes import Passes, pass_list, tabulate, transformed
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
    """Rewrite exported programs into operators that the target's runtime has kernels for.

    ``generate_etrecord`` is there for scripts that give it: ``get_etrecord`` of the program works anyway.
    """
    return _manager(programs, constant_methods, compile_config)._ready()


def to_edge_transform_and_lower(
    programs: Programs,
    transform_passes: Passes | None = None,
    partitioner: Any = None,
    constant_methods: Mapping[str, Any] | None = None,
    compile_config: EdgeCompileConfig | None = None,
    generate_etrecord: bool = False,
) -> EdgeProgramManager:
    """``to_edge``, then your passes, then the partitioners in order of priority: one, a list, or a mapping of methods
    to one or a list. ``generate_etrecord`` as in ``to_edge``."""
    manager = _manager(programs, constant_methods, compile_config)
    if transform_passes:
        manager = manager.transform(transform_passes)
    for chosen in _partitioners(partitioner):
        manager = manager._delegated(chosen)
    return manager._ready()


def _manager(
    programs: Programs, constant_methods: Mapping[str, Any] | None, config: EdgeCompileConfig | None
) -> EdgeProgramManager:
    found = named(programs)
    for program in found.values():
        require_inference(program)
        require_buffers(program)
    made = EdgeProgramManager(keep_reads_of_state(found), constant_methods or {}, config or EdgeCompileConfig())
    made.sources = found
    return made


def _partitioners(partitioner: Any) -> list[Any]:
    if partitioner is None:
        return []
    if isinstance(partitioner, Mapping):
        listed = {name: _partitioners(each) for name, each in partitioner.items()}
        most = max(map(len, listed.values()), default=0)
        return [{name: each[rank] for name, each in listed.items() if rank < len(each)} for rank in range(most)]
    return list(partitioner) if isinstance(partitioner, Sequence) else [partitioner]


class EdgeProgramManager:
    """Methods rewritten for the target, before they become a file."""

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
        self._kept = frozenset([*config.preserve_ops, *config._core_aten_ops_exception_list])
        self.partition_reports: dict[str, PartitionReport] = {}  # what backends took, by method
        self._given = dict(programs)
        self.sources = self._given  # as the user gave them, whatever became of them since

    @cached_property
    def _programs(self) -> dict[str, ExportedProgram]:
        """Rewritten when first needed: a backend is offered the programs as they came."""
        return {name: self._prepare(program) for name, program in self._given.items()}

    def _ready(self) -> EdgeProgramManager:
        """Rewrite now what is not rewritten yet, so that errors come here; gives itself."""
        _ = self._programs
        return self

    def _prepare(self, program: ExportedProgram, whole: Sequence[Any] = ()) -> ExportedProgram:
        kept = self._kept | set(whole)
        return prepare(program, self.kernels.takes, kept, strict=self.compile_config._check_ir_validity)

    @property
    def methods(self) -> set[str]:
        return set(self._given)

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
        """A manager whose graphs went through ``passes``: functions of a graph module that change it in place or
        return another (or a PassResult). A mapping gives each method passes of its own."""
        config = compile_config or self.compile_config
        check_methods("passes", passes, self.methods)
        changed = {}
        for name, program in self._programs.items():
            chosen = passes.get(name, ()) if isinstance(passes, Mapping) else pass_list(passes)
            changed[name] = transformed(program, chosen)
        made = EdgeProgramManager(changed, self.constant_methods, config)
        made.partition_reports = dict(self.partition_reports)
        made.sources = self.sources
        return made._ready()

    def to_backend(self, partitioner: Any) -> EdgeProgramManager:
        """Give what a backend takes to it: a partitioner, or a mapping of methods to partitioners."""
        return self._delegated(partitioner)._ready()

    def _delegated(self, partitioner: Any) -> EdgeProgramManager:
        chosen = partitioner if isinstance(partitioner, Mapping) else dict.fromkeys(self._given, partitioner)
        check_methods("partitioner", chosen, self.methods)
        changed = dict(self._given)
        for name, each in chosen.items():
            if not isinstance(each, Partitioner):
                remedy = "Backends come with their own partitioner classes; pass one of those."
                raise UsageError("partitioner", "must be a partitioner of an Edgewright backend",
                                 value=type(each).__name__, remedy=remedy)  # fmt: skip
            whole = [*each.kept, *affine_operators()]
            changed[name] = each.partition(self._prepare(self._given[name], whole), name)
        made = EdgeProgramManager(changed, self.constant_methods, self.compile_config)
        fresh = {name: merge(self.partition_reports.get(name), each.reports[name]) for name, each in chosen.items()}
        made.partition_reports = {**self.partition_reports, **fresh}
        made.sources = self.sources
        return made

    def to_executorch(self, config: ExecutorchBackendConfig | None = None) -> ExecutorchProgramManager:
        """Plan memory and make the program."""
        config = config or ExecutorchBackendConfig()
        manager = self.transform(config.passes) if config.passes else self
        return ExecutorchProgramManager(manager, config)

    def __str__(self) -> str:
        return "\n\n".join(f"{name}\n{tabulate(p.graph)}" for name, p in self._programs.items())
