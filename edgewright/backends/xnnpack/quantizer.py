"""``XNNPACKQuantizer`` and its presets; the operator table determines what is quantized."""

from __future__ import annotations

from typing import ClassVar

from edgewright.backends.xnnpack.ops import BACKEND
from edgewright.quantize.quantizer import TableQuantizer
from edgewright.quantize.recipes import QuantizationConfig, symmetric_config


def get_symmetric_quantization_config(
    is_per_channel: bool = False,
    is_qat: bool = False,
    is_dynamic: bool = False,
    act_qmin: int = -128,
    act_qmax: int = 127,
    weight_qmin: int = -127,
    weight_qmax: int = 127,
) -> QuantizationConfig:
    """int8 activations and symmetric weights.

    ``is_per_channel``: one scale per output channel of a weight. ``is_dynamic``: activations are quantized per row at
    run time and need no calibration. Weights with ``weight_qmin=-8, weight_qmax=7`` are stored as int4 if activations
    are dynamic and weights are quantized per channel.
    """
    return symmetric_config(is_per_channel, is_qat, is_dynamic, (act_qmin, act_qmax), (weight_qmin, weight_qmax))


class XNNPACKQuantizer(TableQuantizer):
    """Quantizes for XNNPACK, through ``prepare_pt2e`` or ``prepare_qat_pt2e`` of torchao.

    >>> from edgewright.backends.xnnpack.quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
    >>> quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    """

    backend = BACKEND
    presets: ClassVar = {
        "int8": lambda: get_symmetric_quantization_config(is_per_channel=True),
        "dynamic": lambda: get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True),
        "dynamic-w4": lambda: get_symmetric_quantization_config(True, is_dynamic=True, weight_qmin=-8, weight_qmax=7),
    }
