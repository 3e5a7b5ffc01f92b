"""Quantization schemes for Hexagon processors: bits of activations and weights, and observers."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Any

import torch

import edgewright.quantize  # noqa: F401  (before torchao, which logs when it is imported)

# isort: split
from torchao.quantization.pt2e import FakeQuantize

from edgewright.errors import UsageError
from edgewright.hints import did_you_mean
from edgewright.quantize.recipes import QuantizationConfig, symmetric_config, weight_spec


class QuantDtype(enum.IntEnum):
    """Bit widths of activations and weights: ``use_16a4w`` is 16-bit activations and 4-bit weights."""

    use_16a16w = 0
    use_16a8w = 1
    use_16a4w = 2
    use_16a4w_block = 3
    use_8a8w = 4
    use_8a4w = 5
    use_fp16a8w = 6  # this and the next are ExecuTorch's; see ``_UNSUPPORTED``
    use_16a2w = 7


# Bits of activations, and the largest weight.
_SCHEMES = {
    QuantDtype.use_8a8w: (8, 127),
    QuantDtype.use_16a16w: (16, 32767),
    QuantDtype.use_16a8w: (16, 127),
    QuantDtype.use_16a4w: (16, 7),
    QuantDtype.use_16a4w_block: (16, 7),  # and in blocks, those of ``set_block_size_map``
    QuantDtype.use_8a4w: (8, 7),
}
# Schemes of ExecuTorch that are not supported, and why.
_UNSUPPORTED = {
    QuantDtype.use_fp16a8w: "the HTP has no operators with floating-point activations and integer weights",
    QuantDtype.use_16a2w: "2-bit weights have not been verified on the HTP",
}
_EPSILON = 1e-4  # range of the smallest scale


def get_qnn_quantization_config(
    quant_dtype: QuantDtype = QuantDtype.use_8a8w, is_per_channel: bool = True, is_qat: bool = False,
    act_observer: Any = None, eps: float | None = None, act_symmetric: bool = False,
) -> QuantizationConfig:  # fmt: skip
    """The configuration of a scheme, with weights per channel or per tensor. ``act_observer``: observer of activations;
    ``eps``: smallest scale; ``act_symmetric``: quantize activations symmetrically, except those with a fixed range."""
    if quant_dtype not in _SCHEMES:
        requested, names = getattr(quant_dtype, "name", quant_dtype), [s.name for s in _SCHEMES]
        remedy = _UNSUPPORTED.get(quant_dtype) or did_you_mean(requested, names)
        raise UsageError("quant_dtype", f"must be one of {', '.join(names)}", value=requested, remedy=remedy)
    bits, max_weight = _SCHEMES[quant_dtype]
    last = (1 << bits) - 1
    epsilon = _EPSILON / last if eps is None else eps
    int8_max = min(max_weight, 127)
    limits = ((0, last), (-int8_max, int8_max))
    config = symmetric_config(is_per_channel, is_qat, False, *limits, bits=bits, unsigned=True, epsilon=epsilon)
    if act_observer is not None:
        observer = act_observer.with_args(eps=epsilon)
        if is_qat:
            observer = FakeQuantize.with_args(observer=act_observer, eps=epsilon)
        config = replace(config, activation=replace(config.activation, observer_or_fake_quant_ctr=observer))
    if act_symmetric:
        config = replace(config, activation=replace(config.activation, qscheme=torch.per_tensor_symmetric))
    if max_weight > int8_max:
        specs = {
            name: weight_spec(axis, is_qat, (-max_weight, max_weight), epsilon)
            for name, axis in (("one", None), ("by", 0))
        }
        config = replace(config, weight=specs["by" if is_per_channel else "one"], weight_per_tensor=specs["one"])
    return config


@dataclass
class ModuleQConfig:
    """Quantization of the nodes of a submodule."""

    quant_dtype: QuantDtype = QuantDtype.use_8a8w
    is_qat: bool = False
    is_conv_per_channel: bool = False
    is_linear_per_channel: bool = False
    is_embedding_per_channel: bool = False
    act_observer: Any = None
    act_symmetric: bool = False
    eps: float | None = None

    def __post_init__(self) -> None:
        if self.is_embedding_per_channel:
            rule = "must be False: results of embeddings have one scale on the HTP, and so do their tables"
            raise UsageError("is_embedding_per_channel", rule, value=True, remedy="Leave it out, or use use_16a8w.")

    def config(self, linear: bool) -> QuantizationConfig:
        """The configuration of linear layers, or of all other operators."""
        by_channel = self.is_linear_per_channel if linear else self.is_conv_per_channel
        observer_args = (self.act_observer, self.eps, self.act_symmetric)
        return get_qnn_quantization_config(self.quant_dtype, by_channel, self.is_qat, *observer_args)
