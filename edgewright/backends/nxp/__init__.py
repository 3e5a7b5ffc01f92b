"""NXP eIQ Neutron backend: quantize, lower to int8 TFLite, convert with NXP's SDK, run the TFLite graph on the host."""

from __future__ import annotations

from edgewright._lazy import lazy_names

_NAMES = {
    "CustomDelegationOptions": "edgewright.backends.nxp.target",
    "NeutronCompileSpecBuilder": "edgewright.backends.nxp.target",
    "NeutronEdgePassManager": "edgewright.backends.nxp.passes",
    "NeutronPartitioner": "edgewright.backends.nxp.partitioner",
    "NeutronQuantizer": "edgewright.backends.nxp.quantizer",
    "NeutronTargetSpec": "edgewright.backends.nxp.target",
    "RemoveAdditionalQDQClustersPass": "edgewright.backends.nxp.passes",
    "RemoveIOQuantOpsPass": "edgewright.backends.nxp.passes",
    "calibrate_and_quantize": "edgewright.backends.nxp.quantizer",
    "export_tflite": "edgewright.backends.nxp.partitioner",
    "generate_neutron_compile_spec": "edgewright.backends.nxp.target",
    "remove_io_quant_ops": "edgewright.backends.nxp.passes",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
