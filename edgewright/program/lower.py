"""``to_edge`` and ``to_edge_transform_and_lower``: exported models to programs."""

from __future__ import annotations

import copy
import io
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from edgewright.errors import UsageError
from edgewright.frontend.importer import import_graph, to_array
from edgewright.frontend.prepare import prepare
from edgewright.ir.graph import Graph, Value
from edgewright.ir.serialize import TWIN_KEY
from edgewright.partition.partitioner import Partitioner
from edgewright.partition.report import PartitionReport, merge
from edgewright.program import manifest
from edgewright.program.config import EdgeCompileConfig, ExecutorchBackendConfig
from edgewright.program.constants import ConstantPool
from edgewright.program.delegates import DelegatePool
from edgewright.program.emit import EmitOptions, Emitter
from edgewright.program.external import DEFAULT_TAG, external_tag, training_methods
from edgewright.program.layout import assign_dim_orders
from edgewright.program.resolve import KernelSet, kernel_set
from edgewright.pte import schema
from edgewright.pte.flat import Buffer
from edgewright.pte.ptd import Entry, write_data
from edgewright.pte.writer import program_chunks
from edgewright.quantize.affine import affine_operators

if TYPE_CHECKING:
    from edgewright.program.etrecord import ETRecord

Programs = Union[ExportedProgram, Mapping[str, ExportedProgram]]
Pass = Callable[[Any], Any]
Passes = Union[Sequence[Pass], Mapping[str, Sequence[Pass]]]


def to_edge(
    programs: Programs,
    constant_methods: Mapping[str, Any] | None = None,
    compile_config: EdgeCompileConfig | None = None,
    generate_etrecord: bool = False,
) -> EdgeProgramManager:
    """Rewrite exported programs into operators that the target's runtime has kernels for.

    ``generate_etrecord`` is there for scripts that give it: ``get_etrecord`` of the program works anyway.
    """
    manager = EdgeProgramManager(_named(programs), constant_methods or {}, compile_config or EdgeCompileConfig())
    return manager._ready()


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
    manager = EdgeProgramManager(_named(programs), constant_methods or {}, compile_config or EdgeCompileConfig())
    if transform_passes:
        manager = manager.transform(transform_passes)
    for chosen in _partitioners(partitioner):
        manager = manager._delegated(chosen)
    return manager._ready()


def _named(programs: Programs) -> dict[str, ExportedProgram]:
    if not isinstance(programs, ExportedProgram | Mapping):
        programs = {"forward": programs}
    named = {"forward": programs} if isinstance(programs, ExportedProgram) else dict(programs)
    if not named:
        raise UsageError("programs", "must hold at least one method")
    for name, program in named.items():
        if not isinstance(program, ExportedProgram):
            remedy = "Export it first: torch.export.export(model, example_inputs)."
            raise UsageError(
                f"method {name!r}", "must be an ExportedProgram", value=type(program).__name__, remedy=remedy
            )
    return named


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
            raise UsageError(f"method {method_name!r}", f"must be one of {', '.join(sorted(self._programs))}")
        return self._programs[method_name]

    def transform(self, passes: Passes, compile_config: EdgeCompileConfig | None = None) -> EdgeProgramManager:
        """A manager whose graphs went through ``passes``: functions of a graph module that change it in place or
        return another (or a PassResult). A mapping gives each method passes of its own."""
        config = compile_config or self.compile_config
        _check_methods("passes", passes, self.methods)
        changed = {}
        for name, program in self._programs.items():
            chosen = passes.get(name, ()) if isinstance(passes, Mapping) else _pass_list(passes)
            changed[name] = _transformed(program, chosen)
        made = EdgeProgramManager(changed, self.constant_methods, config)
        made.partition_reports = dict(self.partition_reports)
        made.sources = self.sources
        return made._ready()

    def to_backend(self, partitioner: Any) -> EdgeProgramManager:
        """Give what a backend takes to it: a partitioner, or a mapping of methods to partitioners."""
        return self._delegated(partitioner)._ready()

    def _delegated(self, partitioner: Any) -> EdgeProgramManager:
        chosen = partitioner if isinstance(partitioner, Mapping) else dict.fromkeys(self.methods, partitioner)
        _check_methods("partitioner", chosen, self.methods)
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


def _pass_list(passes: Any) -> Sequence[Pass]:
    inner = getattr(passes, "passes", passes)  # a PassManager holds a list of them
    return list(inner) if isinstance(inner, Sequence) else [inner]


def _transformed(program: ExportedProgram, passes: Sequence[Pass]) -> ExportedProgram:
    if not passes:
        return program
    original = program.graph_module
    module: Any = torch.fx.GraphModule(original, copy.deepcopy(original.graph))  # passes may change it in place
    module.meta.update(original.meta)
    for change in passes:
        result = change(module)
        module = getattr(result, "graph_module", result) or module
    updated: ExportedProgram = program._update(module, program.graph_signature)
    return updated


def tabulate(graph: torch.fx.Graph) -> str:
    """A graph as a table: opcode, name, target, args, kwargs."""
    rows = [("opcode", "name", "target", "args", "kwargs")]
    rows += [(n.op, n.name, str(n.target), str(n.args), str(n.kwargs)) for n in graph.nodes]
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


class ExecutorchProgramManager:
    """A finished program and its external data."""

    def __init__(self, edge: EdgeProgramManager, config: ExecutorchBackendConfig) -> None:
        self._edge = edge
        self.config = config
        self._constants = ConstantPool(config.constant_tensor_alignment or 16)
        self._states = ConstantPool(1)
        self._blobs = DelegatePool()
        self.instruction_sources: dict[str, list[tuple[str, ...]]] = {}  # by method: nodes of the user's own program
        _check_methods("memory_planning_pass", config.memory_planning_pass, edge.methods)
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
        """What backends took and why not more, by method."""
        return self._edge.partition_reports

    @property
    def buffer(self) -> bytes:
        """The file's bytes."""
        if self._buffer is None:
            self._buffer = b"".join(self._chunks())
        return self._buffer

    def write_to_file(self, open_file: io.BufferedIOBase) -> None:
        """Write to an open binary file, weights straight from where they are."""
        for chunk in self._chunks():
            open_file.write(chunk)

    def save(self, path: str | os.PathLike[str]) -> int:
        """Write to a path, whole or not at all; the bytes written. A host twin goes beside it, before it."""
        from edgewright.files import write_file

        if Path(path).suffix != ".pte":
            raise UsageError(str(path), "must end in .pte")
        if self.config.host_twin == "side" and self.twin is not None:
            write_file(Path(path).with_suffix(".twin"), [self.twin])
        return write_file(path, self._chunks())

    def get_etrecord(self) -> ETRecord:
        """What ExecuTorch's Inspector needs to join profiles of this program to lines of the model's source."""
        from edgewright.program.etrecord import record

        return record(self._edge.sources, self.executorch_program, self.instruction_sources)

    @cached_property
    def twin(self) -> bytes | None:
        """What this machine runs in place of blobs that only a device can run, or None if there are no such blobs."""
        return None if self.config.host_twin == "none" else self._blobs.twin()

    @property
    def data_files(self) -> dict[str, bytes]:
        """External data by file name."""
        return {tag: write_data(entries) for tag, entries in self._constants.external.items()}

    def write_tensor_data_to_file(self, outdir: str | os.PathLike[str]) -> list[Path]:
        """Write the ``.ptd`` files of external weights into a folder; their paths."""
        paths = []
        for tag, entries in self._constants.external.items():
            paths.append(Path(outdir) / f"{tag}.ptd")
            write_data(entries, paths[-1])
        return paths

    def _chunks(self) -> Any:
        return program_chunks(self.executorch_program, self.config.segment_alignment)

    # -------------------------------------------------------------------------------------------------- making

    def _build(self) -> schema.Program:
        names = sorted(self._edge.methods)
        plans = [self._plan(name) for name in names]
        extra = {k: v for name in names for k, v in training_methods(self._edge.exported_program(name), name).items()}
        for name, value in {**self._edge.constant_methods, **extra}.items():
            plans.append(_constant_plan(name, value, self._constants))
        program = schema.Program(execution_plan=plans)
        index = program.add_segment(self._constants.chunks)  # type: ignore[arg-type]
        program.constant_segment = schema.SubsegmentOffsets(segment_index=index, offsets=self._constants.offsets)
        if len(self._states.offsets) > 1:
            index = program.add_segment(self._states.chunks, self.config.segment_alignment)  # type: ignore[arg-type]
            offsets = schema.SubsegmentOffsets(segment_index=index, offsets=self._states.offsets)
            program.mutable_data_segments = [offsets]
        alignment = max(self.config.segment_alignment, self.config.delegate_alignment or 1)
        self._blobs.store(program, extract=self.config.extract_delegate_segments, alignment=alignment)
        self._blobs.named = self._outside(self._blobs.named)
        program.named_data = [
            schema.NamedData(key=key, segment_index=program.add_segment(data, self.config.segment_alignment))
            for key, data in self._blobs.named.items()
        ]
        if self.config.host_twin == "embed" and self.twin is not None:
            index = program.add_segment(self.twin, self.config.segment_alignment)
            program.named_data.append(schema.NamedData(key=TWIN_KEY, segment_index=index))
        if self.config.manifest:
            data = manifest.build(program, manifest.targets_of(program), self._edge.kernels.name, self._blobs.estimates)
            index = program.add_segment(data, self.config.segment_alignment)
            program.named_data.append(schema.NamedData(key=manifest.KEY, segment_index=index))
        program.named_data = program.named_data or None
        return program

    def _outside(self, named: dict[str, Buffer]) -> dict[str, Buffer]:
        """What of the blobs' data stays in the program: none, if all constants are external."""
        if self.config.external_constants is not True or not named:
            return named
        entries = {key: Entry(data) for key, data in named.items()}
        self._constants.external.setdefault(DEFAULT_TAG, {}).update(entries)
        return {}

    def _plan(self, name: str) -> schema.ExecutionPlan:
        exported = self._edge.exported_program(name)
        graph = import_graph(exported, name)
        assign_dim_orders(graph)
        options = EmitOptions(
            planning=self.config.planning(name),
            kernels=self._edge.kernels,
            remove_view_copy=self.config.remove_view_copy,
            emit_stacktrace=self.config.emit_stacktrace,
            emit_mutable_buffer_names=self.config.emit_mutable_buffer_names,
            skip_dim_order=self._edge.compile_config._skip_dim_order,
            external_tag=external_tag(self.config, exported),
        )
        encoded = tuple(_structure(s) for s in (exported.call_spec.in_spec, exported.call_spec.out_spec))
        emitter = Emitter(graph, options, self._constants, self._states, self._blobs)
        self.instruction_sources[name] = emitter.given
        return emitter.plan(encoded)  # type: ignore[arg-type]


def _structure(spec: pytree.TreeSpec) -> str:
    """A structure as text; torch's named results (of ``sort`` and the like) as tuples, for they have no name in it."""
    try:
        return pytree.treespec_dumps(spec)
    except NotImplementedError:
        named = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
        return pytree.treespec_dumps(pytree.tree_structure(_unnamed(named)))


def _unnamed(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _unnamed(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_unnamed(item) for item in tree]
    return tuple(_unnamed(item) for item in tree) if isinstance(tree, tuple) else tree


def _check_methods(option: str, chosen: Any, methods: set[str]) -> None:
    """A mapping by method must name methods that exist: a misspelt one would be ignored."""
    unknown = sorted(set(chosen) - methods) if isinstance(chosen, Mapping) else []
    if unknown:
        raise UsageError(option, f"must name methods of the program: {', '.join(sorted(methods))}", value=unknown)


def _constant_plan(name: str, value: Any, constants: ConstantPool) -> schema.ExecutionPlan:
    """A method without instructions that returns what it was given."""
    leaves, spec = pytree.tree_flatten(value)
    outputs: list[Any] = []
    for index, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            array = to_array(leaf.contiguous())
            outputs.append(Value(f"{name}_{index}", array.dtype, array.shape, tuple(range(array.ndim)), array))
        elif isinstance(leaf, int) and not -(1 << 63) <= leaf < 1 << 63:
            raise UsageError(f"constant method {name!r}", "returns integers of at most 64 bits", value=leaf)
        elif leaf is None or isinstance(leaf, int | float | bool | str):
            outputs.append(leaf)
        else:
            rule = "returns numbers, text, tensors, None, and lists of them"
            raise UsageError(f"constant method {name!r}", rule, value=type(leaf).__name__)
    graph = Graph(name, [], outputs)
    options = EmitOptions(ExecutorchBackendConfig().planning(name), kernel_set("wheel"))
    plan = Emitter(graph, options, constants, ConstantPool()).plan(("", _structure(spec)))
    plan.non_const_buffer_sizes = [0]
    return plan
