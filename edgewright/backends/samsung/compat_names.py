"""ExecuTorch's names of the Samsung backend, and their equivalents here."""

from __future__ import annotations

from edgewright.backends.info import CompatNames, from_module

_ET = "executorch.backends.samsung"
_ENN = "edgewright.backends.samsung"

NAMES = CompatNames(
    names={
        f"{_ET}.partition.enn_partitioner": from_module(_ENN, "EnnPartitioner"),
        f"{_ET}.quantizer": from_module(_ENN, "EnnQuantizer Precision"),
        f"{_ET}.quantizer.qconfig": from_module(_ENN, "Precision get_quant_config"),
        f"{_ET}.quantizer.quantizer": from_module(_ENN, "EnnQuantizer Precision"),
        f"{_ET}.serialization.compile_options": {
            **from_module(
                _ENN, "COMPILE_OPTION_SCHEMA_NAME ENN_COMPILE_OPTION_TITLE EnnExecuTorchOptions PerformanceMode"
            ),
            **from_module(
                _ENN, "SamsungChipset gen_samsung_backend_compile_spec gen_samsung_backend_compile_spec_core"
            ),
        },
        f"{_ET}.utils.export_utils": from_module(
            _ENN, "get_edge_compile_config quantize_module to_edge_transform_and_lower_to_enn"
        ),
    },
    absent={
        _ET: "edgewright.backends.samsung",
        f"{_ET}.test": "`edgewright device` runs a file on a device",
    },
)
