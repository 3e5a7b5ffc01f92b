"""Samsung Exynos backend: quantize, lower to an ENN graph, compile it with AI LiteCore, run the graph on the host."""

from __future__ import annotations

from edgewright._lazy import lazy_names

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
