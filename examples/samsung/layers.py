"""Layers that several of the networks are made of."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Pair = tuple[int, int]


class Conv(nn.Sequential):
    """A convolution, a batch norm and an activation."""

    def __init__(
        self, inside: int, out: int, kernel: int | Pair, stride: int = 1, padding: int | Pair = 0, *, groups: int = 1,
        dilation: int = 1, eps: float = 1e-5, act: Callable[[], nn.Module] | None = nn.ReLU,
    ) -> None:  # fmt: skip
        conv = nn.Conv2d(inside, out, kernel, stride, padding, dilation, groups, bias=False)
        super().__init__(conv, nn.BatchNorm2d(out, eps=eps), *([act()] if act is not None else []))


class Branches(nn.Module):
    """What branches make of one image, side by side."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


class Plus(nn.Module):
    """An image and what a block makes of it."""

    def __init__(self, block: nn.Module, skip: nn.Module | None = None, act: nn.Module | None = None) -> None:
        super().__init__()
        self.block, self.skip, self.act = block, skip or nn.Identity(), act or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.act(self.block(x) + self.skip(x))
        return made


def initial(model: nn.Module) -> nn.Module:
    """The model in eval mode, with random weights that neither shrink nor blow up what goes through them."""
    for module in model.modules():
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Linear):
            plain = isinstance(module, nn.Linear)
            nn.init.kaiming_normal_(module.weight, nonlinearity="linear" if plain else "relu")
            if module.bias is not None:
                nn.init.normal_(module.bias, std=0.1)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_var, 0.8, 1.25)  # type: ignore[arg-type]
            nn.init.normal_(module.running_mean, std=0.1)  # type: ignore[arg-type]
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, Plus):  # many small steps
                last = [m for m in module.block.modules() if isinstance(m, nn.Conv2d | nn.Linear)][-1]
                last.weight *= 0.3
    return model.eval()
