"""NXP eIQ Neutron backend: quantize, lower to int8 TFLite, convert with NXP's SDK, run the TFLite graph on the host."""

from __future__ import annotations

from edgewright._lazy import lazy_names
from edgewright.backends.info import BackendInfo, Package, Program

INFO = BackendInfo(
    "nxp", __name__, id="NeutronBackend", title="NXP eIQ Neutron", order=4, simulates=True,
    summary="The Neutron NPU of i.MX RT700, by way of int8 TFLite and NXP's converter. The host runs the TFLite graph.",
    table=".ops:BACKEND", partitioner=".partitioner:NeutronPartitioner", quantizer=".quantizer:NeutronQuantizer",
    delegate=".delegate:NeutronDelegate", targets=".target:targets", read_spec=".target:read_spec",
    demo_target="imxrt700", cpu_hz=3.25e8,
    requirements=(
        Package("NXP's converter", "eiq-neutron-sdk", "eiq_neutron_sdk", "programs for NXP's chips",
                "pip install --index-url https://eiq.nxp.com/repository eiq-neutron-sdk", simulates=True),
        Program("nsys", "NXP's simulator NSYS, which runs the microcode (NVIDIA has a profiler of the same name)",
                "pip install --index-url https://eiq.nxp.com/repository eiq_nsys"),
    ),
    compat=".compat_names:NAMES", disassemble=".disasm:disassemble",
    dialects={"tflite": ".dialect:DIALECT"},
)  # fmt: skip

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
