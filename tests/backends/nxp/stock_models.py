"""Models that stock's flow and ours both take as one delegate, with options of the compile spec."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Images(nn.Module):
    """One image in, two results out."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.conv(x)
        return torch.relu(x), torch.sigmoid(x)


class Rows(nn.Module):
    """An image in, a row out."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.last = nn.Linear(8 * 6 * 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.conv(x)).flatten(1))


class Pair(nn.Module):
    """Two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.conv(x) + y


_IMAGE = ((1, 3, 8, 8),)
MODELS: dict[str, tuple[type[nn.Module], tuple[tuple[int, ...], ...], dict[str, Any]]] = {
    "images": (Images, _IMAGE, {}),
    "images_turned": (Images, _IMAGE, {"use_neutron_for_format_conversion": False}),
    "rows": (Rows, _IMAGE, {}),
    "rows_turned": (Rows, _IMAGE, {"use_neutron_for_format_conversion": False}),
    "pair": (Pair, _IMAGE * 2, {}),
    "profiled": (Rows, _IMAGE, {"use_profiling": True, "fetch_constants_to_sram": True}),
}
