"""``EthosUQuantizer`` and its quantization presets. The op table rows define the rest."""

from __future__ import annotations

from typing import ClassVar

from torch import fx

from edgewright.backends.ethos_u.ops import BACKEND
from edgewright.backends.ethos_u.partitioner import check_spec, narrow_indices
from edgewright.backends.ethos_u.target import EthosUCompileSpec
from edgewright.quantize.quantizer import TableQuantizer
from edgewright.quantize.recipes import QuantizationConfig, symmetric_config
from edgewright.quantize.simplify import simplify_operators

EPSILON_8, EPSILON_16 = 2.0**-16, 2.0**-12  # smallest activation scales


def get_symmetric_quantization_config(
    is_per_channel: bool = True,
    is_qat: bool = False,
    is_dynamic: bool = False,
    act_qmin: int = -128,
    act_qmax: int = 127,
    weight_qmin: int = -127,
    weight_qmax: int = 127,
) -> QuantizationConfig:
    """a8w8: asymmetric 8-bit activations, symmetric 8-bit weights."""
    return symmetric_config(
        is_per_channel, is_qat, is_dynamic, (act_qmin, act_qmax), (weight_qmin, weight_qmax), epsilon=EPSILON_8
    )


def get_symmetric_a8w4_quantization_config(is_per_channel: bool = True, is_qat: bool = True) -> QuantizationConfig:
    """8-bit activations, 4-bit weights: smaller; quantization-aware training recommended."""
    return symmetric_config(is_per_channel, is_qat, weight=(-7, 7), epsilon=EPSILON_8)


def get_symmetric_a16w8_quantization_config(is_per_channel: bool = True, is_qat: bool = False) -> QuantizationConfig:
    """Symmetric 16-bit activations, 8-bit weights."""
    return symmetric_config(is_per_channel, is_qat, activation=(-32767, 32767), bits=16, epsilon=EPSILON_16)


def get_uint8_io_quantization_config(is_qat: bool = False) -> QuantizationConfig:
    """``uint8`` inputs and outputs, for ``set_io``: for cameras and displays."""
    return symmetric_config(is_qat=is_qat, activation=(0, 255), unsigned=True, epsilon=EPSILON_8)


class EthosUQuantizer(TableQuantizer):
    """Quantizes for an Ethos-U, through ``prepare_pt2e`` or ``prepare_qat_pt2e`` of torchao.

    >>> from edgewright.backends.ethos_u import EthosUCompileSpec, EthosUQuantizer, get_symmetric_quantization_config
    >>> quantizer = EthosUQuantizer(EthosUCompileSpec("ethos-u55-128"))
    >>> quantizer = quantizer.set_global(get_symmetric_quantization_config(is_per_channel=True))
    """

    backend = BACKEND
    presets: ClassVar = {
        "int8": get_symmetric_quantization_config,
        "a16w8": get_symmetric_a16w8_quantization_config,
        "a8w4": lambda: get_symmetric_a8w4_quantization_config(is_qat=False),
    }

    def __init__(self, compile_spec: EthosUCompileSpec) -> None:
        super().__init__()
        self.compile_spec = check_spec(compile_spec)

    @classmethod
    def for_target(cls, target: str | None) -> EthosUQuantizer:
        return cls(EthosUCompileSpec(target or ""))

    def target(self) -> EthosUCompileSpec:
        return self.compile_spec

    def transform_for_annotation(self, model: fx.GraphModule) -> fx.GraphModule:
        """Decompose like lowering does, and simplify operators with results that cannot be quantized."""
        simplified = simplify_operators(super().transform_for_annotation(model))
        narrow_indices(simplified)
        return simplified
