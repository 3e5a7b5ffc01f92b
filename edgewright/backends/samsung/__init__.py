"""Samsung Exynos backend: quantize, lower to an ENN graph, compile it with AI LiteCore, run the graph on the host."""

from __future__ import annotations

from edgewright._lazy import lazy_names
from edgewright.backends.info import BackendInfo, Package

INFO = BackendInfo(
    "samsung", __name__, id="EnnBackend", title="Samsung Exynos", order=3, simulates=True,
    summary="NPUs of Exynos 2500 and 2600, by way of Samsung's AI LiteCore. The host runs the ENN graph.",
    table=".ops:BACKEND", partitioner=".partitioner:EnnPartitioner", quantizer=".quantizer:EnnQuantizer",
    delegate=".delegate:EnnDelegate", targets=".target:targets", read_spec=".target:read_spec", demo_target="e9955",
    cpu_hz=3e9,
    requirements=(
        Package("Samsung's AI LiteCore", "", "", "programs for Exynos chips",
                "get it at soc-developer.semiconductor.samsung.com (free account), set EXYNOS_AI_LITECORE_ROOT to its "
                "folder", simulates=True, detect=".sdk:installed_sdk"),
    ),
    compat=".compat_names:NAMES", disassemble=".disasm:disassemble",
    dialects={"enn": ".dialect:DIALECT"},
)  # fmt: skip

_PACKAGE = "edgewright.backends.samsung"
_NAMES = {
    "COMPILE_OPTION_SCHEMA_NAME": f"{_PACKAGE}.target",
    "ENN_COMPILE_OPTION_TITLE": f"{_PACKAGE}.target",
    "EnnExecuTorchOptions": f"{_PACKAGE}.target",
    "EnnPartitioner": f"{_PACKAGE}.partitioner",
    "EnnQuantizer": f"{_PACKAGE}.quantizer",
    "PerformanceMode": f"{_PACKAGE}.target",
    "Precision": f"{_PACKAGE}.quantizer",
    "SamsungChipset": f"{_PACKAGE}.target",
    "gen_samsung_backend_compile_spec": f"{_PACKAGE}.target",
    "gen_samsung_backend_compile_spec_core": f"{_PACKAGE}.target",
    "get_edge_compile_config": f"{_PACKAGE}.export_utils",
    "get_quant_config": f"{_PACKAGE}.quantizer",
    "quantize_module": f"{_PACKAGE}.export_utils",
    "to_edge_transform_and_lower_to_enn": f"{_PACKAGE}.export_utils",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
