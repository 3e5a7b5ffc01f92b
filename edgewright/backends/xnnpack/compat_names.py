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

NAMES = CompatNames(
    names={
        _ET: {**_PARTITIONERS, **_XNNPACK_CONFIGS},
        f"{_ET}.partition.config.xnnpack_config": {"ConfigPrecisionType": _XNNPACK},
        f"{_ET}.partition.xnnpack_partitioner": _PARTITIONERS,
        f"{_ET}.quantizer.xnnpack_quantizer": {
            "XNNPACKQuantizer": _XNNPACK,
            "get_symmetric_quantization_config": _XNNPACK,
        },
        f"{_ET}.utils.configs": _XNNPACK_CONFIGS,
    },
)
