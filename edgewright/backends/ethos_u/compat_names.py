"""ExecuTorch's names of the Ethos-U backend, and their equivalents here."""

from __future__ import annotations

from edgewright.backends.info import CompatNames, from_module

_ET = "executorch.backends.arm"
_M = "executorch.backends.cortex_m"
_CORTEX_M = "portable programs run on a Cortex-M; kernels of CMSIS-NN are not a target"
_ARM = "edgewright.backends.ethos_u"
_ARM_QUANTIZER = {
    **from_module(_ARM, "EthosUQuantizer get_symmetric_quantization_config get_uint8_io_quantization_config"),
    **from_module(_ARM, "get_symmetric_a16w8_quantization_config get_symmetric_a8w4_quantization_config"),
}
_CONFIG = from_module("edgewright.quantize.recipes", "QuantizationConfig")

NAMES = CompatNames(
    names={
        f"{_ET}.arm_backend": {"ArmCompileSpecBuilder": _ARM},
        f"{_ET}.arm_partitioner": {"ArmPartitioner": f"{_ARM}:EthosUPartitioner"},
        f"{_ET}.common.arm_compile_spec": {"ArmCompileSpec": f"{_ARM}:EthosUCompileSpec"},
        f"{_ET}.common.pipeline_config": from_module(
            f"{_ARM}.compat",
            "ArmPassPipelineConfig LeakyReLULoweringConfig QuantizeInfConfig SDPASafeSoftmaxGuardPolicy "
            "SoftmaxDecompositionConfig",
        ),
        f"{_ET}.ethosu": {"EthosUCompileSpec": _ARM, "EthosUPartitioner": _ARM},
        f"{_ET}.ethosu.compile_spec": {"EthosUCompileSpec": _ARM},
        f"{_ET}.ethosu.partitioner": {"EthosUPartitioner": _ARM},
        f"{_ET}.ethosu_partitioner": {"EthosUPartitioner": _ARM},
        f"{_ET}.quantizer": {**_ARM_QUANTIZER, **_CONFIG},
        f"{_ET}.quantizer.arm_quantizer": _ARM_QUANTIZER,
        f"{_ET}.quantizer.quantization_config": _CONFIG,
        f"{_ET}.util._factory": from_module(f"{_ARM}.compat", "create_partitioner create_quantizer"),
        f"{_M}.passes.replace_quant_nodes_pass": from_module(f"{_ARM}.compat", "ReplaceQuantNodesPass"),
    },
    absent={
        _ET: "edgewright.backends.ethos_u compiles for Ethos-U",
        f"{_ET}.quantizer.arm_quantizer:ArmQuantizer": "EthosUQuantizer(compile_spec) of the same module",
        f"{_ET}.quantizer:TOSAQuantizer": "EthosUQuantizer, and edgewright.backends.ethos_u.export_tosa",
        f"{_ET}.quantizer.arm_quantizer:TOSAQuantizer": "EthosUQuantizer and export_tosa",
        f"{_ET}.quantizer:VgfQuantizer": "EthosUQuantizer",
        f"{_ET}.tosa": "edgewright.backends.ethos_u.export_tosa writes TOSA files",
        f"{_ET}.util.arm_model_evaluator": "`edgewright compile` reports sizes, memory and differences",
        f"{_ET}.vgf": "edgewright.backends.ethos_u compiles for Ethos-U; Vulkan's VGF is not a target",
        f"{_ET}.vgf_partitioner": "EthosUPartitioner; Vulkan's VGF is not a target",
        _M: _CORTEX_M,
    },
    import_only=frozenset(
        {
            f"{_ET}.tosa:TosaSpecification",
            f"{_ET}.tosa.compile_spec:TosaCompileSpec",
            f"{_ET}.vgf:VgfCompileSpec",
            f"{_M}.edge_compile_config:cortex_m_edge_compile_config",
            f"{_M}.passes.cortex_m_pass_manager:CortexMPassManager",
            f"{_M}.quantizer.quantizer:CortexMQuantizer",
            f"{_M}.target_config:CortexMTargetConfig",
        }
    ),
    scripts=(f"{_ET}.scripts",),
)
