"""Quantization configs: dtypes, ranges and observers of activations and weights."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
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
from edgewright.quantize.histogram import FiniteHistogramObserver
from edgewright.quantize.known_ranges import KnownRangeObserver
from edgewright.quantize.methods import HEADROOM, MSE, MSE_WEIGHTS, PERCENTILE
from edgewright.quantize.range_observers import (
    HeadroomObserver,
    MseChannelWeightObserver,
    MseObserver,
    MseWeightObserver,
    PercentileObserver,
)

EPSILON = 2.0**-12  # the smallest scale: dividing by the product of two smaller ones overflows


@dataclass(frozen=True)
class QuantizationConfig:
    """How to quantize operators. ``weight`` is for the default axis; an operator's ports declare its own axis."""

    activation: QuantizationSpec
    weight: QuantizationSpec
    weight_per_tensor: QuantizationSpec
    is_qat: bool = False
    epsilon: float = EPSILON
    least_error_weights: bool = False

    @property
    def is_dynamic(self) -> bool:
        return bool(self.activation.is_dynamic)

    @property
    def is_16_bit(self) -> bool:
        """True for activations of 16 bits."""
        return self.activation.dtype in (torch.int16, torch.uint16)

    @property
    def is_unsigned(self) -> bool:
        """True for activations without a sign."""
        return self.activation.dtype in (torch.uint8, torch.uint16)

    @property
    def is_per_channel(self) -> bool:
        return self.weight.ch_axis is not None

    def weight_spec(self, axis: int | None) -> QuantizationSpec:
        """The spec of weights with output channels along ``axis``, or with one scale."""
        if axis is None:
            return self.weight_per_tensor
        limits = (int(self.weight.quant_min or 0), int(self.weight.quant_max or 0))
        spec = weight_spec(axis, self.is_qat, limits, self.epsilon)
        return _with_least_error(spec, self.epsilon) if self.least_error_weights else spec

    def with_methods(self, methods: Collection[str]) -> QuantizationConfig:
        """The config with the observers that the methods among these names choose; trained ranges stay as they are."""
        config = self
        for name, observer in _ACTIVATION_OBSERVERS.items():
            applies = not (self.is_dynamic or self.is_qat) and (self.is_16_bit or name != HEADROOM)
            if name in methods and applies:
                made: Any = observer.with_args(eps=self.epsilon)
                config = replace(config, activation=replace(config.activation, observer_or_fake_quant_ctr=made))
        if MSE_WEIGHTS in methods and not self.is_qat:
            specs = {f: _with_least_error(getattr(self, f), self.epsilon) for f in ("weight", "weight_per_tensor")}
            config = replace(config, least_error_weights=True, **specs)
        return config

    def for_training(self) -> QuantizationConfig:
        """The config of quantization-aware training: the same integers, with fake quantizers in place of observers."""
        if self.is_qat:
            return self
        limits = (int(self.weight.quant_min or 0), int(self.weight.quant_max or 0))
        per_axis, per_tensor = (weight_spec(a, True, limits, self.epsilon) for a in (self.weight.ch_axis, None))
        spec = self.activation
        trained = replace(spec, observer_or_fake_quant_ctr=_trained_observer(self.is_dynamic, self.epsilon))
        return replace(self, activation=trained, weight=per_axis, weight_per_tensor=per_tensor, is_qat=True)

    def mask_spec(self, scores: bool) -> QuantizationSpec:
        """The spec of attention masks, or of masked scores."""
        if self.is_dynamic:
            return self.activation
        observer: Any = MaskedObserver.with_args(eps=self.epsilon, scores=scores)
        if self.is_qat:
            observer = FakeQuantize.with_args(observer=MaskedObserver, eps=self.epsilon, scores=scores)
        return replace(self.activation, observer_or_fake_quant_ctr=observer)

    def known_range_spec(
        self, low: float, high: float, narrows: bool = False
    ) -> FixedQParamsQuantizationSpec | QuantizationSpec:
        """The spec of results with a known range; if it ``narrows``, calibration may use a part of the range."""
        if narrows and not self.is_qat and not self.is_dynamic:
            observer: Any = KnownRangeObserver.with_args(eps=self.epsilon, bounds=(low, high))
            spec = self.activation
            return _KnownRangeSpec(spec.dtype, observer, spec.quant_min, spec.quant_max, spec.qscheme)
        first, last = int(self.activation.quant_min or 0), int(self.activation.quant_max or 0)
        if self.activation.qscheme == torch.per_tensor_symmetric and first < 0:
            scale = max(abs(low), abs(high)) / last
            return FixedQParamsQuantizationSpec(
                self.activation.dtype, scale, 0, first, last, torch.per_tensor_symmetric
            )
        scale = (high - low) / (last - first)
        zero = max(first, min(last, round(first - low / scale)))
        return FixedQParamsQuantizationSpec(self.activation.dtype, scale, zero, first, last, torch.per_tensor_affine)


class _KnownRangeSpec(QuantizationSpec):  # type: ignore[misc]
    """The spec of results with a known range that calibration may narrow.

    torchao gives a result and an edge that reads it one observer if their specs have equal attributes, whatever their
    observers are: a value that is concatenated with the result would be clipped to the known range. ``scale`` is one of
    these attributes, which other specs with observers lack. It is no field, so observers are not constructed with it.
    """

    scale = "known range"


class _OwnSpec(QuantizationSpec):  # type: ignore[misc]
    """The spec of points that share an observer with each other, and with no other point: see ``_KnownRangeSpec``."""

    scale: str


def with_own_observer(spec: QuantizationSpec, name: str) -> QuantizationSpec:
    """A spec whose observer torchao does not share with readers of the same value. ``name``: unique among these."""
    own = _OwnSpec(**{f.name: getattr(spec, f.name) for f in fields(spec)})
    object.__setattr__(own, "scale", name)
    return own


_ACTIVATION_OBSERVERS: dict[str, Any] = {  # the last one of those that apply
    PERCENTILE: PercentileObserver, MSE: MseObserver, HEADROOM: HeadroomObserver
}  # fmt: skip


def _with_least_error(spec: QuantizationSpec, epsilon: float) -> QuantizationSpec:
    if spec.ch_axis is None:
        observer: Any = MseWeightObserver.with_args(eps=epsilon)
    else:  # torchao passes the axis only to classes with PerChannel in their names
        observer = MseChannelWeightObserver.with_args(eps=epsilon, ch_axis=spec.ch_axis)
    return replace(spec, observer_or_fake_quant_ctr=observer)


def symmetric_config(
    is_per_channel: bool = False, is_qat: bool = False, is_dynamic: bool = False,
    activation: tuple[int, int] = (-128, 127), weight: tuple[int, int] = (-127, 127), *,
    bits: int = 8, epsilon: float = EPSILON, unsigned: bool = False,
) -> QuantizationConfig:  # fmt: skip
    """8-bit activations with a zero point, or 16-bit ones without (with one if ``unsigned``); symmetric weights.
    ``activation`` and ``weight`` are ranges of stored integers."""
    lowest = 0 if unsigned else -(1 << (bits - 1))
    ranges = {"activations": (*activation, lowest, lowest + (1 << bits) - 1), "weights": (*weight, -128, 127)}
    for name, (low, high, first, last) in ranges.items():
        if not first <= low < high <= last:
            rule = f"must be (low, high) with {first} <= low < high <= {last}"
            raise UsageError(f"the range of {name}", rule, value=(low, high))
    dtype = (torch.uint8 if bits == 8 else torch.uint16) if unsigned else torch.int8 if bits == 8 else torch.int16
    channel = weight_spec(0, is_qat, weight, epsilon)
    tensor = weight_spec(None, is_qat, weight, epsilon)
    return QuantizationConfig(_activation_spec(is_qat, is_dynamic, activation, dtype, epsilon),
                              channel if is_per_channel else tensor, tensor, is_qat, epsilon)  # fmt: skip


def _activation_spec(
    is_qat: bool, is_dynamic: bool, limits: tuple[int, int], dtype: torch.dtype, eps: float
) -> QuantizationSpec:
    observer: Any
    if is_qat:
        observer = _trained_observer(is_dynamic, eps)
    else:
        observer = (PlaceholderObserver if is_dynamic else FiniteHistogramObserver).with_args(eps=eps)
    scheme = torch.per_tensor_symmetric if dtype == torch.int16 else torch.per_tensor_affine
    return QuantizationSpec(dtype, observer, *limits, scheme, is_dynamic=is_dynamic)


def _trained_observer(is_dynamic: bool, eps: float) -> Any:
    """The fake quantizer of activations in training."""
    if is_dynamic:
        moving_average = MovingAverageMinMaxObserver.with_args(averaging_constant=1)
        return FakeQuantize.with_args(observer=moving_average, eps=eps)
    return FusedMovingAvgObsFakeQuantize.with_args(observer=MovingAverageMinMaxObserver, eps=eps)


def weight_spec(axis: int | None, is_qat: bool, limits: tuple[int, int], eps: float) -> QuantizationSpec:
    """The spec of symmetric weights, with one scale per slice along ``axis`` or one; ``limits`` imply the bits."""
    observer: Any = (MinMaxObserver if axis is None else PerChannelMinMaxObserver).with_args(eps=eps)
    if is_qat and axis is None:
        observer = FusedMovingAvgObsFakeQuantize.with_args(observer=MovingAverageMinMaxObserver, eps=eps)
    elif is_qat:  # torchao passes the axis to observers only; the fused fake quantizer supports only axis 0
        fake: Any = FakeQuantize if axis else FusedMovingAvgObsFakeQuantize
        observer = fake.with_args(observer=MovingAveragePerChannelMinMaxObserver, eps=eps, ch_axis=axis)
    scheme = torch.per_tensor_symmetric if axis is None else torch.per_channel_symmetric
    dtype = torch.int8 if limits[1] <= 127 else torch.int16
    return QuantizationSpec(dtype, observer, *limits, scheme, ch_axis=axis)
