"""ExecuTorch's names of the Qualcomm backend, and their equivalents here."""

from __future__ import annotations

from edgewright.backends.info import CompatNames, from_module

_ET = "executorch.backends.qualcomm"
_QNN = "edgewright.backends.qualcomm"
_QNN_UTILS = {
    **from_module(_QNN, "QcomChipset generate_htp_compiler_spec generate_qnn_executorch_compiler_spec"),
    **from_module(_QNN, "get_soc_to_chipset_map"),
    **from_module(f"{_QNN}.compat", "to_edge_transform_and_lower_to_qnn update_spill_fill_size"),
    **from_module(
        "edgewright.backends.qualcomm.script_helpers", "convert_linear_to_conv2d draw_graph dump_context_from_pte"
    ),
}
_QNN_SCRIPT_HELPERS = "edgewright.backends.qualcomm.script_helpers"
_QNN_PASSES = from_module(_QNN_SCRIPT_HELPERS, "QCOM_PASS_ACTIVATE_KEY QCOM_PASS_ARGS_KWARGS_DEFAULTS_KEY")
# Imported by example scripts at their top, by module; using one is an error that names the nearest equivalent.
_IMPORTED = {
    "_passes": "FoldQDQ I64toI32 SeqMSE TagQuantIO",
    "_passes.build_quant_io": "BuildQuantIo",
    "_passes.qnn_pass_manager": "FoldQDQ I64toI32 TagQuantIO",
    "builders.custom_ops": "_hadamard_matrix",
    "builders.utils": "is_graph_output",
    "custom_op.annotator": "CustomOpsQuantAnnotator IOQuantConfig",
    "custom_op.interface": "QnnCustomOpPackageBuilder",
    "debugger.qcom_numerical_comparator_sample": "QcomCosineSimilarityComparator QcomMSEComparator QcomSQNRComparator",
    "debugger.qnn_intermediate_debugger": "OutputFormat QNNIntermediateDebugger",
    "debugger.utils": "generate_optrace",
    "python.PyQnnManagerAdaptor": "QnnManager",
    "quantizer.custom_annotation": "annotate_eurobert annotate_kv_8bit annotate_mimi_decoder",
    "quantizer.observers.per_channel_param_observer": "PerChannelParamObserverWithLossEvaluation",
    "quantizer.qconfig": "QuantizationConfig _derived_bias_quant_spec",
    "quantizer.quant_recipe": "ByNameRegex ByNodeTarget QuantGranularity QuantRecipe",
    "serialization.qc_schema": "QnnExecuTorchGpuPrecision QnnExecuTorchLpaiTargetEnv QnnExecuTorchOpPackagePlatform "
    "QnnExecuTorchOpPackageTarget _soc_info_table",
    "utils.check_qnn_version": "describe_sdk_build_id is_qnn_sdk_version_less_than",
    "utils.constants": "QCOM_DTYPE QCOM_QUANT_ATTRS_MAP QCOM_QUANT_MAX QCOM_QUANT_MIN QCOM_SCALE QCOM_ZERO_POINT",
    "utils.utils": "QNN_QUANT_TYPE_MAP QNN_TENSOR_TYPE_MAP from_context_binary generate_gpu_compiler_spec "
    "generate_lpai_compiler_spec generate_qnn_executorch_option skip_annotation",
}

NAMES = CompatNames(
    names={
        f"{_ET}._passes.qnn_pass_manager": {
            **_QNN_PASSES,
            "get_qnn_pass_manager_cls": _QNN_SCRIPT_HELPERS,
        },
        f"{_ET}.export_utils": {
            **from_module(
                f"{_QNN}.export_utils", "QnnConfig SimpleADB build_executorch_binary generate_inputs get_backend_type"
            ),
            **from_module(f"{_QNN}.export_utils", "make_quantizer setup_common_args_and_variables"),
            **from_module(_QNN, "QuantDtype QcomChipset"),
        },
        f"{_ET}.partition.qnn_partitioner": {"QnnPartitioner": _QNN},
        f"{_ET}.quantizer.qconfig": {
            "MovingAverageMinMaxObserver": "torchao.quantization.pt2e",
            "get_ptq_per_channel_quant_config": f"{_QNN}.compat",
        },
        f"{_ET}.quantizer.quantizer": {
            "QnnQuantizer": f"{_QNN}.compat",
            **from_module(_QNN, "ModuleQConfig QuantDtype get_submodule_name_predicate get_submodule_type_predicate"),
        },
        f"{_ET}.serialization.qc_schema": {
            "QcomChipset": _QNN,
            "QnnExecuTorchBackendType": f"{_QNN}.compat",
            "QnnExecuTorchHtpPerformanceMode": _QNN,
        },
        f"{_ET}.utils.constants": _QNN_PASSES,
        f"{_ET}.utils.qnn_sdk_setup": {"setup_qnn_sdk": f"{_QNN}.qnn.library:find_folder"},
        f"{_ET}.utils.utils": _QNN_UTILS,
    },
    absent={
        _ET: "edgewright.backends.qualcomm",
        f"{_ET}.custom_op": "operators of your own stay on the CPU: register_kernel runs them here",
        f"{_ET}.debugger": "`edgewright compare` compares layer by layer",
        f"{_ET}.python": "edgewright.backends.qualcomm talks to Qualcomm's libraries itself",
        f"{_ET}._passes": "rows and layouts need no passes; your own go into passes_job",
        f"{_ET}.builders": "OpSpec rows of edgewright.backends.qualcomm.ops",
        f"{_ET}.quantizer.custom_annotation": "set_submodule_qconfig_list of QnnQuantizer; "
        "add_custom_quant_annotations takes functions of your own",
        f"{_ET}.quantizer.observers": "act_observer of set_default_quant_config takes observers of torchao",
        f"{_ET}.quantizer.qconfig": "get_qnn_quantization_config of edgewright.backends.qualcomm",
        f"{_ET}.quantizer.quant_recipe": "recipes: --recipe of `edgewright compile`",
    },
    import_only=frozenset(f"{_ET}.{module}:{name}" for module, names in _IMPORTED.items() for name in names.split()),
    scripts=(f"{_ET}.tests",),
)
