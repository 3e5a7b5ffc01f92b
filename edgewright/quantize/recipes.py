"""What a user asks of quantization: how activations and weights are held, and who observes them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torchao.quantization.pt2e import (
    FakeQuantize,
    FusedMovingAvgObsFakeQuantize,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)
from torchao.quantization.pt2e.quantizer import FixedQParamsQuantizationSpec, QuantizationSpec

from edgewright.errors import UsageError
from edgewright.quantize.attention_masks import MaskedObserver
from edgewright.quantize.histogram import RangeObserver
from edgewright.quantize.known_ranges import PartRangeObserver

EPSILON = 2.0**-12  # the smallest scale: smaller ones overflow the product of two when they are divided by


@dataclass(frozen=True)
class QuantizationConfig:
    """How operators are quantized. ``weight`` is that of the default axis; ports say which axis an operator has."""

    activation: QuantizationSpec
    weight: QuantizationSpec
    weight_per_tensor: QuantizationSpec
    is_qat: bool = False
    epsilon: float = EPSILON

    @property
    def is_dynamic(self) -> bool:
        return bool(self.activation.is_dynamic)

    @property
    def is_per_channel(self) -> bool:
        return self.weight.ch_axis is not None

    def weight_spec(self, axis: int | None) -> QuantizationSpec:
        """For weights with their output channels along ``axis``, or with one scale."""
        if axis is None:
            return self.weight_per_tensor
        limits = (int(self.weight.quant_min or 0), int(self.weight.quant_max or 0))
        return weight_spec(axis, self.is_qat, limits, self.epsilon)

    def masked(self, scores: bool) -> QuantizationSpec:
        """For masks, or for scores of which some are masked."""
        if self.is_dynamic:
            return self.activation
        observer: Any = MaskedObserver.with_args(eps=self.epsilon, scores=scores)
        if self.is_qat:
            observer = FakeQuantize.with_args(observer=MaskedObserver, eps=self.epsilon, scores=scores)
        return replace(self.activation, observer_or_fake_quant_ctr=observer)

    def fixed(self, low: float, high: float, narrows: bool = False) -> FixedQParamsQuantizationSpec | QuantizationSpec:
        """For results whose range is known; if it ``narrows``, calibration may find that they have but a part of it."""
        if narrows and not self.is_qat and not self.is_dynamic:
            observer = PartRangeObserver.with_args(eps=self.epsilon, bounds=(low, high))
            return replace(self.activation, observer_or_fake_quant_ctr=observer)
        first, last = int(self.activation.quant_min or 0), int(self.activation.quant_max or 0)
        if self.activation.qscheme == torch.per_tensor_symmetric and first < 0:
            scale = max(abs(low), abs(high)) / last
            return FixedQParamsQuantizationSpec(
                self.activation.dtype, scale, 0, first, last, torch.per_tensor_symmetric
            )
        scale = (high - low) / (last - first)
        zero = max(first, min(last, round(first - low / scale)))
        return FixedQParamsQuantizationSpec(self.activation.dtype, scale, zero, first, last, torch.per_tensor_affine)


def symmetric_config(
    is_per_channel: bool = False, is_qat: bool = False, is_dynamic: bool = False,
    activation: tuple[int, int] = (-128, 127), weight: tuple[int, int] = (-127, 127), *,
    bits: int = 8, epsilon: float = EPSILON, unsigned: bool = False,
) -> QuantizationConfig:  # fmt: skip
    """Activations of 8 bits with a zero point, or of 16 without (with one if ``unsigned``); weights without one. The
    ranges are of stored integers."""
    least = 0 if unsigned else -(1 << (bits - 1))
    ends = {"activations": (*activation, least, least + (1 << bits) - 1), "weights": (*weight, -128, 127)}
    for name, (low, high, first, last) in ends.items():
        if not first <= low < high <= last:
            rule = f"must lie within {first} and {last}, low end first"
            raise UsageError(f"the range of {name}", rule, value=(low, high))
    dtype = (torch.uint8 if bits == 8 else torch.uint16) if unsigned else torch.int8 if bits == 8 else torch.int16
    channel = weight_spec(0, is_qat, weight, epsilon)
    tensor = weight_spec(None, is_qat, weight, epsilon)
    return QuantizationConfig(_activations(is_qat, is_dynamic, activation, dtype, epsilon),
                              channel if is_per_channel else tensor, tensor, is_qat, epsilon)  # fmt: skip


def _activations(
    is_qat: bool, is_dynamic: bool, limits: tuple[int, int], dtype: torch.dtype, eps: float
) -> QuantizationSpec:
    observer: Any
    if is_qat and is_dynamic:
        moving = MovingAverageMinMaxObserver.with_args(averaging_constant=1)
        observer = FakeQuantize.with_args(observer=moving, eps=eps)
    elif is_qat:
        observer = FusedMovingAvgObsFakeQuantize.with_args(observer=MovingAverageMinMaxObserver, eps=eps)
    else:
        observer = (PlaceholderObserver if is_dynamic else RangeObserver).with_args(eps=eps)
    scheme = torch.per_tensor_symmetric if dtype == torch.int16 else torch.per_tensor_affine
    return QuantizationSpec(dtype, observer, *limits, scheme, is_dynamic=is_dynamic)


def weight_spec(axis: int | None, is_qat: bool, limits: tuple[int, int], eps: float) -> QuantizationSpec:
    """Of weights without a zero point, with a scale for each slice along ``axis`` or one; limits say how many bits."""
    observer: Any = (MinMaxObserver if axis is None else PerChannelMinMaxObserver).with_args(eps=eps)
    if is_qat and axis is None:
        observer = FusedMovingAvgObsFakeQuantize.with_args(observer=MovingAverageMinMaxObserver, eps=eps)
    elif is_qat:  # torchao hands the axis to observers only; the fused form has none but the first
        fake: Any = FakeQuantize if axis else FusedMovingAvgObsFakeQuantize
        observer = fake.with_args(observer=MovingAveragePerChannelMinMaxObserver, eps=eps, ch_axis=axis)
    scheme = torch.per_tensor_symmetric if axis is None else torch.per_channel_symmetric
    dtype = torch.int8 if limits[1] <= 127 else torch.int16
    return QuantizationSpec(dtype, observer, *limits, scheme, ch_axis=axis)
