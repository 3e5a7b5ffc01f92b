"""EDSR, which doubles an image's size, and Wav2Letter, which hears letters. Weights go by torchsr's and torchaudio's
names."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_MEAN = (0.4488, 0.4371, 0.4040)


class Shift(nn.Conv2d):
    """Adds a mean to each colour, or takes it away."""

    def __init__(self, sign: int) -> None:
        super().__init__(3, 3, 1)
        with torch.no_grad():
            self.weight.copy_(torch.eye(3).reshape(3, 3, 1, 1))
            self.bias.copy_(sign * torch.tensor(_MEAN))  # type: ignore[union-attr]


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class EDSR(nn.Module):
    def __init__(self, depth: int = 16, width: int = 64, scale: int = 2) -> None:
        super().__init__()
        self.sub_mean, self.add_mean = Shift(-1), Shift(1)
        self.head = nn.Sequential(nn.Conv2d(3, width, 3, padding=1))
        self.body = nn.Sequential(*(Block(width) for _ in range(depth)), nn.Conv2d(width, width, 3, padding=1))
        grow = nn.Sequential(nn.Conv2d(width, width * scale * scale, 3, padding=1), nn.PixelShuffle(scale))
        self.tail = nn.Sequential(grow, nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.head(self.sub_mean(x))
        return self.add_mean(self.tail(x + self.body(x)))


class Wav2Letter(nn.Module):
    """Takes 13 features of sound (MFCC) over time."""

    def __init__(self, features: int = 13, classes: int = 29) -> None:
        super().__init__()
        plan = [(features, 250, 48, 2, 23), *[(250, 250, 7, 1, 3)] * 7, (250, 2000, 32, 1, 16), (2000, 2000, 1, 1, 0)]
        layers = [m for a, b, k, s, p in plan for m in (nn.Conv1d(a, b, k, s, p), nn.ReLU())]
        self.acoustic_model = nn.Sequential(*layers, nn.Conv1d(2000, classes, 1), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return torch.log_softmax(self.acoustic_model(x), 1)
