"""Arm Ethos-U55, U65 and U85 backend: quantizes, lowers to TOSA, compiles with Vela, simulates the NPU on the host."""

from __future__ import annotations

from edgewright._lazy import lazy_names

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
