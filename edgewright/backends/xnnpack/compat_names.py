"""ExecuTorch's names of the XNNPACK backend, and their equivalents here."""

from __future__ import annotations

from edgewright.backends.info import CompatNames, from_module

_ET = "executorch.backends.xnnpack"
_XNNPACK = "edgewright.backends.xnnpack"
_PARTITIONERS = {
    **from_module(_XNNPACK, "XnnpackPartitioner XnnpackFloatingPointPartitioner"),
    **from_module(_XNNPACK, "XnnpackQuantizedPartitioner XnnpackDynamicallyQuantizedPartitioner"),
}
_XNNPACK_CONFIGS = {
    **from_module(f"{_XNNPACK}.compat", "get_transform_passes"),
    **from_module(f"{_XNNPACK}.compat", "get_xnnpack_edge_compile_config get_xnnpack_executorch_backend_config"),
}
_CONFIG_MODULES = {
    "gemm_configs": "AddmmConfig ConvolutionConfig LinearConfig MMConfig",
    "generic_node_configs": (
        "AbsConfig AddConfig AvgPoolingConfig BMMConfig CatConfig CeilConfig ClampConfig CloneConfig "
        "CloneDimOrderConfig ConstantPadConfig CosConfig DeQuantizedPerTensorConfig DivConfig EluConfig ExpConfig "
        "FloorConfig GeluConfig "
        "HardswishConfig HardtanhConfig LeakyReLUConfig LogConfig MaximumConfig MaxPool2dConfig MeanDimConfig "
        "MinimumConfig MulConfig NegConfig PermuteConfig PowConfig QuantizedPerTensorConfig ReciprocalSquareRootConfig "
        "ReLUConfig SigmoidConfig SinConfig SliceCopyConfig SoftmaxConfig SquareRootConfig SubConfig TanhConfig "
        "ToDimOrderCopyConfig UnsqueezeCopyConfig UpsampleBilinear2dConfig ViewCopyConfig"
    ),
    "node_configs": "BatchNormConfig MaxDimConfig PreluConfig",
    "quant_affine_configs": "ChooseQParamsAffineConfig DeQuantizeAffineConfig QuantizeAffineConfig",
}
_BASE = {"XNNPartitionerConfig": "edgewright.backends.table:OperatorConfig"}
_CONFIGS = {name: from_module(_XNNPACK, names) for name, names in _CONFIG_MODULES.items()}

NAMES = CompatNames(
    names={
        _ET: {**_PARTITIONERS, **_XNNPACK_CONFIGS},
        f"{_ET}.partition.config": {
            **{name: module for names in _CONFIGS.values() for name, module in names.items()},
            **from_module(f"{_XNNPACK}.configs", "ALL_PARTITIONER_CONFIGS"),
            **_BASE,
        },
        f"{_ET}.partition.config.xnnpack_config": {"ConfigPrecisionType": _XNNPACK, **_BASE},
        **{f"{_ET}.partition.config.{module}": names for module, names in _CONFIGS.items()},
        f"{_ET}.partition.xnnpack_partitioner": _PARTITIONERS,
        f"{_ET}.quantizer.xnnpack_quantizer": {
            "XNNPACKQuantizer": _XNNPACK,
            "get_symmetric_quantization_config": _XNNPACK,
        },
        f"{_ET}.utils.configs": _XNNPACK_CONFIGS,
    },
    absent={
        f"{_ET}.partition.config": "LinearConfig and the like select operators; exclude=[...] of a partitioner leaves "
        "some out by rules of your own",
    },
)
