"""Qualcomm AI Engine Direct backend: quantize, compile for a Hexagon processor, run in Qualcomm's emulator."""

from __future__ import annotations

from edgewright._lazy import lazy_names
from edgewright.backends.info import BackendInfo

INFO = BackendInfo(
    "qualcomm", __name__, id="QnnBackend", title="Qualcomm AI Engine Direct", order=2, simulates=True,
    summary="Hexagon processors (HTP) of Snapdragon and other SoCs, compiled by QNN; the host runs its emulator.",
    table=".ops:BACKEND", partitioner=".partitioner:QnnPartitioner", quantizer=".quantizer:QnnQuantizer",
    delegate=".delegate:QnnDelegate", targets=".target:targets", read_spec=".target:read_spec", demo_target="sm8550",
    cpu_hz=3e9,
    requirements=".requirements:REQUIREMENTS", compat=".compat_names:NAMES", disassemble=".disasm:disassemble",
    dialects={"qnn": ".dialect:DIALECT"},
)  # fmt: skip

_PARTITIONER, _QUANTIZER = (f"edgewright.backends.qualcomm.{name}" for name in ("partitioner", "quantizer"))
_SCHEMES, _TARGET = (f"edgewright.backends.qualcomm.{name}" for name in ("schemes", "target"))
_NAMES = {
    "CompileSpec": _TARGET,
    "ModuleQConfig": _SCHEMES,
    "QcomChipset": _TARGET,
    "QnnPartitioner": _PARTITIONER,
    "QnnQuantizer": _QUANTIZER,
    "QuantDtype": _SCHEMES,
    "get_qnn_quantization_config": _SCHEMES,
    "QnnExecuTorchHtpPerformanceMode": _TARGET,
    "generate_htp_compiler_spec": _TARGET,
    "get_submodule_name_predicate": _QUANTIZER,
    "get_submodule_type_predicate": _QUANTIZER,
    "generate_qnn_executorch_compiler_spec": _TARGET,
    "get_soc_to_chipset_map": _TARGET,
    "to_edge_transform_and_lower_to_qnn": _PARTITIONER,
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
