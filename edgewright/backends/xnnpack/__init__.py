"""XNNPACK backend: Arm and x86 CPUs. Also exports an operator config class for every row (``LinearConfig``, …)."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from edgewright._lazy import lazy_names
from edgewright.backends.info import BackendInfo

INFO = BackendInfo(
    "xnnpack", __name__, id="XnnpackBackend", title="XNNPACK", full_title="XNNPACK (any Arm or x86 CPU)", order=0,
    summary="Arm and x86 CPUs. Stock runtimes (Android, iOS, Python) include it; the host runs its blobs without.",
    table=".ops:BACKEND", partitioner=".partitioner:XnnpackPartitioner", quantizer=".quantizer:XNNPACKQuantizer",
    delegate=".delegate:XnnpackDelegate", demo_target="xnnpack", compat=".compat_names:NAMES",
    layer_bytes=".layer_bytes:layer_bytes",
)  # fmt: skip

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
        configs = import_module(f"{__name__}.configs").CONFIGS  # made from the table, which needs INFO
        if name == "__all__":
            return sorted([*_NAMES, *configs])
        if name in configs:
            return configs[name]
    return _get(name)


def __dir__() -> list[str]:
    return sorted({*_dir(), *__getattr__("__all__")})
