"""XNNPACK backend: Arm and x86 CPUs. Also exports an operator config class for every row (``LinearConfig``, …)."""

from __future__ import annotations

from typing import Any

from edgewright._lazy import lazy_names

_NAMES = {
    "ConfigPrecisionType": "edgewright.backends.xnnpack.partitioner",
    "XNNPACKQuantizer": "edgewright.backends.xnnpack.quantizer",
    "XnnpackDynamicallyQuantizedPartitioner": "edgewright.backends.xnnpack.partitioner",
    "XnnpackFloatingPointPartitioner": "edgewright.backends.xnnpack.partitioner",
    "XnnpackPartitioner": "edgewright.backends.xnnpack.partitioner",
    "XnnpackQuantizedPartitioner": "edgewright.backends.xnnpack.partitioner",
    "get_symmetric_quantization_config": "edgewright.backends.xnnpack.quantizer",
}

_get, _dir = lazy_names(__name__, _NAMES)


def __getattr__(name: str) -> Any:
    if name == "__all__" or (name.endswith("Config") and not name.startswith("_")):
        from edgewright.backends.xnnpack.configs import CONFIGS

        if name == "__all__":
            return sorted([*_NAMES, *CONFIGS])
        if name in CONFIGS:
            return CONFIGS[name]
    return _get(name)


def __dir__() -> list[str]:
    return sorted({*_dir(), *__getattr__("__all__")})
