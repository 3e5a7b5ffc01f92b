"""Samsung Exynos backend: quantize, lower to an ENN graph, compile it with AI LiteCore, run the graph on the host."""

from __future__ import annotations

from edgewright._lazy import lazy_names

_HERE = "edgewright.backends.samsung"
_NAMES = {
    "COMPILE_OPTION_SCHEMA_NAME": f"{_HERE}.target",
    "ENN_COMPILE_OPTION_TITLE": f"{_HERE}.target",
    "EnnExecuTorchOptions": f"{_HERE}.target",
    "EnnPartitioner": f"{_HERE}.partitioner",
    "EnnQuantizer": f"{_HERE}.quantizer",
    "PerformanceMode": f"{_HERE}.target",
    "Precision": f"{_HERE}.quantizer",
    "SamsungChipset": f"{_HERE}.target",
    "gen_samsung_backend_compile_spec": f"{_HERE}.target",
    "gen_samsung_backend_compile_spec_core": f"{_HERE}.target",
    "get_edge_compile_config": f"{_HERE}.export_utils",
    "get_quant_config": f"{_HERE}.quantizer",
    "quantize_module": f"{_HERE}.export_utils",
    "to_edge_transform_and_lower_to_enn": f"{_HERE}.export_utils",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
