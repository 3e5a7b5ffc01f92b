"""ExecuTorch's names and their Edgewright equivalents, read by imports, migration and the docs.

Names that belong to no backend are here. Each backend has its own in ``compat_names.py``; ``BackendInfo`` names them,
so that those of an installed package are found too. ``CompatNames`` describes the columns.
"""

from __future__ import annotations

from functools import cache

from edgewright.backends.info import BackendInfo, CompatNames, from_module
from edgewright.backends.registry import all_backends, in_order

ROOT = "executorch"
_SCRIPTS = "scripts and data that come with ExecuTorch: install it, or put its folder on the path"

_PROGRAM = {
    **from_module("edgewright", "EdgeCompileConfig ExecutorchBackendConfig to_edge to_edge_transform_and_lower"),
    **from_module("edgewright.program.edge", "EdgeProgramManager ExecutorchProgramManager"),
}
_TORCH = from_module("torch.export", "ExportedProgram ExportGraphSignature")
_EXPORT = from_module("edgewright.compat.export_util", "export_to_edge export_to_exec_prog save_pte_program")
_BINDINGS = {
    **from_module("edgewright.compat.runtime", "MethodMeta TensorInfo Verification"),
    **from_module("edgewright.compat.pybindings", "ExecuTorchMethod ExecuTorchModule ExecuTorchProgram"),
    **from_module("edgewright.compat.pybindings", "_get_operator_names _get_registered_backend_names _is_available"),
    **from_module("edgewright.compat.pybindings", "_load_for_executorch _load_for_executorch_from_buffer"),
    **from_module("edgewright.compat.pybindings", "_load_program _load_program_from_buffer"),
}
_BUNDLES = "edgewright.compat.devtools"
_INSPECTOR = from_module("edgewright.compat.inspector", "Event EventBlock Inspector PerfData TimeScale")
_RECORDS = from_module("edgewright.program.etrecord", "ETRecord generate_etrecord")
# Imported by example scripts at their top, by module; using one is an error that names the nearest equivalent.
_IMPORTED = {
    "devtools.inspector._intermediate_output_capturer": "IntermediateOutputCapturer",
    "devtools.visualization.visualization_utils": "visualize_with_clusters",
    "exir.debug_handle_utils": "DEBUG_HANDLE_KEY",
    "exir.passes.external_constants_pass": "delegate_external_constants_pass_unlifted",
    "exir.passes.init_mutable_pass": "InitializedMutableBufferPass",
    "extension.llm.custom_ops": "custom_ops model_sharding",
    "extension.llm.export.builder": "DType LLMEdgeManager",
    "extension.llm.export.partitioner_lib": "get_coreml_partitioner get_openvino_partitioner get_qnn_partitioner "
    "get_tosa_partitioner get_vgf_partitioner get_vulkan_partitioner get_xnnpack_partitioner",
    "extension.llm.export.quantizer_lib": "get_coreml_quantizer get_ethosu_quantizer get_ov_quantizer "
    "get_pt2e_quantization_params get_pt2e_quantizers get_qnn_quantizer get_tosa_quantizer get_vgf_quantizer "
    "get_vulkan_quantizer",
    "util.activation_memory_profiler": "generate_memory_trace",
    "util.python_profiler": "CProfilerFlameGraph",
}

_GENERAL = CompatNames(
    names={
        "executorch.exir": {**_PROGRAM, **_TORCH},
        "executorch.exir._serialize._program": from_module(
            "edgewright.compat.binaries", "PTEFile deserialize_pte_binary"
        ),
        "executorch.exir.backend.backend_details": {"CompileSpec": "edgewright.formats.schema"},
        "executorch.exir.backend.compile_spec_schema": {"CompileSpec": "edgewright.formats.schema"},
        "executorch.exir.backend.operator_support": {
            "DontPartition": "edgewright.lowering.partition.exclude",
            "DontPartitionModule": "edgewright.lowering.partition.exclude",
            "DontPartitionName": "edgewright.lowering.partition.exclude",
        },
        "executorch.exir.backend.partitioner": from_module(
            "edgewright.lowering.partition.partitioner", "DelegationSpec Partitioner PartitionResult"
        ),
        "executorch.exir.capture._config": {
            "EdgeCompileConfig": "edgewright",
            "ExecutorchBackendConfig": "edgewright",
        },
        "executorch.exir.dialects._ops": {"ops": "edgewright.compat.dialects"},
        "executorch.exir.pass_base": {
            # where ExecuTorch imports it from
            "ExportPass": "torch._export.pass_base:_ExportPassBaseDeprecatedDoNotUse",
            "PassResult": "torch.fx.passes.infra.pass_base",
        },
        "executorch.exir.passes": {"MemoryPlanningPass": "edgewright"},
        "executorch.exir.passes.memory_planning_pass": {"MemoryPlanningPass": "edgewright"},
        "executorch.exir.passes.quantize_io_pass": from_module(
            "edgewright.compat.quantize_io", "QuantizeInputs QuantizeOutputs"
        ),
        "executorch.exir.program": _PROGRAM,
        "executorch.exir.program._program": _PROGRAM,
        "executorch.runtime": from_module(
            "edgewright.compat.runtime", "BackendRegistry Method OperatorRegistry Program Runtime Verification"
        ),
        "executorch.extension.export_util": _EXPORT,
        "executorch.extension.export_util.utils": _EXPORT,
        "executorch.extension.pybindings.portable_lib": _BINDINGS,
        "executorch.extension.pybindings._portable_lib": _BINDINGS,
        "executorch.kernels.quantized": {},
        "executorch.version": {"__version__": "edgewright"},
        "executorch.devtools": {
            "BundledProgram": _BUNDLES,
            "Inspector": "edgewright.compat.inspector",
            **_RECORDS,
        },
        "executorch.devtools.backend_debug": from_module(_BUNDLES, "get_delegation_info print_delegation_info"),
        "executorch.devtools.bundled_program.config": {"MethodTestCase": _BUNDLES, "MethodTestSuite": _BUNDLES},
        "executorch.devtools.bundled_program.core": {"BundledProgram": _BUNDLES},
        "executorch.devtools.bundled_program.serialize": {
            "deserialize_from_flatbuffer_to_bundled_program": "edgewright.formats.bpte:read_bundled",
            "serialize_from_bundled_program_to_flatbuffer": _BUNDLES,
        },
        "executorch.devtools.etrecord": _RECORDS,
        "executorch.devtools.inspector": _INSPECTOR,
        "executorch.devtools.inspector._inspector": _INSPECTOR,
        "executorch.devtools.inspector._inspector_utils": from_module("edgewright.compat.inspector", "TimeScale"),
    },
    absent={
        "executorch.devtools": "edgewright.runtime.Profile and `edgewright inspect`",
        "executorch.devtools.inspector": "`edgewright compare` compares layer by layer",
        "executorch.devtools.visualization": "`edgewright inspect`; Model Explorer opens the .pte",
        "executorch.exir": "edgewright has to_edge, to_edge_transform_and_lower and their options",
        "executorch.exir:capture": "torch.export.export, then edgewright.to_edge",
        "executorch.exir:CaptureConfig": "pass its fields to torch.export.export",
        "executorch.exir.backend.backend_api": "to_edge(...).to_backend(partitioner)",
        "executorch.exir.passes.quantize_io_pass": "edgewright.quantize.integer_io.integer_io, before lowering",
        "executorch.exir.passes": "external_constants of ExecutorchBackendConfig; state is initialized by default",
        "executorch.extension": "edgewright.runtime",
        "executorch.extension.llm": "`edgewright llm compile` compiles language models, edgewright.llm runs them",
        "executorch.util": "edgewright.runtime.Profile and `edgewright size`",
        "executorch.kernels": "kernels are registered with edgewright.runtime.register_kernel",
    },
    import_only=frozenset(f"{ROOT}.{module}:{name}" for module, names in _IMPORTED.items() for name in names.split()),
    scripts=("executorch.examples", "executorch.extension.llm.export.config"),
)


def table() -> CompatNames:
    """The names of all backends, and those that belong to none. A name has the first of its meanings."""
    return _merge(tuple(info for info in all_backends() if info.compat))


@cache
def _merge(backends: tuple[BackendInfo, ...]) -> CompatNames:
    parts = [_GENERAL, *(info.load(info.compat, CompatNames) for info in backends)]
    names: dict[str, dict[str, str]] = {}
    absent = {"executorch.backends": f"edgewright.backends has {', '.join(info.name for info in in_order())}"}
    scripts = tuple(path for part in parts for path in part.scripts)
    for part in parts:
        for module, entries in part.names.items():
            names[module] = {**entries, **names.get(module, {})}
        absent = {**part.absent, **absent}
    absent.update(dict.fromkeys(scripts, _SCRIPTS))
    return CompatNames(names, absent, frozenset().union(*(part.import_only for part in parts)), scripts)


def modules() -> frozenset[str]:
    """All modules that can be imported: those with names, and their parent packages."""
    return _modules(table())


@cache
def _modules(names: CompatNames) -> frozenset[str]:
    paths = [*names.names, *(name.partition(":")[0] for name in names.import_only)]
    return frozenset(".".join(parts[:n]) for parts in (m.split(".") for m in paths) for n in range(1, len(parts) + 1))


def is_executorch_only(module: str) -> bool:
    """True for ExecuTorch's own scripts, which run unchanged with redirected imports."""
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in table().scripts)


def counterpart(module: str, name: str) -> tuple[str, str] | None:
    """Edgewright's module and name for a name of ExecuTorch, or None."""
    target = table().names.get(module, {}).get(name)
    if target is None:
        return None
    module_name, _, other = target.partition(":")
    return module_name, other or name


def nearest_equivalent(module: str, name: str = "") -> str:
    """The nearest equivalent of a name without a counterpart, as a sentence; never empty for known packages."""
    absent = table().absent
    exact = absent.get(f"{module}:{name}") if name else None
    parts = module.split(".")
    enclosing = (absent.get(".".join(parts[:n])) for n in range(len(parts), 0, -1))
    return exact or next((text for text in enclosing if text), "")
