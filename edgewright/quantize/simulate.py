"""A calibrated model as it will compute: every observer rounds to its integers, and nothing is converted yet."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torchao.quantization.pt2e import PlaceholderObserver

from edgewright.quantize.layers import is_observer

Rounding = tuple[torch.Tensor, torch.Tensor, int, int, "int | None"]  # scale, zero point, first and last integer, axis


def parameters_of(observer: Any) -> Rounding | None:
    """The quantization parameters of a calibrated observer; None where there is no single scale per tensor or channel:
    activations that are quantized at run time, and weights in blocks."""
    if isinstance(observer, PlaceholderObserver) or not hasattr(observer, "quant_min") or hasattr(observer, "block"):
        return None
    scale, zero = observer.calculate_qparams()
    scale, zero = scale.detach().float().reshape(-1), zero.detach().to(torch.int32).reshape(-1)
    axis = getattr(observer, "ch_axis", None) if scale.numel() > 1 else None
    return scale, zero, int(observer.quant_min), int(observer.quant_max), axis


def round_to(x: torch.Tensor, rounding: Rounding | None) -> torch.Tensor:
    """Values rounded to integers, and back."""
    if rounding is None or not x.is_floating_point():
        return x
    scale, zero, first, last, axis = rounding
    if axis is None:
        return torch.fake_quantize_per_tensor_affine(x, float(scale), int(zero), first, last)
    return torch.fake_quantize_per_channel_affine(x, scale, zero, axis, first, last)


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
