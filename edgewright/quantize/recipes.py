"""What a user asks of quantization: how activations and weights are held, and who observes them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torchao.quantization.pt2e import (
    FakeQuantize,
    FusedMovingAvgObsFakeQuantize,
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)
from torchao.quantization.pt2e.quantizer import FixedQParamsQuantizationSpec, QuantizationSpec

from edgewright.errors import UsageError

EPSILON = 2.0**-12  # the smallest scale: smaller ones overflow the product of two when they are divided by


@dataclass(frozen=True)
class QuantizationConfig:
    """How operators are quantized. ``weight`` is that of the default axis; ports say which axis an operator has."""

    activation: QuantizationSpec
    weight: QuantizationSpec
    weight_per_tensor: QuantizationSpec
    is_qat: bool = False

    @property
    def is_dynamic(self) -> bool:
        return bool(self.activation.is_dynamic)

    @property
    def is_per_channel(self) -> bool:
        return self.weight.ch_axis is not None

    def weight_spec(self, axis: int | None) -> QuantizationSpec:
        """For weights with their output channels along ``axis``, or with one scale."""
        return self.weight_per_tensor if axis is None else replace(self.weight, ch_axis=axis)

    def fixed(self, low: float, high: float) -> FixedQParamsQuantizationSpec:
        """For results whose range is known."""
        first, last = int(self.activation.quant_min or 0), int(self.activation.quant_max or 0)
        scale = (high - low) / (last - first)
        zero = max(first, min(last, round(first - low / scale)))
        return FixedQParamsQuantizationSpec(self.activation.dtype, scale, zero, first, last, torch.per_tensor_affine)


def symmetric_config(
    is_per_channel: bool = False, is_qat: bool = False, is_dynamic: bool = False,
    activation: tuple[int, int] = (-128, 127), weight: tuple[int, int] = (-127, 127),
) -> QuantizationConfig:  # fmt: skip
    """8-bit activations with a zero point, weights without one. The ranges are of stored integers."""
    for name, (low, high) in (("activations", activation), ("weights", weight)):
        if not -128 <= low < high <= 127:
            raise UsageError(f"the range of {name}", "must lie within -128 and 127, low end first", value=(low, high))
    channel = _weights(True, is_qat, weight)
    tensor = _weights(False, is_qat, weight)
    return QuantizationConfig(_activations(is_qat, is_dynamic, activation), channel if is_per_channel else tensor,
                              tensor, is_qat)  # fmt: skip


def _activations(is_qat: bool, is_dynamic: bool, limits: tuple[int, int]) -> QuantizationSpec:
    observer: Any
    if is_qat and is_dynamic:
        moving = MovingAverageMinMaxObserver.with_args(averaging_constant=1)
        observer = FakeQuantize.with_args(observer=moving, eps=EPSILON)
    elif is_qat:
        observer = FusedMovingAvgObsFakeQuantize.with_args(observer=MovingAverageMinMaxObserver, eps=EPSILON)
    else:
        observer = (PlaceholderObserver if is_dynamic else HistogramObserver).with_args(eps=EPSILON)
    return QuantizationSpec(torch.int8, observer, *limits, torch.per_tensor_affine, is_dynamic=is_dynamic)


def _weights(per_channel: bool, is_qat: bool, limits: tuple[int, int]) -> QuantizationSpec:
    plain: Any = PerChannelMinMaxObserver if per_channel else MinMaxObserver
    moving: Any = MovingAveragePerChannelMinMaxObserver if per_channel else MovingAverageMinMaxObserver
    observer: Any = plain.with_args(eps=EPSILON)
    if is_qat:
        observer = FusedMovingAvgObsFakeQuantize.with_args(observer=moving, eps=EPSILON)
    scheme = torch.per_channel_symmetric if per_channel else torch.per_tensor_symmetric
    return QuantizationSpec(torch.int8, observer, *limits, scheme, ch_axis=0 if per_channel else None)
