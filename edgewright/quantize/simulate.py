"""A calibrated model as it will compute: every observer rounds to its integers, and nothing is converted yet."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torchao.quantization.pt2e import FixedQParamsObserver, PerChannelMinMaxObserver
from torchao.quantization.pt2e.observer import UniformQuantizationObserverBase

from edgewright.quantize.layers import is_observer

Rounding = tuple[torch.Tensor, torch.Tensor, int, int, "int | None"]  # scale, zero point, first and last integer, axis


def parameters_of(observer: Any) -> Rounding | None:
    """The quantization parameters of a calibrated observer; None where there is no single scale per tensor or channel:
    activations that are quantized at run time, and weights in blocks."""
    if not isinstance(observer, UniformQuantizationObserverBase | FixedQParamsObserver):
        return None
    scale, zero = observer.calculate_qparams()
    scale, zero = scale.detach().float().reshape(-1), zero.detach().to(torch.int32).reshape(-1)
    return scale, zero, int(observer.quant_min), int(observer.quant_max), axis_of(observer)


def axis_of(observer: Any) -> int | None:
    """The axis of an observer's channels; None if all have one scale."""
    return int(observer.ch_axis) if isinstance(observer, PerChannelMinMaxObserver) else None


def parameters_for(observer: Any, low: torch.Tensor, high: torch.Tensor) -> Rounding | None:
    """The quantization parameters that an observer would have for a range; None where ``parameters_of`` has none."""
    if not isinstance(observer, UniformQuantizationObserverBase):
        return None
    scale, zero = observer._calculate_qparams(low, high)
    limits = int(observer.quant_min), int(observer.quant_max)
    return scale.float().reshape(-1), zero.to(torch.int32).reshape(-1), *limits, axis_of(observer)


def round_to(x: torch.Tensor, rounding: Rounding | None) -> torch.Tensor:
    """Values rounded to integers, and back."""
    if rounding is None or not x.is_floating_point():
        return x
    scale, zero, first, last, axis = rounding
    if axis is None:
        return torch.fake_quantize_per_tensor_affine(x, float(scale), int(zero), first, last)
    return torch.fake_quantize_per_channel_affine(x, scale, zero, axis, first, last)


class ExactRun(fx.Interpreter):
    """Runs a prepared model in floating point: observers see nothing."""

    def run_node(self, n: fx.Node) -> Any:
        prepared: Any = self.module
        if is_observer(prepared, n):
            return self.env[n.args[0]]  # type: ignore[index]
        return super().run_node(n)


class Simulation(fx.Interpreter):
    """Runs a calibrated model with rounded values."""

    def __init__(self, prepared: fx.GraphModule) -> None:
        super().__init__(prepared)
        self._roundings: dict[Any, Rounding | None] = {}

    def rounding(self, observer: Any) -> Rounding | None:
        """The parameters of an observer, which are computed once."""
        if observer not in self._roundings:
            self._roundings[observer] = parameters_of(observer)
        return self._roundings[observer]

    def run_node(self, n: fx.Node) -> Any:
        prepared: Any = self.module
        if is_observer(prepared, n):
            source: Any = n.args[0]
            return round_to(self.env[source], self.rounding(prepared.get_submodule(str(n.target))))
        return super().run_node(n)
