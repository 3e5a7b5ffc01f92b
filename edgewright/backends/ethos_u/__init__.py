"""Arm Ethos-U55, U65 and U85 backend: quantizes, lowers to TOSA, compiles with Vela, simulates the NPU on the host."""

from __future__ import annotations

from edgewright._lazy import lazy_names
from edgewright.backends.info import BackendInfo, Package, Program

_FVP = (
    "for Arm's Fixed Virtual Platforms, run ExecuTorch's examples/arm/setup.sh --i-agree-to-the-contained-eula, "
    "and add them to PATH"
)
INFO = BackendInfo(
    "ethos_u", __name__, id="EthosUBackend", title="Arm Ethos-U", order=1,
    summary="Ethos-U55, U65 and U85 NPUs, through TOSA and Arm's Vela compiler. Commands for U55 and U65-256 run here.",
    table=".ops:BACKEND", partitioner=".partitioner:EthosUPartitioner", quantizer=".quantizer:EthosUQuantizer",
    delegate=".delegate:EthosUDelegate", targets=".target:targets", read_spec=".target:read_spec",
    demo_target="ethos-u55-128", cpu_hz=4e8,
    requirements=(
        Package("Vela", "ethos-u-vela", "ethosu", "programs for Ethos-U", "pip install 'edgewright[ethos-u]'"),
        Package("TOSA tools", "tosa-tools", "tosa_serializer", "programs for Ethos-U",
                "pip install 'edgewright[ethos-u]'"),
        Program("FVP_Corstone_SSE-300_Ethos-U55", "edgewright device fvp, for Ethos-U55 and U65", _FVP),
        Program("FVP_Corstone_SSE-320", "edgewright device fvp, for Ethos-U85", _FVP),
        Program("arm-none-eabi-g++", "building arm_executor_runner, which boards and FVPs run",
                "apt install g++-arm-none-eabi, or ExecuTorch's examples/arm/setup.sh"),
    ),
    compat=".compat_names:NAMES", disassemble=".disasm:disassemble",
    device_memory=".device_memory:device_memory", device_commands=".device_memory:device_commands",
    make_spec=".target:make_spec",
    layer_bytes=".layer_bytes:layer_bytes",
    dialects={"tosa": ".dialect:DIALECT"},
)  # fmt: skip

_NAMES = {
    "ArmCompileSpecBuilder": "edgewright.backends.ethos_u.target",
    "EthosUCompileSpec": "edgewright.backends.ethos_u.target",
    "EthosUPartitioner": "edgewright.backends.ethos_u.partitioner",
    "EthosUQuantizer": "edgewright.backends.ethos_u.quantizer",
    "export_tosa": "edgewright.backends.ethos_u.partitioner",
    "get_symmetric_a16w8_quantization_config": "edgewright.backends.ethos_u.quantizer",
    "get_symmetric_a8w4_quantization_config": "edgewright.backends.ethos_u.quantizer",
    "get_symmetric_quantization_config": "edgewright.backends.ethos_u.quantizer",
    "get_uint8_io_quantization_config": "edgewright.backends.ethos_u.quantizer",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
