"""The program managers: exported models to rewritten and delegated methods, and those to one program in a file.

``to_edge`` and ``to_edge_transform_and_lower`` return an ``EdgeProgramManager``, whose methods are exported programs of
supported operators and delegate calls. Its ``to_executorch`` emits them: an ``ExecutorchProgramManager``.
"""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import torch
from torch.export import ExportedProgram

from edgewright.errors import UsageError
from edgewright.formats import schema
from edgewright.formats.flatbuffer import Buffer
from edgewright.formats.layer_table import MethodLayers
from edgewright.formats.ptd import PtdEntry, write_data
from edgewright.formats.pte_writer import program_chunks
from edgewright.formats.twin_writer import TWIN_KEY
from edgewright.frontend.affine import affine_operators
from edgewright.frontend.buffers import require_buffers
from edgewright.frontend.importer import import_graph
from edgewright.frontend.prepare import prepare
from edgewright.hints import did_you_mean
from edgewright.lowering.kernel_resolution import KernelSet, kernel_set
from edgewright.lowering.partition.partitioner import Partitioner
from edgewright.lowering.partition.report import PartitionReport, merge
from edgewright.lowering.partition.simulation import is_simulate_only
from edgewright.program import manifest
from edgewright.program.assemble import add_layers, add_named_data, assemble
from edgewright.program.config import EdgeCompileConfig, ExecutorchBackendConfig
from edgewright.program.constants import ConstantPool
from edgewright.program.delegates import DelegatePool
from edgewright.program.emit import Emitter
from edgewright.program.external import DEFAULT_TAG, external_tag, training_methods
from edgewright.program.layout import assign_dim_orders
from edgewright.program.methods import Programs, check_methods, constant_plan, encode_structure, methods_by_name
from edgewright.program.passes import Passes, apply_passes, pass_list, tabulate
from edgewright.program.plan_builder import EmitOptions
from edgewright.program.shared_state import SharedLayout, keep_reads_of_state, shared_layout
from edgewright.program.wide_accumulation import widen_accumulation
from edgewright.quantize.model_checks import require_inference

if TYPE_CHECKING:
    from edgewright.program.etrecord import ETRecord

log = logging.getLogger("edgewright.program")
_LARGE = 1 << 28  # bytes from which a program is written in pieces, and mapped to be run


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
    for by_method in _partitioners(partitioner):
        manager = manager._delegate(by_method)
    manager._warn_empty()
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
        by_method = {name: _partitioners(ranked) for name, ranked in partitioner.items()}
        longest = max(map(len, by_method.values()), default=0)
        return [
            {name: ranked[rank] for name, ranked in by_method.items() if rank < len(ranked)} for rank in range(longest)
        ]
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
        self.kernels: KernelSet = kernel_set(config.runtime)
        self._no_decompose = frozenset([*config.preserve_ops, *config._core_aten_ops_exception_list])
        self.partition_reports: dict[str, PartitionReport] = {}  # by method
        self.quantized_io: Mapping[str, Mapping[str, Any]] = {}  # of integer inputs and outputs, for the manifest
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
        options: Any = {"strict": self.compile_config._check_ir_validity, "remedy": self.kernels.remedy}
        return prepare(program, self.kernels.supports, no_decompose, pack_embeddings=not preserved, **options)

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
        transformed = {}
        for name, program in self._programs.items():
            selected = passes.get(name, ()) if isinstance(passes, Mapping) else pass_list(passes)
            transformed[name] = apply_passes(program, selected)
        manager = EdgeProgramManager(transformed, self.constant_methods, config)
        manager.partition_reports = dict(self.partition_reports)
        manager.sources = self.sources
        return manager._rewrite()

    def to_backend(self, partitioner: Any) -> EdgeProgramManager:
        """Delegate what a backend supports: a partitioner, or a mapping from methods to them."""
        manager = self._delegate(partitioner)
        manager._warn_empty()
        return manager._rewrite()

    def _delegate(self, partitioner: Any) -> EdgeProgramManager:
        by_method = partitioner if isinstance(partitioner, Mapping) else dict.fromkeys(self._exported, partitioner)
        check_methods("partitioner", by_method, self.methods)
        lowered = dict(self._exported)
        for name, method_partitioner in by_method.items():
            if not isinstance(method_partitioner, Partitioner):
                remedy = "Backends come with their own partitioner classes; pass one of those."
                if isinstance(method_partitioner, type) and issubclass(method_partitioner, Partitioner):
                    remedy = f"Pass an instance of the class: {method_partitioner.__name__}(...)."
                raise UsageError("partitioner", "must be a partitioner of an Edgewright backend",
                                 value=type(method_partitioner).__name__, remedy=remedy)  # fmt: skip
            preserved = [*method_partitioner.no_decompose, *affine_operators()]
            method_partitioner.runtime = self.kernels.name
            if is_simulate_only():
                method_partitioner.simulate()
            lowered[name] = method_partitioner.delegate(self._prepare(self._exported[name], preserved), name)
        for exclusion in {e: None for p in by_method.values() for e in p.name_exclusions}:
            exclusion.warn_unused()
        manager = EdgeProgramManager(lowered, self.constant_methods, self.compile_config)
        reports = {
            name: merge(self.partition_reports.get(name), method_partitioner.reports[name])
            for name, method_partitioner in by_method.items()
        }
        manager.partition_reports = {**self.partition_reports, **reports}
        manager.sources = self.sources
        return manager

    def _warn_empty(self) -> None:
        """Warn about methods of which nothing is delegated, with the reason."""
        for report in self.partition_reports.values():
            if report.nothing_delegated:
                log.warning("%s", report.nothing_delegated)

    def to_executorch(self, config: ExecutorchBackendConfig | None = None) -> ExecutorchProgramManager:
        """Plan memory and emit the program."""
        config = config or ExecutorchBackendConfig()
        manager = self.transform(config.passes) if config.passes else self
        return ExecutorchProgramManager(manager, config)

    def __str__(self) -> str:
        return "\n\n".join(f"{name}\n{tabulate(p.graph)}" for name, p in self._programs.items())


class ExecutorchProgramManager:
    """A finished program and its external data."""

    def __init__(self, edge: EdgeProgramManager, config: ExecutorchBackendConfig) -> None:
        self._edge = edge
        self.config = config
        self._constants = ConstantPool(config.constant_tensor_alignment or 16)
        self._states = ConstantPool(1)
        self._blobs = DelegatePool()
        self.instruction_sources: dict[str, list[tuple[str, ...]]] = {}  # by method: nodes of the exported program
        self._layers: dict[str, MethodLayers] = {}
        check_methods("memory_planning_pass", config.memory_planning_pass, edge.methods)
        self.executorch_program = self._build()
        self._buffer: bytes | None = None

    @property
    def methods(self) -> set[str]:
        return self._edge.methods

    @property
    def config_methods(self) -> set[str]:
        return self._edge.config_methods

    def exported_program(self, method_name: str = "forward") -> ExportedProgram:
        return self._edge.exported_program(method_name)

    @property
    def partition_reports(self) -> dict[str, PartitionReport]:
        """What is delegated, and why not more, by method."""
        return self._edge.partition_reports

    @property
    def buffer(self) -> bytes:
        """The file's bytes."""
        if self._buffer is None:
            self._buffer = b"".join(self.chunks())
        return self._buffer

    @property
    def is_large(self) -> bool:
        """Whether the file's bytes should not be held beside the weights they are copies of."""
        return sum(segment.size for segment in self.executorch_program.segments or ()) >= _LARGE

    @property
    def size(self) -> int:
        """How many bytes the file has."""
        if self.is_large and self._buffer is None:
            return sum(memoryview(chunk).nbytes for chunk in self.chunks())
        return len(self.buffer)

    def write_to_file(self, open_file: io.BufferedIOBase) -> None:
        """Write to an open binary file, without copying the weights. A host twin is written next to it first; a
        warning says so if the file has no path."""
        self._write_twin(getattr(open_file, "name", None))
        for chunk in self.chunks():
            open_file.write(chunk)

    def save(self, path: str | os.PathLike[str]) -> int:
        """Write to a path atomically; returns the number of bytes. A host twin is written next to it first."""
        from edgewright.files import write_file

        if Path(path).suffix != ".pte":
            raise UsageError(str(path), "must end in .pte")
        self._write_twin(path)
        return write_file(path, self.chunks())

    def _write_twin(self, path: Any) -> None:
        """Write the host twin next to the program's file, where the runtime looks for it."""
        from edgewright.files import write_file

        if self.config.host_twin != "side" or self.twin is None:
            return
        if isinstance(path, str | os.PathLike):
            write_file(Path(path).with_suffix(".twin"), [self.twin])
        else:
            log.warning(
                "the host twin is not written, because the program goes to a file without a path; this machine cannot "
                "run it without. ExecutorchBackendConfig(host_twin='embed') includes it"
            )

    def dump_executorch_program(self, verbose: bool = False, out: TextIO | None = None) -> None:
        """Print the program: a line for each instruction and, if ``verbose``, for each value."""
        from edgewright.program.listing import Listing

        for plan in self.executorch_program.execution_plan:
            listing = Listing(plan)
            print(f"{plan.name}:", *(listing.values() if verbose else ()), sep="\n  ", file=out)
            for line in listing.instructions():
                print(f"  {line['index']}: {line['text']}", file=out)

    def get_etrecord(self) -> ETRecord:
        """What ExecuTorch's Inspector needs to attribute profiles to lines of the model's source."""
        from edgewright.program.etrecord import make_etrecord

        return make_etrecord(self._edge.sources, self.executorch_program, self.instruction_sources)

    @cached_property
    def twin(self) -> bytes | None:
        """The graphs that this machine runs in place of blobs that only a device can run, or None."""
        return None if self.config.host_twin == "none" else self._blobs.twin(names=self.config.layer_names)

    @property
    def data_files(self) -> dict[str, bytes]:
        """External data by file name."""
        return {tag: write_data(entries) for tag, entries in self._constants.external.items()}

    def write_tensor_data_to_file(self, outdir: str | os.PathLike[str]) -> list[Path]:
        """Write the ``.ptd`` files of external weights to a folder; returns their paths."""
        paths = []
        for tag, entries in self._constants.external.items():
            paths.append(Path(outdir) / f"{tag}.ptd")
            write_data(entries, paths[-1])
        return paths

    def chunks(self) -> Iterator[Buffer]:
        """The file's bytes piece by piece: weights are not copied."""
        return program_chunks(self.executorch_program, self.config.segment_alignment)

    # ------------------------------------------------------------------------------------------------ emission

    def _build(self) -> schema.Program:
        names = sorted(self._edge.methods)
        sharing = [name for name in names if self.config.planning(name).share_mutable_buffers]
        alignment = max((self.config.planning(name).alignment for name in sharing), default=1)
        programs = {name: self._edge.exported_program(name) for name in sharing}
        layout = shared_layout(programs, self._edge.sources, alignment)
        plans = [self._plan(name, layout if name in sharing else None) for name in names]
        extra = {k: v for name in names for k, v in training_methods(self._edge.exported_program(name), name).items()}
        for name, value in {**self._edge.constant_methods, **extra}.items():
            plans.append(constant_plan(name, value, self._constants))
        named = self._blobs.named_data = self._externalize(self._blobs.named_data)
        program = assemble(plans, self._constants, self._states, self._blobs, named, self.config)
        alignment = self.config.segment_alignment
        if self.config.host_twin == "embed" and self.twin is not None:
            add_named_data(program, TWIN_KEY, self.twin, alignment)
        if self.config.manifest:
            targets, kernels = manifest.targets_of(program), self._edge.kernels.name
            versions = {"torch": str(torch.__version__)}
            quantized_io = self._edge.quantized_io
            data = manifest.build(program, targets, kernels, self._blobs.estimates, versions, quantized_io)
            add_named_data(program, manifest.KEY, data, alignment)
        add_layers(program, self._layers if self.config.layer_names else {}, alignment)
        return program

    def _externalize(self, named_data: dict[str, Buffer]) -> dict[str, Buffer]:
        """The named data that stays in the program: none, if all constants are external."""
        if self.config.external_constants is not True or not named_data:
            return named_data
        entries = {key: PtdEntry(data) for key, data in named_data.items()}
        self._constants.external.setdefault(DEFAULT_TAG, {}).update(entries)
        return {}

    def _plan(self, name: str, shared: SharedLayout | None) -> schema.ExecutionPlan:
        exported = self._edge.exported_program(name)
        graph = import_graph(exported, name)
        widen_accumulation(graph)
        assign_dim_orders(graph)
        options = EmitOptions(
            planning=self.config.planning(name),
            kernels=self._edge.kernels,
            remove_view_copy=self.config.remove_view_copy,
            emit_stacktrace=self.config.emit_stacktrace,
            emit_mutable_buffer_names=self.config.emit_mutable_buffer_names,
            skip_dim_order=self._edge.compile_config._skip_dim_order,
            external_tag=external_tag(self.config, exported),
            shared=shared,
        )
        encoded = tuple(encode_structure(s) for s in (exported.call_spec.in_spec, exported.call_spec.out_spec))
        emitter = Emitter(graph, options, self._constants, self._states, self._blobs)
        self.instruction_sources[name] = emitter.source_nodes
        plan = emitter.plan(encoded)  # type: ignore[arg-type]
        self._layers[name] = emitter.layers
        return plan
