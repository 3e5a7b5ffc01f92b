"""Random weights and inputs under which a network computes something: no layer is switched off, none explodes.

Initializers leave parameters at one value (norms at 1, biases at 0, layer scales at 1e-6, some heads at 0), which would
hide errors of these layers; they are drawn anew. Statistics of batch norms are those of random inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from tests.zoo.network import Call, run_eager


def randomize(module: nn.Module, seed: int) -> None:
    """Draw parameters that have one value throughout."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            if not parameter.is_floating_point() or parameter.numel() < 2 or not _is_uniform(parameter):
                continue
            zero = float(parameter.flatten()[0]) == 0.0
            drawn = torch.rand(parameter.shape, generator=random)
            if not zero:  # a scale
                parameter.copy_(0.5 + drawn)
            elif parameter.dim() < 2:  # a bias
                parameter.copy_(0.2 * (drawn - 0.5))
            else:  # variance 1/fan_in: of a uniform distribution, twelve times that of [0, 1)
                fan_in = parameter[0].numel()
                parameter.copy_((12 / fan_in) ** 0.5 * (drawn - 0.5))


def _is_uniform(value: torch.Tensor) -> bool:
    return bool((value == value.flatten()[0]).all())


def set_norm_statistics(module: nn.Module, calls: Sequence[Call]) -> None:
    """Give batch norms the mean and variance that their inputs have, the first ones first."""
    norms = [m for m in module.modules() if isinstance(m, _BatchNorm) and m.running_mean is not None]
    if not norms:
        return
    try:
        _observe(module, norms, [_as_batch(calls)])
    except Exception:  # networks that take one input at a time, or none that can be joined
        _observe(module, norms, calls)


def _as_batch(calls: Sequence[Call]) -> Call:
    """All calls at once. In deep layers, the values of one input are near to each other, and those of another are not:
    with statistics of one at a time, a network multiplies such differences from layer to layer."""
    return tuple(torch.cat(operands) for operands in zip(*calls, strict=True))


def _observe(module: nn.Module, norms: Sequence[Any], calls: Sequence[Call]) -> None:
    handles = [norm.register_forward_pre_hook(_Statistics()) for norm in norms]
    try:
        for call in calls:
            run_eager(module, call)
    finally:
        for handle in handles:
            handle.remove()


class _Statistics:
    """A hook of one batch norm: averages over the calls it has seen."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, norm: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        x = inputs[0].transpose(0, 1).flatten(1)
        if x.shape[1] < 4:  # too few values for a variance
            return
        self.seen += 1
        with torch.no_grad():
            norm.running_mean += (x.mean(1) - norm.running_mean) / self.seen
            norm.running_var += (x.var(1) + 1e-3 - norm.running_var) / self.seen
