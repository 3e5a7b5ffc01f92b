"""ExecuTorch's names of the NXP backend, and their equivalents here."""

from __future__ import annotations

from edgewright.backends.info import CompatNames, from_module

_ET = "executorch.backends.nxp"
_NXP = "edgewright.backends.nxp"
_NXP_BACKEND = {
    **from_module(_NXP, "NeutronCompileSpecBuilder generate_neutron_compile_spec"),
    **from_module(f"{_NXP}.compat", "core_aten_ops_exception_list"),
}

NAMES = CompatNames(
    names={
        f"{_ET}.backend.custom_delegation_options": {"CustomDelegationOptions": _NXP},
        f"{_ET}.backend.neutron_target_spec": {"NeutronTargetSpec": _NXP},
        f"{_ET}.edge_passes.neutron_edge_pass_manager": {"NeutronEdgePassManager": _NXP},
        f"{_ET}.edge_passes.remove_additional_quantize_dequantize_nodes_pass": {
            "RemoveAdditionalQDQClustersPass": f"{_NXP}.passes",
        },
        f"{_ET}.edge_passes.remove_io_quant_ops_pass": {"RemoveIOQuantOpsPass": f"{_NXP}.passes"},
        f"{_ET}.neutron_partitioner": {"NeutronPartitioner": _NXP},
        f"{_ET}.nxp_backend": _NXP_BACKEND,
        f"{_ET}.quantizer.neutron_quantizer": {"NeutronQuantizer": _NXP, "NeutronTargetSpec": _NXP},
        f"{_ET}.quantizer.utils": {"calibrate_and_quantize": _NXP},
        "executorch.backends.transforms.quantize_fused_convbn_bias_pass": {
            "QuantizeFusedConvBnBiasAtenPass": f"{_NXP}.passes",
        },
    },
    absent={
        _ET: "edgewright.backends.nxp",
    },
    scripts=(f"{_ET}.tests",),
)
