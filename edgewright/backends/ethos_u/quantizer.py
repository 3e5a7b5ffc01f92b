"""``EthosUQuantizer`` and its quantization presets. The op table rows define the rest."""

from __future__ import annotations

from typing import ClassVar

from torch import fx

from edgewright.backends.ethos_u.ops import BACKEND
from edgewright.backends.ethos_u.partitioner import check_spec, narrow_indices
from edgewright.backends.ethos_u.target import EthosUCompileSpec
from edgewright.errors import UsageError
from edgewright.logs import log_message
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
    eps: float = EPSILON_8,
) -> QuantizationConfig:
    """a8w8: asymmetric 8-bit activations, symmetric 8-bit weights. ``eps``: the smallest scale."""
    _reject_dynamic(is_dynamic)
    return symmetric_config(is_per_channel, is_qat, False, (act_qmin, act_qmax), (weight_qmin, weight_qmax),
                            epsilon=eps)  # fmt: skip


def get_symmetric_a8w4_quantization_config(
    is_per_channel: bool = True, is_qat: bool = True, is_dynamic: bool = False
) -> QuantizationConfig:
    """8-bit activations, 4-bit weights: smaller; quantization-aware training recommended."""
    _reject_dynamic(is_dynamic)
    return symmetric_config(is_per_channel, is_qat, weight=(-7, 7), epsilon=EPSILON_8)


def get_symmetric_a16w8_quantization_config(
    is_per_channel: bool = True, is_qat: bool = False, is_dynamic: bool = False, weight_qmin: int = -127,
    weight_qmax: int = 127, epsilon: float = EPSILON_16,
) -> QuantizationConfig:  # fmt: skip
    """Symmetric 16-bit activations, 8-bit weights. ``epsilon``: the smallest scale."""
    _reject_dynamic(is_dynamic)
    limits = (weight_qmin, weight_qmax)
    return symmetric_config(is_per_channel, is_qat, False, (-32767, 32767), limits, bits=16, epsilon=epsilon)


def get_uint8_io_quantization_config(
    is_qat: bool = False, is_dynamic: bool = False, eps: float = EPSILON_8
) -> QuantizationConfig:
    """``uint8`` inputs and outputs, for ``set_io``: for cameras and displays. ``eps``: the smallest scale."""
    _reject_dynamic(is_dynamic)
    return symmetric_config(is_qat=is_qat, activation=(0, 255), unsigned=True, epsilon=eps)


def _reject_dynamic(is_dynamic: bool) -> None:
    if is_dynamic:
        rule = "must be False: an Ethos-U computes in integers whose scales are known when the model is compiled"
        raise UsageError("is_dynamic", rule, value=is_dynamic, remedy="Calibrate the model, or train it.")


class EthosUQuantizer(TableQuantizer):
    """Quantizes for an Ethos-U, through ``prepare_pt2e`` or ``prepare_qat_pt2e`` of torchao.

    ``use_composable_quantizer=False``, which is deprecated in ExecuTorch, makes no difference.

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

    def __init__(self, compile_spec: EthosUCompileSpec, use_composable_quantizer: bool = True) -> None:
        super().__init__()
        if not isinstance(use_composable_quantizer, bool):
            raise UsageError("use_composable_quantizer", "must be True or False", value=use_composable_quantizer)
        if not use_composable_quantizer:
            reason = "there is one quantizer, whose rules are those of the op table"
            log_message("warning", "backends.ethos_u", "use_composable_quantizer=False makes no difference: %s", reason)
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
