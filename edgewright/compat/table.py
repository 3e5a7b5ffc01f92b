"""Table of ExecuTorch's names and their Edgewright equivalents, read by imports, migration and the docs.

``TABLE``: per ExecuTorch module, the names that can be imported from it and the module that has each here
(``module:name`` where the name differs). A module without names is imported for its side effect, which is not needed
here. ``ABSENT``: modules, or single names (``module:name``), without a counterpart, and the nearest equivalent. An
entry of a module applies to its submodules. ``IMPORT_ONLY``: absent names that may be imported but not used: scripts
import them at the top for an option.
"""

from __future__ import annotations

from functools import cache

ROOT = "executorch"
# Scripts and their data, not an API: they run from ExecuTorch's folder.
EXECUTORCH_ONLY = (
    f"{ROOT}.examples",
    f"{ROOT}.backends.arm.scripts",
    f"{ROOT}.backends.nxp.tests",
    f"{ROOT}.backends.qualcomm.tests",
)


def _from_module(module: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), module)


_PROGRAM = {
    **_from_module("edgewright", "EdgeCompileConfig ExecutorchBackendConfig to_edge to_edge_transform_and_lower"),
    **_from_module("edgewright.program.edge", "EdgeProgramManager ExecutorchProgramManager"),
}
_TORCH = _from_module("torch.export", "ExportedProgram ExportGraphSignature")
_EXPORT = _from_module("edgewright.compat.export_util", "export_to_edge export_to_exec_prog save_pte_program")
_BINDINGS = {
    **_from_module("edgewright.compat.runtime", "MethodMeta TensorInfo Verification"),
    **_from_module("edgewright.compat.pybindings", "ExecuTorchMethod ExecuTorchModule ExecuTorchProgram"),
    **_from_module("edgewright.compat.pybindings", "_get_operator_names _get_registered_backend_names _is_available"),
    **_from_module("edgewright.compat.pybindings", "_load_for_executorch _load_for_executorch_from_buffer"),
    **_from_module("edgewright.compat.pybindings", "_load_program _load_program_from_buffer"),
}
_BUNDLES = "edgewright.compat.devtools"
_INSPECTOR = _from_module("edgewright.compat.inspector", "Event EventBlock Inspector PerfData TimeScale")
_RECORDS = _from_module("edgewright.program.etrecord", "ETRecord generate_etrecord")

_XNNPACK = "edgewright.backends.xnnpack"
_PARTITIONERS = {
    **_from_module(_XNNPACK, "XnnpackPartitioner XnnpackFloatingPointPartitioner"),
    **_from_module(_XNNPACK, "XnnpackQuantizedPartitioner XnnpackDynamicallyQuantizedPartitioner"),
}
_XNNPACK_CONFIGS = {
    **_from_module(f"{_XNNPACK}.compat", "get_transform_passes"),
    **_from_module(f"{_XNNPACK}.compat", "get_xnnpack_edge_compile_config get_xnnpack_executorch_backend_config"),
}
_ARM = "edgewright.backends.ethos_u"
_ARM_QUANTIZER = {
    **_from_module(_ARM, "EthosUQuantizer get_symmetric_quantization_config get_uint8_io_quantization_config"),
    **_from_module(_ARM, "get_symmetric_a16w8_quantization_config get_symmetric_a8w4_quantization_config"),
}
_CONFIG = _from_module("edgewright.quantize.recipes", "QuantizationConfig")
_QNN = "edgewright.backends.qualcomm"
_QNN_UTILS = {
    **_from_module(_QNN, "QcomChipset generate_htp_compiler_spec generate_qnn_executorch_compiler_spec"),
    **_from_module(_QNN, "get_soc_to_chipset_map"),
    **_from_module(f"{_QNN}.compat", "to_edge_transform_and_lower_to_qnn update_spill_fill_size"),
    **_from_module(
        "edgewright.backends.qualcomm.script_helpers", "convert_linear_to_conv2d draw_graph dump_context_from_pte"
    ),
}
_QNN_SCRIPT_HELPERS = "edgewright.backends.qualcomm.script_helpers"
_QNN_PASSES = _from_module(_QNN_SCRIPT_HELPERS, "QCOM_PASS_ACTIVATE_KEY QCOM_PASS_ARGS_KWARGS_DEFAULTS_KEY")
_ENN = "edgewright.backends.samsung"
_NXP = "edgewright.backends.nxp"
_NXP_BACKEND = {
    **_from_module(_NXP, "NeutronCompileSpecBuilder generate_neutron_compile_spec"),
    **_from_module(f"{_NXP}.compat", "core_aten_ops_exception_list"),
}

TABLE: dict[str, dict[str, str]] = {
    "executorch.exir": {**_PROGRAM, **_TORCH},
    "executorch.exir._serialize._program": _from_module("edgewright.compat.binaries", "PTEFile deserialize_pte_binary"),
    "executorch.exir.backend.backend_details": {"CompileSpec": "edgewright.formats.schema"},
    "executorch.exir.backend.compile_spec_schema": {"CompileSpec": "edgewright.formats.schema"},
    "executorch.exir.backend.operator_support": {
        "DontPartition": "edgewright.lowering.partition.exclude",
        "DontPartitionModule": "edgewright.lowering.partition.exclude",
        "DontPartitionName": "edgewright.lowering.partition.exclude",
    },
    "executorch.exir.capture._config": {
        "EdgeCompileConfig": "edgewright",
        "ExecutorchBackendConfig": "edgewright",
    },
    "executorch.exir.dialects._ops": {"ops": "edgewright.compat.dialects"},
    "executorch.exir.pass_base": {
        "ExportPass": "torch._export.pass_base:_ExportPassBaseDeprecatedDoNotUse",  # where ExecuTorch imports it from
        "PassResult": "torch.fx.passes.infra.pass_base",
    },
    "executorch.exir.passes": {"MemoryPlanningPass": "edgewright"},
    "executorch.exir.passes.memory_planning_pass": {"MemoryPlanningPass": "edgewright"},
    "executorch.exir.passes.quantize_io_pass": _from_module(
        "edgewright.compat.quantize_io", "QuantizeInputs QuantizeOutputs"
    ),
    "executorch.exir.program": _PROGRAM,
    "executorch.exir.program._program": _PROGRAM,
    "executorch.runtime": _from_module(
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
    "executorch.devtools.backend_debug": _from_module(_BUNDLES, "get_delegation_info print_delegation_info"),
    "executorch.devtools.bundled_program.config": {"MethodTestCase": _BUNDLES, "MethodTestSuite": _BUNDLES},
    "executorch.devtools.bundled_program.core": {"BundledProgram": _BUNDLES},
    "executorch.devtools.bundled_program.serialize": {
        "deserialize_from_flatbuffer_to_bundled_program": "edgewright.formats.bpte:read_bundled",
        "serialize_from_bundled_program_to_flatbuffer": _BUNDLES,
    },
    "executorch.devtools.etrecord": _RECORDS,
    "executorch.devtools.inspector": _INSPECTOR,
    "executorch.devtools.inspector._inspector": _INSPECTOR,
    "executorch.devtools.inspector._inspector_utils": _from_module("edgewright.compat.inspector", "TimeScale"),
    # XNNPACK
    "executorch.backends.xnnpack": {**_PARTITIONERS, **_XNNPACK_CONFIGS},
    "executorch.backends.xnnpack.partition.config.xnnpack_config": {"ConfigPrecisionType": _XNNPACK},
    "executorch.backends.xnnpack.partition.xnnpack_partitioner": _PARTITIONERS,
    "executorch.backends.xnnpack.quantizer.xnnpack_quantizer": {
        "XNNPACKQuantizer": _XNNPACK,
        "get_symmetric_quantization_config": _XNNPACK,
    },
    "executorch.backends.xnnpack.utils.configs": _XNNPACK_CONFIGS,
    # Arm
    "executorch.backends.arm.arm_backend": {"ArmCompileSpecBuilder": _ARM},
    "executorch.backends.arm.arm_partitioner": {"ArmPartitioner": f"{_ARM}:EthosUPartitioner"},
    "executorch.backends.arm.common.arm_compile_spec": {"ArmCompileSpec": f"{_ARM}:EthosUCompileSpec"},
    "executorch.backends.arm.ethosu": {"EthosUCompileSpec": _ARM, "EthosUPartitioner": _ARM},
    "executorch.backends.arm.ethosu.compile_spec": {"EthosUCompileSpec": _ARM},
    "executorch.backends.arm.ethosu.partitioner": {"EthosUPartitioner": _ARM},
    "executorch.backends.arm.ethosu_partitioner": {"EthosUPartitioner": _ARM},
    "executorch.backends.arm.quantizer": {**_ARM_QUANTIZER, **_CONFIG},
    "executorch.backends.arm.quantizer.arm_quantizer": _ARM_QUANTIZER,
    "executorch.backends.arm.quantizer.quantization_config": _CONFIG,
    "executorch.backends.arm.util._factory": _from_module(f"{_ARM}.compat", "create_partitioner create_quantizer"),
    "executorch.backends.cortex_m.passes.replace_quant_nodes_pass": _from_module(
        f"{_ARM}.compat", "ReplaceQuantNodesPass"
    ),
    # Qualcomm
    "executorch.backends.qualcomm._passes.qnn_pass_manager": {
        **_QNN_PASSES,
        "get_qnn_pass_manager_cls": _QNN_SCRIPT_HELPERS,
    },
    "executorch.backends.qualcomm.export_utils": {
        **_from_module(
            f"{_QNN}.export_utils", "QnnConfig SimpleADB build_executorch_binary generate_inputs get_backend_type"
        ),
        **_from_module(f"{_QNN}.export_utils", "make_quantizer setup_common_args_and_variables"),
        **_from_module(_QNN, "QuantDtype QcomChipset"),
    },
    "executorch.backends.qualcomm.partition.qnn_partitioner": {"QnnPartitioner": _QNN},
    "executorch.backends.qualcomm.quantizer.qconfig": {
        "MovingAverageMinMaxObserver": "torchao.quantization.pt2e",
        "get_ptq_per_channel_quant_config": f"{_QNN}.compat",
    },
    "executorch.backends.qualcomm.quantizer.quantizer": {
        "QnnQuantizer": f"{_QNN}.compat",
        **_from_module(_QNN, "ModuleQConfig QuantDtype get_submodule_name_predicate get_submodule_type_predicate"),
    },
    "executorch.backends.qualcomm.serialization.qc_schema": {
        "QcomChipset": _QNN,
        "QnnExecuTorchBackendType": f"{_QNN}.compat",
        "QnnExecuTorchHtpPerformanceMode": _QNN,
    },
    "executorch.backends.qualcomm.utils.constants": _QNN_PASSES,
    "executorch.backends.qualcomm.utils.qnn_sdk_setup": {"setup_qnn_sdk": f"{_QNN}.qnn.library:find_folder"},
    "executorch.backends.qualcomm.utils.utils": _QNN_UTILS,
    # Samsung
    "executorch.backends.samsung.partition.enn_partitioner": _from_module(_ENN, "EnnPartitioner"),
    "executorch.backends.samsung.quantizer": _from_module(_ENN, "EnnQuantizer Precision"),
    "executorch.backends.samsung.quantizer.qconfig": _from_module(_ENN, "Precision get_quant_config"),
    "executorch.backends.samsung.quantizer.quantizer": _from_module(_ENN, "EnnQuantizer Precision"),
    "executorch.backends.samsung.serialization.compile_options": {
        **_from_module(
            _ENN, "COMPILE_OPTION_SCHEMA_NAME ENN_COMPILE_OPTION_TITLE EnnExecuTorchOptions PerformanceMode"
        ),
        **_from_module(_ENN, "SamsungChipset gen_samsung_backend_compile_spec gen_samsung_backend_compile_spec_core"),
    },
    "executorch.backends.samsung.utils.export_utils": _from_module(
        _ENN, "get_edge_compile_config quantize_module to_edge_transform_and_lower_to_enn"
    ),
    # NXP
    "executorch.backends.nxp.backend.custom_delegation_options": {"CustomDelegationOptions": _NXP},
    "executorch.backends.nxp.backend.neutron_target_spec": {"NeutronTargetSpec": _NXP},
    "executorch.backends.nxp.edge_passes.neutron_edge_pass_manager": {"NeutronEdgePassManager": _NXP},
    "executorch.backends.nxp.edge_passes.remove_additional_quantize_dequantize_nodes_pass": {
        "RemoveAdditionalQDQClustersPass": f"{_NXP}.passes",
    },
    "executorch.backends.nxp.edge_passes.remove_io_quant_ops_pass": {"RemoveIOQuantOpsPass": f"{_NXP}.passes"},
    "executorch.backends.nxp.neutron_partitioner": {"NeutronPartitioner": _NXP},
    "executorch.backends.nxp.nxp_backend": _NXP_BACKEND,
    "executorch.backends.nxp.quantizer.neutron_quantizer": {"NeutronQuantizer": _NXP},
    "executorch.backends.nxp.quantizer.utils": {"calibrate_and_quantize": _NXP},
}

_CORTEX_M = "portable programs run on a Cortex-M; kernels of CMSIS-NN are not a target"
_OTHERS = ", ".join(("xnnpack", "ethos_u", "qualcomm", "samsung", "nxp"))

ABSENT: dict[str, str] = {
    "executorch.backends": f"edgewright.backends has {_OTHERS}",
    "executorch.backends.arm": "edgewright.backends.ethos_u compiles for Ethos-U",
    "executorch.backends.arm.quantizer.arm_quantizer:ArmQuantizer": "EthosUQuantizer(compile_spec) of the same module",
    "executorch.backends.arm.quantizer:TOSAQuantizer": "EthosUQuantizer, and edgewright.backends.ethos_u.export_tosa",
    "executorch.backends.arm.quantizer.arm_quantizer:TOSAQuantizer": "EthosUQuantizer and export_tosa",
    "executorch.backends.arm.quantizer:VgfQuantizer": "EthosUQuantizer",
    "executorch.backends.arm.tosa": "edgewright.backends.ethos_u.export_tosa writes TOSA files",
    "executorch.backends.arm.util.arm_model_evaluator": "`edgewright compile` reports sizes, memory and differences",
    "executorch.backends.arm.vgf": "edgewright.backends.ethos_u compiles for Ethos-U; Vulkan's VGF is not a target",
    "executorch.backends.arm.vgf_partitioner": "EthosUPartitioner; Vulkan's VGF is not a target",
    "executorch.backends.cortex_m": _CORTEX_M,
    "executorch.backends.nxp": "edgewright.backends.nxp",
    "executorch.backends.qualcomm": "edgewright.backends.qualcomm",
    "executorch.backends.qualcomm.custom_op": "operators of your own stay on the CPU: register_kernel runs them here",
    "executorch.backends.qualcomm.debugger": "`edgewright compare` compares layer by layer",
    "executorch.backends.qualcomm.python": "edgewright.backends.qualcomm talks to Qualcomm's libraries itself",
    "executorch.backends.qualcomm._passes": "rows and layouts need no passes; your own go into passes_job",
    "executorch.backends.qualcomm.builders": "OpSpec rows of edgewright.backends.qualcomm.ops",
    "executorch.backends.qualcomm.quantizer.custom_annotation": "set_submodule_qconfig_list of QnnQuantizer",
    "executorch.backends.qualcomm.quantizer.quant_recipe": "recipes: --recipe of `edgewright compile`",
    "executorch.backends.samsung": "edgewright.backends.samsung",
    "executorch.backends.samsung.test": "`edgewright device` runs a file on a device",
    "executorch.devtools": "edgewright.runtime.Profile and `edgewright inspect`",
    "executorch.devtools.visualization": "`edgewright inspect`; Model Explorer opens the .pte",
    "executorch.exir": "edgewright has to_edge, to_edge_transform_and_lower and their options",
    "executorch.exir:capture": "torch.export.export, then edgewright.to_edge",
    "executorch.exir:CaptureConfig": "pass its fields to torch.export.export",
    "executorch.exir.backend.backend_api": "to_edge(...).to_backend(partitioner)",
    "executorch.exir.passes.quantize_io_pass": "edgewright.quantize.integer_io.integer_io, before lowering",
    "executorch.extension": "edgewright.runtime",
    "executorch.extension.llm": "language models are not among Edgewright's targets yet",
    "executorch.kernels": "kernels are registered with edgewright.runtime.register_kernel",
    **dict.fromkeys(
        EXECUTORCH_ONLY, "scripts and data that come with ExecuTorch: install it, or put its folder on the path"
    ),
}

_QC = "executorch.backends.qualcomm"
IMPORT_ONLY = {
    *(f"{_QC}._passes.qnn_pass_manager:{name}" for name in ("FoldQDQ", "I64toI32", "TagQuantIO")),
    f"{_QC}.builders.custom_ops:_hadamard_matrix",
    f"{_QC}.python.PyQnnManagerAdaptor:QnnManager",
    *(f"{_QC}.serialization.qc_schema:QnnExecuTorch{name}" for name in ("GpuPrecision", "LpaiTargetEnv")),
    *(f"{_QC}.utils.utils:{name}" for name in ("QNN_QUANT_TYPE_MAP", "QNN_TENSOR_TYPE_MAP", "from_context_binary")),
    *(f"{_QC}.utils.utils:generate_{name}" for name in ("gpu_compiler_spec", "lpai_compiler_spec")),
    *(f"{_QC}.utils.utils:{name}" for name in ("generate_qnn_executorch_option", "skip_annotation")),
    "executorch.backends.arm.tosa:TosaSpecification",
    "executorch.backends.arm.tosa.compile_spec:TosaCompileSpec",
    "executorch.backends.arm.vgf:VgfCompileSpec",
    "executorch.backends.cortex_m.edge_compile_config:cortex_m_edge_compile_config",
    "executorch.backends.cortex_m.passes.cortex_m_pass_manager:CortexMPassManager",
    "executorch.backends.cortex_m.quantizer.quantizer:CortexMQuantizer",
    "executorch.backends.cortex_m.target_config:CortexMTargetConfig",
    "executorch.devtools.visualization.visualization_utils:visualize_with_clusters",
}


@cache
def modules() -> frozenset[str]:
    """All modules that can be imported: those with names, and their parent packages."""
    paths = [*TABLE, *(name.partition(":")[0] for name in IMPORT_ONLY)]
    return frozenset(".".join(parts[:n]) for parts in (m.split(".") for m in paths) for n in range(1, len(parts) + 1))


def is_executorch_only(module: str) -> bool:
    """True for ExecuTorch's own scripts, which run unchanged with redirected imports."""
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in EXECUTORCH_ONLY)


def counterpart(module: str, name: str) -> tuple[str, str] | None:
    """Edgewright's module and name for a name of ExecuTorch, or None."""
    target = TABLE.get(module, {}).get(name)
    if target is None:
        return None
    module_name, _, other = target.partition(":")
    return module_name, other or name


def nearest_equivalent(module: str, name: str = "") -> str:
    """The nearest equivalent of a name without a counterpart, as a sentence; never empty for known packages."""
    exact = ABSENT.get(f"{module}:{name}") if name else None
    parts = module.split(".")
    enclosing = (ABSENT.get(".".join(parts[:n])) for n in range(len(parts), 0, -1))
    return exact or next((text for text in enclosing if text), "")
