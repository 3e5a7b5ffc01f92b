"""A bench for every public function and class of the backends that takes options, and a value for every option that is
not its default."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torchao.quantization.pt2e import MinMaxObserver

import edgewright as ew
from edgewright.api.image_data import ImageOptions
from edgewright.backends import ethos_u, nxp, qualcomm, samsung, xnnpack
from edgewright.backends.ethos_u.compat import ArmPassPipelineConfig, SoftmaxDecompositionConfig
from edgewright.backends.qualcomm import QuantDtype
from edgewright.backends.registry import find_backend
from edgewright.backends.xnnpack.partitioner import ConfigPrecisionType
from edgewright.formats.operator_signatures import OPERATORS
from edgewright.lowering.partition import DontPartition
from edgewright.quantize.recipes import symmetric_config
from tests.backends import flip_bench as bench
from tests.backends.flip_bench import QNN, Bench, Seen, X, lowered, quantized, quantized_for, with_config

aten = torch.ops.aten
FOLDER = "(a folder)"  # a value that the bench replaces
EXCLUDED = [DontPartition("linear")]


# ---------------------------------------------------------------------------------------------------------- XNNPACK


def _xnnpack_partitioner(**options: Any) -> Seen:
    return lowered(bench.exported(), lambda: xnnpack.XnnpackPartitioner(**options))


def _xnnpack_config(**options: Any) -> Seen:
    return with_config("xnnpack", xnnpack.get_symmetric_quantization_config(**options))


# ---------------------------------------------------------------------------------------------------------- Ethos-U


def _ethos_lowered(make: Callable[[str], Any], folder: str) -> Seen:
    return lowered(quantized_for("ethos_u"), lambda: ethos_u.EthosUPartitioner(make(folder)), folder)


def _ethos_options(options: dict[str, Any], folder: str) -> dict[str, Any]:
    chosen = {name: folder if value == FOLDER else value for name, value in options.items()}
    if "config_ini" in chosen:
        chosen["config_ini"] = str(Path(folder, "vela.ini"))
        Path(chosen["config_ini"]).write_text(INI)
        chosen |= {"system_config": "Mine", "memory_mode": "Mine"}
    return chosen


def _ethos_spec(**options: Any) -> Seen:
    return bench.in_folder(
        lambda f: _ethos_lowered(
            lambda folder: ethos_u.EthosUCompileSpec("ethos-u55-128", **_ethos_options(options, folder)), f
        )
    )


def _ethos_builder(**options: Any) -> Seen:
    return bench.in_folder(
        lambda f: _ethos_lowered(
            lambda folder: (
                ethos_u.ArmCompileSpecBuilder()
                .ethosu_compile_spec("ethos-u55-128", **_ethos_options(options, folder))
                .build()
            ),
            f,
        )
    )


def _ethos_method(kind: type) -> Bench:
    """Methods of the compile spec, or of its builder: by name, with the argument."""

    def made(folder: str, calls: dict[str, Any]) -> Any:
        spec: Any = ethos_u.EthosUCompileSpec("ethos-u55-128")
        if kind is ethos_u.ArmCompileSpecBuilder:
            spec = ethos_u.ArmCompileSpecBuilder().ethosu_compile_spec("ethos-u55-128")
        if "dump_debug_info" in calls:
            spec = spec.dump_intermediate_artifacts_to(folder)
        for name, argument in calls.items():
            spec = getattr(spec, name)(folder if argument == FOLDER else argument) or spec
        return spec.build() if kind is ethos_u.ArmCompileSpecBuilder else spec

    return lambda **calls: bench.in_folder(lambda f: _ethos_lowered(lambda folder: made(folder, calls), f))


def _ethos_partitioner(**options: Any) -> Seen:
    registered = options.pop("register_custom_partition_op", None)

    def made() -> Any:
        partitioner = ethos_u.EthosUPartitioner(bench.ETHOS, **options)
        if registered is not None:
            partitioner.register_custom_partition_op(registered)
        return partitioner

    return lowered(quantized_for("ethos_u"), made)


def _ethos_quantizer(**options: Any) -> Seen:
    def lower() -> Any:
        quantizer = ethos_u.EthosUQuantizer(bench.ETHOS, **options)
        quantizer.set_global(ethos_u.get_symmetric_quantization_config())
        partitioner = bench.PARTITIONERS["ethos_u"]()
        return ew.to_edge_transform_and_lower(quantized(quantizer), partitioner=[partitioner])

    return bench.seen(lower)


def _ethos_config(function: Any, scale: float = 1.0) -> Bench:
    return lambda **options: with_config("ethos_u", function(**{"is_qat": False, **options}), scale)


def _ethos_io(**options: Any) -> Seen:
    config = ethos_u.get_uint8_io_quantization_config(**options)
    return bench.with_quantizer("ethos_u", lambda quantizer: quantizer.set_io(config))


INI = """[System_Config.Mine]
core_clock=500e6
axi0_port=Sram
axi1_port=OffChipFlash
Sram_clock_scale=0.5
Sram_burst_length=32
Sram_read_latency=32
Sram_write_latency=32
OffChipFlash_clock_scale=0.125
OffChipFlash_burst_length=128
OffChipFlash_read_latency=64
OffChipFlash_write_latency=64
[Memory_Mode.Mine]
const_mem_area=Axi1
arena_mem_area=Axi0
cache_mem_area=Axi0
"""

# --------------------------------------------------------------------------------------------------------- Qualcomm


def _qnn_lowered(specs: Any, **options: Any) -> Seen:
    return lowered(bench.exported(), lambda: qualcomm.QnnPartitioner(specs, **{"simulate_only": True, **options}))


def _htp_spec(**options: Any) -> Seen:
    htp = qualcomm.generate_htp_compiler_spec(True, **options)
    return _qnn_lowered(qualcomm.generate_qnn_executorch_compiler_spec("SM8650", htp))


def _qnn_spec(**options: Any) -> Seen:
    return _qnn_lowered(qualcomm.generate_qnn_executorch_compiler_spec("SM8650", bench.QNN_FP16, **options))


def _qnn_partitioner(**options: Any) -> Seen:
    if "integer_state" in options:
        quantizer = qualcomm.QnnQuantizer("SM8650")
        program = quantized(quantizer, bench.Cached(), bench.STEP)
        return lowered(program, lambda: qualcomm.QnnPartitioner(QNN, simulate_only=True, **options))
    return _qnn_lowered(QNN, **({"simulate_only": False} if "optimization_level" in options else {}), **options)


def _qnn_one_call(**options: Any) -> Seen:
    from edgewright.lowering.partition.simulation import simulate_only

    with simulate_only("optimization_level" not in options):
        if "integer_state" in options:
            module = quantized(qualcomm.QnnQuantizer("SM8650"), bench.Cached(), bench.STEP).module()
            return bench.seen(lambda: qualcomm.to_edge_transform_and_lower_to_qnn(module, bench.STEP, QNN, **options))
        return bench.seen(lambda: qualcomm.to_edge_transform_and_lower_to_qnn(bench.Net().eval(), X, QNN, **options))


def _qnn_config(**options: Any) -> Seen:
    return with_config("qualcomm", qualcomm.get_qnn_quantization_config(**options))


def _qnn_default(**options: Any) -> Seen:
    return bench.with_quantizer("qualcomm", lambda quantizer: quantizer.set_default_quant_config(**options))


def _qnn_module(**options: Any) -> Seen:
    config = qualcomm.ModuleQConfig(**options)
    return bench.with_quantizer(
        "qualcomm", lambda quantizer: quantizer.set_submodule_qconfig_list([(lambda node: True, config)])
    )


def _qnn_quantizer(**options: Any) -> Seen:
    quantizer = qualcomm.QnnQuantizer(**options)
    quantizer.set_default_quant_config(QuantDtype.use_16a16w)  # which older chips do not have
    return lowered(quantized(quantizer), bench.PARTITIONERS["qualcomm"])


def _annotate_nothing(module: torch.fx.GraphModule) -> None:
    """Leaves the linear layer in floating point: an annotation without quantization."""
    from torchao.quantization.pt2e.quantizer import QuantizationAnnotation
    from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY

    for node in module.graph.nodes:
        if node.target == aten.linear.default:
            node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(_annotated=True)


def _coarser_weights(module: torch.fx.GraphModule) -> None:
    from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY

    (layer,) = (node for node in module.graph.nodes if node.target == aten.linear.default)
    specs = layer.meta[Q_ANNOTATION_KEY].input_qspec_map
    weight = layer.args[1]
    specs[weight] = replace(specs[weight], quant_min=-7, quant_max=7)


def _blocks(quantizer: Any) -> None:
    quantizer.set_default_quant_config(QuantDtype.use_16a4w_block)
    quantizer.set_block_size_map({"linear": (1, 24)})


# ---------------------------------------------------------------------------------------------------------- Samsung


def _enn_spec(**options: Any) -> Seen:
    spec = samsung.gen_samsung_backend_compile_spec("E9955", **{"simulate_only": True, **options})
    return lowered(bench.exported(), lambda: samsung.EnnPartitioner([spec]))


def _enn_options(**options: Any) -> Seen:
    chosen = {"chipset": samsung.SamsungChipset.E9955, "simulate_only": True, **options}
    spec = samsung.gen_samsung_backend_compile_spec_core(samsung.EnnExecuTorchOptions(**chosen))
    return lowered(bench.exported(), lambda: samsung.EnnPartitioner([spec]))


def _enn_partitioner(**options: Any) -> Seen:
    return lowered(bench.exported(), lambda: samsung.EnnPartitioner(**{"compile_specs": [bench.ENN], **options}))


def _enn_config(**options: Any) -> Seen:
    return with_config("samsung", samsung.get_quant_config(samsung.Precision.A8W8, **options))


def _enn_params(name: str) -> Bench:
    return lambda **options: bench.with_quantizer(
        "samsung", lambda quantizer: getattr(quantizer, name)(samsung.Precision.A8W8, **options)
    )


def _enn_module(**options: Any) -> Seen:
    module = samsung.quantize_module(bench.Net().eval(), X, [X], samsung.Precision.A8W8, **options)
    return lowered(torch.export.export(module, X), bench.PARTITIONERS["samsung"])


def _enn_one_call(**options: Any) -> Seen:
    chosen = {"compile_specs": [bench.ENN], **options}
    return bench.seen(lambda: samsung.to_edge_transform_and_lower_to_enn(bench.Net().eval(), X, **chosen))


def _without_relu(module: torch.fx.GraphModule) -> None:
    for node in list(module.graph.nodes):
        if node.target == aten.relu.default:
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)
    module.recompile()


# -------------------------------------------------------------------------------------------------------------- NXP


def _nxp_lowered(**options: Any) -> Seen:
    chosen = {"compile_spec": bench.NEUTRON, **options}
    return lowered(quantized_for("nxp"), lambda: nxp.NeutronPartitioner(**chosen))


def _nxp_spec(make: Callable[..., Any]) -> Bench:
    def run(folder: str, options: dict[str, Any]) -> Seen:
        chosen = {name: folder if value == FOLDER else value for name, value in options.items()}
        spec = make(**{"config": "imxrt700", "simulate_only": True, **chosen})
        return lowered(quantized_for("nxp"), lambda: nxp.NeutronPartitioner(spec), folder)

    return lambda **options: bench.in_folder(lambda folder: run(folder, options))


def _nxp_partitioner(**options: Any) -> Seen:
    if "neutron_target_spec" in options:
        options["neutron_target_spec"] = nxp.NeutronTargetSpec(options["neutron_target_spec"])
    if "custom_delegation_options" in options:
        return _nxp_delegation(**vars(options["custom_delegation_options"]))
    return _nxp_lowered(**options)


def _nxp_delegation(**options: Any) -> Seen:
    program = quantized(nxp.NeutronQuantizer(), bench.Moves())
    chosen = nxp.CustomDelegationOptions(**options)
    return lowered(program, lambda: nxp.NeutronPartitioner(bench.NEUTRON, custom_delegation_options=chosen))


def _nxp_quantizer(**options: Any) -> Seen:
    if "neutron_target_spec" in options:
        options["neutron_target_spec"] = nxp.NeutronTargetSpec(options["neutron_target_spec"])
    return lowered(quantized(nxp.NeutronQuantizer(**options)), bench.PARTITIONERS["nxp"])


def _nxp_calibrate(**options: Any) -> Seen:
    quantizer = nxp.NeutronQuantizer(is_qat="train_fn" in options)
    module = nxp.calibrate_and_quantize(bench.exported(), [X], quantizer, **options)
    return lowered(torch.export.export(module, X), bench.PARTITIONERS["nxp"])


def _nxp_target(target: str | None = None) -> Any:
    return nxp.NeutronTargetSpec(*([] if target is None else [target])).name


def _nxp_passes(**options: Any) -> str:
    """The graph of another quantizer, which leaves data movement without scales."""
    module = quantized_for("xnnpack").module()
    for node in module.graph.nodes:
        if node.op == "call_function" and "val" not in node.meta:
            return "no values"
    return str(nxp.NeutronEdgePassManager(**options)(module).graph)


def _nxp_tflite(**options: Any) -> list[bytes]:
    return nxp.export_tflite(quantized_for("nxp"), **options)


# ------------------------------------------------------------------------------------------------------- all of them

BENCHES: dict[str, Bench] = {
    "xnnpack.XnnpackPartitioner": _xnnpack_partitioner,
    "xnnpack.get_symmetric_quantization_config": _xnnpack_config,
    "ethos_u.ArmCompileSpecBuilder": _ethos_method(ethos_u.ArmCompileSpecBuilder),
    "ethos_u.ArmCompileSpecBuilder.ethosu_compile_spec": _ethos_builder,
    "ethos_u.EthosUCompileSpec": lambda **options: (
        _ethos_method(ethos_u.EthosUCompileSpec)(**options) if set(options) & METHODS else _ethos_spec(**options)
    ),
    "ethos_u.EthosUPartitioner": _ethos_partitioner,
    "ethos_u.EthosUQuantizer": _ethos_quantizer,
    "ethos_u.get_symmetric_quantization_config": _ethos_config(ethos_u.get_symmetric_quantization_config),
    "ethos_u.get_symmetric_a16w8_quantization_config": _ethos_config(
        ethos_u.get_symmetric_a16w8_quantization_config, 1000.0
    ),
    "ethos_u.get_symmetric_a8w4_quantization_config": _ethos_config(ethos_u.get_symmetric_a8w4_quantization_config),
    "ethos_u.get_uint8_io_quantization_config": _ethos_io,
    "qualcomm.ModuleQConfig": _qnn_module,
    "qualcomm.QnnPartitioner": _qnn_partitioner,
    "qualcomm.QnnQuantizer": _qnn_quantizer,
    "qualcomm.QnnQuantizer.set_default_quant_config": _qnn_default,
    "qualcomm.generate_htp_compiler_spec": _htp_spec,
    "qualcomm.generate_qnn_executorch_compiler_spec": _qnn_spec,
    "qualcomm.get_qnn_quantization_config": _qnn_config,
    "qualcomm.to_edge_transform_and_lower_to_qnn": _qnn_one_call,
    "samsung.EnnExecuTorchOptions": _enn_options,
    "samsung.EnnPartitioner": _enn_partitioner,
    "samsung.EnnQuantizer.set_quant_params": _enn_params("set_quant_params"),
    "samsung.EnnQuantizer.setup_quant_params": _enn_params("setup_quant_params"),
    "samsung.gen_samsung_backend_compile_spec": _enn_spec,
    "samsung.get_quant_config": _enn_config,
    "samsung.quantize_module": _enn_module,
    "samsung.to_edge_transform_and_lower_to_enn": _enn_one_call,
    "nxp.CustomDelegationOptions": _nxp_delegation,
    "nxp.NeutronCompileSpecBuilder.neutron_compile_spec": _nxp_spec(
        lambda *a, **o: nxp.NeutronCompileSpecBuilder().neutron_compile_spec(*a, **o).build()
    ),
    "nxp.NeutronEdgePassManager": _nxp_passes,
    "nxp.NeutronPartitioner": _nxp_partitioner,
    "nxp.NeutronQuantizer": _nxp_quantizer,
    "nxp.NeutronTargetSpec": _nxp_target,
    "nxp.calibrate_and_quantize": _nxp_calibrate,
    "nxp.export_tflite": _nxp_tflite,
    "nxp.generate_neutron_compile_spec": _nxp_spec(nxp.generate_neutron_compile_spec),
}
METHODS = {"dump_debug_info", "dump_intermediate_artifacts_to", "with_allocator", "set_output_order_workaround",
           "set_pass_pipeline_config"}  # fmt: skip

_RANGE = {"is_qat": True, "act_qmin": -100, "act_qmax": 100, "weight_qmin": -100, "weight_qmax": 100}
_SCHEME = {
    "quant_dtype": QuantDtype.use_16a8w, "is_qat": True, "is_conv_per_channel": True, "is_linear_per_channel": True,
    "is_embedding_per_channel": True, "act_observer": MinMaxObserver, "act_symmetric": True, "eps": 0.5,
}  # fmt: skip
_VELA = {
    "system_config": "Ethos_U55_Deep_Embedded", "memory_mode": "Sram_Only", "extra_flags": "--optimise=Size",
    "config_ini": "vela.ini",
}  # fmt: skip
_NEUTRON = {
    "extra_flags": "--verbose", "intermediates_dir": FOLDER, "operators_not_to_delegate": ["aten_addmm", "linear"],
    "use_neutron_for_format_conversion": False, "fetch_constants_to_sram": True, "dump_kernel_selection_code": True,
    "use_profiling": True,
}  # fmt: skip
FLIPS: dict[str, dict[str, Any]] = {
    "xnnpack.XnnpackPartitioner": {
        "configs": ["LinearConfig"], "config_precisions": ConfigPrecisionType.STATIC_QUANT, "per_op_mode": True,
        "verbose": True, "exclude": EXCLUDED, "force_non_static_weights_for_f32_linear": True,
    },
    "xnnpack.get_symmetric_quantization_config": {"is_per_channel": True, "is_dynamic": True, **_RANGE},
    "ethos_u.ArmCompileSpecBuilder": {
        "dump_debug_info": ethos_u.EthosUCompileSpec.DebugMode.JSON, "dump_intermediate_artifacts_to": FOLDER,
    },
    "ethos_u.ArmCompileSpecBuilder.ethosu_compile_spec": _VELA,
    "ethos_u.EthosUCompileSpec": {
        **_VELA, "intermediates": FOLDER, "dump_debug_info": ethos_u.EthosUCompileSpec.DebugMode.JSON,
        "dump_intermediate_artifacts_to": FOLDER, "with_allocator": "LinearAlloc",
        "set_output_order_workaround": True,
        "set_pass_pipeline_config": ArmPassPipelineConfig(SoftmaxDecompositionConfig.STABLE),
    },
    "ethos_u.EthosUPartitioner": {
        "additional_checks": EXCLUDED, "verbose": True, "verify": True,
        "register_custom_partition_op": aten.histc.default,
    },
    "ethos_u.EthosUQuantizer": {"use_composable_quantizer": False},
    "ethos_u.get_symmetric_quantization_config": {"is_per_channel": False, "is_dynamic": True, **_RANGE, "eps": 0.5},
    "ethos_u.get_symmetric_a16w8_quantization_config": {
        "is_per_channel": False, "is_qat": True, "is_dynamic": True, "weight_qmin": -100, "weight_qmax": 100,
        "epsilon": 50.0,
    },
    "ethos_u.get_symmetric_a8w4_quantization_config": {"is_per_channel": False, "is_qat": True, "is_dynamic": True},
    "ethos_u.get_uint8_io_quantization_config": {"is_qat": True, "is_dynamic": True, "eps": 0.5},
    "qualcomm.ModuleQConfig": _SCHEME,
    "qualcomm.QnnPartitioner": {
        "skip_node_id_set": {"linear"}, "skip_node_op_set": {"aten.linear.default"}, "skip_mutable_buffer": True,
        "exclude": EXCLUDED, "verbose": True, "simulate_only": False, "optimization_level": 1, "integer_state": False,
    },
    "qualcomm.QnnQuantizer": {"soc_model": "SM8350"},
    "qualcomm.QnnQuantizer.set_default_quant_config": _SCHEME,
    "qualcomm.generate_htp_compiler_spec": {
        "use_dlbc": True, "use_multi_contexts": True, "use_weight_sharing": True, "use_slc_allocator": True,
        "htp_performance_mode": 1,
    },
    "qualcomm.generate_qnn_executorch_compiler_spec": {
        "debug": True, "saver": True, "online_prepare": True, "dump_intermediate_outputs": True, "profile_level": 2,
        "shared_buffer": True, "is_from_context_binary": True, "op_package_options": object(), "use_mha2sha": True,
        "vtcm_mb": 4,
    },
    "qualcomm.get_qnn_quantization_config": {
        "quant_dtype": QuantDtype.use_16a8w, "is_per_channel": False, "is_qat": True, "act_observer": MinMaxObserver,
        "eps": 0.5, "act_symmetric": True,
    },
    "qualcomm.to_edge_transform_and_lower_to_qnn": {
        "constant_methods": {"length": 3}, "dynamic_shapes": ({2: torch.export.Dim.AUTO},),
        "skip_node_id_set": {"linear"}, "skip_node_op_set": {"aten.linear.default"}, "optimization_level": 1,
        "transform_passes": [_without_relu], "integer_state": False,
    },
    "samsung.EnnExecuTorchOptions": {
        "chipset": samsung.SamsungChipset.E9965, "perf_mode": samsung.PerformanceMode.HIGH_PERFORMANCE,
        "simulate_only": False,
    },
    "samsung.EnnPartitioner": {"compile_specs": None, "exclude": EXCLUDED, "verbose": True},
    "samsung.EnnQuantizer.set_quant_params": {"is_per_channel": False, "is_qat": True},
    "samsung.EnnQuantizer.setup_quant_params": {"is_per_channel": False, "is_qat": True},
    "samsung.gen_samsung_backend_compile_spec": {
        "perf_mode": samsung.PerformanceMode.HIGH_PERFORMANCE, "simulate_only": False,
    },
    "samsung.get_quant_config": {"is_per_channel": True, "is_qat": True},
    "samsung.quantize_module": {"is_per_channel": False, "is_qat": True, "train_fn": lambda module: module},
    "samsung.to_edge_transform_and_lower_to_enn": {"custom_pass_config": [_without_relu], "compile_specs": None},
    "nxp.CustomDelegationOptions": {"allow_no_op_partitions": True},
    "nxp.NeutronCompileSpecBuilder.neutron_compile_spec": {"config": "imx95", **_NEUTRON},
    "nxp.NeutronEdgePassManager": {"passes": [_without_relu]},
    "nxp.NeutronPartitioner": {
        "compile_spec": nxp.generate_neutron_compile_spec("imxrt700", simulate_only=True, use_profiling=True),
        "neutron_target_spec": "imx95", "custom_delegation_options": nxp.CustomDelegationOptions(True),
        "post_quantization_state_dict": {"conv.bias": torch.zeros(8)}, "preserve_ops": [aten.histc.default],
        "check_op_support": lambda node: True, "verbose": True,
    },
    "nxp.NeutronQuantizer": {"neutron_target_spec": "imx95", "is_qat": True, "per_channel": False},
    "nxp.NeutronTargetSpec": {"target": "imx95"},
    "nxp.calibrate_and_quantize": {"is_qat": True, "train_fn": lambda module: module},
    "nxp.export_tflite": {"target": "imx95"},
    "nxp.generate_neutron_compile_spec": {
        "config": "imx95", "system_config": "x", **_NEUTRON, "neutron_converter_flavor": "SDK_25_12",
        "simulate_only": False, "numerics": "xnnpack",
    },
}  # fmt: skip

# Settings of quantizers, for all backends that have them: what is done to a quantizer.
WITHOUT_ROLL = sorted(set(OPERATORS) - {"aten::roll.out"})
SETTERS: dict[str, Callable[[Any], Any]] = {
    "set_global": lambda q: q.set_global(None),
    "set_module_name": lambda q: q.set_module_name("head", None),
    "set_module_type": lambda q: q.set_module_type(torch.nn.Linear, None),
    "set_object_type": lambda q: q.set_object_type(torch.nn.functional.linear, None),
    "set_operator_type": lambda q: q.set_operator_type(aten.linear.default, None),
    "set_node_name": lambda q: q.set_node_name("linear", None),
    "set_node_target": lambda q: q.set_node_target(aten.linear.default, None),
    "set_node_finder": lambda q: q.set_node_finder(lambda node: "linear" in node.name, None),
    "set_io": lambda q: q.set_io(symmetric_config(activation=(-90, 90))),
    "set_filter_function": lambda q: q.set_filter_function(lambda node: "linear" not in node.name),
    "set_runtime": lambda q: q.set_runtime(WITHOUT_ROLL),  # of ``Rolled``
    "add_quantizer": lambda q: q.add_quantizer(_other(q)),
    "add_custom_quant_annotations": lambda q: q.add_custom_quant_annotations(
        [_coarser_weights if q.backend.name == "samsung" else _annotate_nothing]  # after the others, and before them
    ),
    "add_discard_nodes": lambda q: q.add_discard_nodes(["linear"]),
    "add_discard_ops": lambda q: q.add_discard_ops([aten.linear.default]),
    "set_block_size_map": _blocks,
    "set_default_quant_config": lambda q: q.set_default_quant_config(QuantDtype.use_16a8w),
    "set_submodule_qconfig_list": lambda q: q.set_submodule_qconfig_list([(lambda node: "linear" in node.name, None)]),
    "setup_precision": lambda q: q.setup_precision(samsung.Precision.A16W16),
    "setup_quant_params": lambda q: q.setup_quant_params(samsung.Precision.A16W16),
    "set_quant_params": lambda q: q.set_quant_params(samsung.Precision.A16W16),
}


def _other(quantizer: Any) -> Any:
    """Another quantizer of the class, with another scheme."""
    other = bench.QUANTIZERS[quantizer.backend.name]()
    other.by_operator.clear()
    schemes = list(quantizer.presets.values())
    return other.set_global(schemes[-1]() if len(schemes) > 1 else symmetric_config(is_per_channel=False))


# Words of the error that rejects an option, where it has neither the option's name nor the value.
ABOUT: dict[str, tuple[str, ...]] = {
    "nxp.calibrate_and_quantize.is_qat": ("train_fn: is required for quantization-aware training",),
    "samsung.EnnPartitioner.compile_specs": ("Exynos AI LiteCore: is not installed",),  # None: for the Exynos 2500
}

# Options that cannot make a difference of their own, and why.
EXEMPT = {
    "nxp.RemoveIOQuantOpsPass.edge_program_manager": "the pass reads the module that it is called with",
    "qualcomm.QnnPartitioner.shared": "an object of to_edge_transform_and_lower_to_qnn: use_weight_sharing",
    "qualcomm.QnnPartitioner.spills": "an object of to_edge_transform_and_lower_to_qnn: use_multi_contexts",
    "qualcomm.QnnPartitioner.name_exclusions": "both sets of names, as one object for several methods",
}


# ---------------------------------------------------------------------------------------------------------- compile

TARGETS = {
    "xnnpack": "xnnpack",
    "ethos_u": "ethos-u55-128",
    "qualcomm": "sm8650",
    "samsung": "e9955",
    "nxp": "imxrt700",
}
CALLS = [(X[0] * scale,) for scale in (1.0, 0.5, 2.0, 0.25, 1.5, 0.1)]


def _compiled(backend: str, folder: str, **options: Any) -> tuple[Any, ...]:
    """Everything visible of ``compile``, apart from times."""
    if options.get("calibration") == FOLDER:
        options["calibration"] = _images(folder)
    if not options.pop("float", False):
        options = {"quantize": "int8", "calibration": CALLS, **options}
    options.setdefault("simulate", True if find_backend(backend).simulates else None)
    lines: list[str] = []
    with bench.logged(lines):
        inputs = options.pop("inputs", X)
        result = ew.compile(bench.Net(), inputs, target=TARGETS[backend], **{"quiet": True, **options})
    report = result.report.to_dict()
    report = {name: value for name, value in report.items() if name not in ("stages", "host_ms")}
    methods = {name: r.to_dict() for name, r in result.report.methods.items()}
    return result.program.buffer, result.program.twin, report, methods, lines


def _images(folder: str) -> str:
    for number in range(3):
        Image.fromarray(np.full((16, 16, 3), 40 * number + 7, np.uint8)).save(Path(folder, f"{number}.png"))
    return folder


def compiled(backend: str, **options: Any) -> tuple[Any, ...]:
    with tempfile.TemporaryDirectory() as folder:
        return _compiled(backend, folder, **options)


def _other_net() -> torch.nn.Module:
    net = bench.Net()
    torch.nn.init.zeros_(net.head.weight)
    return net


_IMAGES = {"calibration": FOLDER, "images": ImageOptions((127.0,), (128.0,))}


def _shift(prepared: torch.nn.Module) -> None:
    """Training that changes weights."""
    with torch.no_grad():
        for parameter in prepared.parameters():
            parameter.add_(0.01)


# Of every option: what is passed without it, and with it.
TWO: dict[str, Any] = {"inputs": (X[0].repeat(2, 1, 1, 1),), "calibration": [(X[0].repeat(2, 1, 1, 1),)] * 6}
COMPILE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "quantize": ({"float": True}, {}),
    "calibration": ({}, {"calibration": CALLS[:1] * 6}),
    "recipe": ({}, {"quantize": None, "recipe": {"quantize": "int8", "modules": {"head": "float"}}}),
    "samples": ({}, {"samples": 2}),
    "evaluate": ({}, {"evaluate": 0}),
    "original": ({}, {"original": _other_net()}),
    "metric": ({}, {"metric": lambda model: 0.5}),
    "select": ({"quantize": "int8-best"}, {"quantize": "int8-best", "select": lambda model: 0.5}),
    "train": ({}, {"train": _shift}),
    "simulate": ({"simulate": True}, {"simulate": False}),
    "images": (_IMAGES, {**_IMAGES, "images": ImageOptions((0.0,), (255.0,))}),
    "dynamic_shapes": (TWO, {**TWO, "dynamic_shapes": ({0: torch.export.Dim("n", min=1, max=4)},)}),
    "runtime": ({}, {"runtime": "android-1.3"}),
    "config": ({}, {"config": ew.ExecutorchBackendConfig(manifest=False)}),
    "integer_io": ({}, {"integer_io": True}),
    "check": ({}, {"check": False}),
}
EXEMPT_COMPILE = {"quiet": "progress on a terminal, which commands show"}
