"""Names of ExecuTorch's Arm folder that its scripts import; what they choose among is Ethos-U here."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from edgewright.backends.ethos_u.partitioner import EthosUPartitioner, checked_spec
from edgewright.backends.ethos_u.quantizer import EthosUQuantizer

log = logging.getLogger("edgewright.ethos_u")


def create_partitioner(compile_spec: Any, additional_checks: Sequence[Any] | None = None) -> EthosUPartitioner:
    """The partitioner of a compile spec."""
    return EthosUPartitioner(checked_spec(compile_spec), additional_checks or ())


def create_quantizer(compile_spec: Any) -> EthosUQuantizer:
    """The quantizer of a compile spec."""
    return EthosUQuantizer(checked_spec(compile_spec))


class ReplaceQuantNodesPass:
    """A pass that changes nothing but says so: conversions outside the NPU stay the runtime's quantized kernels."""

    def __call__(self, graph_module: Any) -> Any:
        log.warning("quantize and dequantize are quantized_decomposed's, not cortex_m's: link quantized_ops_lib")
        return graph_module
