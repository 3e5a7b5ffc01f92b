"""``EthosUQuantizer``: presets for quantizing what an Ethos-U runs. The rows say the rest."""

from __future__ import annotations

from typing import ClassVar

from torch import fx

from edgewright.backends.ethos_u.ops import BACKEND
from edgewright.backends.ethos_u.partitioner import KEPT, checked_spec, narrow_indices
from edgewright.backends.ethos_u.target import EthosUCompileSpec
from edgewright.quantize.quantizer import TableQuantizer
from edgewright.quantize.recipes import QuantizationConfig, symmetric_config
from edgewright.quantize.simplify import simplify_operators

EPSILON_8, EPSILON_16 = 2.0**-16, 2.0**-12  # the smallest scales of activations


def get_symmetric_quantization_config(
    is_per_channel: bool = True,
    is_qat: bool = False,
    is_dynamic: bool = False,
    act_qmin: int = -128,
    act_qmax: int = 127,
    weight_qmin: int = -127,
    weight_qmax: int = 127,
) -> QuantizationConfig:
    """a8w8: 8-bit activations with a zero point, and 8-bit weights without one."""
    return symmetric_config(
        is_per_channel, is_qat, is_dynamic, (act_qmin, act_qmax), (weight_qmin, weight_qmax), epsilon=EPSILON_8
    )


def get_symmetric_a8w4_quantization_config(is_per_channel: bool = True, is_qat: bool = True) -> QuantizationConfig:
    """8-bit activations, 4-bit weights: smaller, and better trained with them than calibrated."""
    return symmetric_config(is_per_channel, is_qat, weight=(-7, 7), epsilon=EPSILON_8)


def get_symmetric_a16w8_quantization_config(is_per_channel: bool = True, is_qat: bool = False) -> QuantizationConfig:
    """16-bit activations without a zero point, 8-bit weights."""
    return symmetric_config(is_per_channel, is_qat, activation=(-32767, 32767), bits=16, epsilon=EPSILON_16)


def get_uint8_io_quantization_config(is_qat: bool = False) -> QuantizationConfig:
    """Inputs and outputs as ``uint8``, for ``set_io``: what cameras give and displays take."""
    return symmetric_config(is_qat=is_qat, activation=(0, 255), unsigned=True, epsilon=EPSILON_8)


class EthosUQuantizer(TableQuantizer):
    """Quantizes for an Ethos-U, through ``prepare_pt2e`` or ``prepare_qat_pt2e`` of torchao.

    >>> from edgewright.backends.ethos_u import EthosUCompileSpec, EthosUQuantizer, get_symmetric_quantization_config
    >>> quantizer = EthosUQuantizer(EthosUCompileSpec("ethos-u55-128"))
    >>> quantizer = quantizer.set_global(get_symmetric_quantization_config(is_per_channel=True))
    """

    backend = BACKEND
    kept = KEPT
    presets: ClassVar = {
        "int8": get_symmetric_quantization_config,
        "a16w8": get_symmetric_a16w8_quantization_config,
        "a8w4": lambda: get_symmetric_a8w4_quantization_config(is_qat=False),
    }

    def __init__(self, compile_spec: EthosUCompileSpec) -> None:
        super().__init__()
        self.compile_spec = checked_spec(compile_spec)

    @classmethod
    def for_target(cls, target: str | None) -> EthosUQuantizer:
        return cls(EthosUCompileSpec(target or ""))

    def target(self) -> EthosUCompileSpec:
        return self.compile_spec

    def transform_for_annotation(self, model: fx.GraphModule) -> fx.GraphModule:
        """As lowering decomposes, and simpler where only single results can be quantized."""
        made = simplify_operators(super().transform_for_annotation(model))
        narrow_indices(made)
        return made
