"""Networks that people put on i.MX RT700."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from edgewright.demo.model import cifarnet
from tests.backends.ethos_u.networks import DSCNN, Autoencoder
from tests.support import cifar


class CifarNet(nn.Module):
    """Three convolutions with pools between them, and two matrices, for images of 32 by 32."""

    def __init__(self) -> None:
        super().__init__()
        widths = ((3, 32), (32, 32), (32, 64))
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 5, padding=2) for a, b in widths)
        self.fc = nn.Linear(1024, 64)
        self.last = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        for conv in self.convs:
            x = nn.functional.max_pool2d(torch.relu(conv(x)), 2)
        x = torch.relu(self.fc(x.flatten(1)))
        return torch.softmax(self.last(x), dim=1)


class _Block(nn.Module):
    def __init__(self, inside: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out),
        )  # fmt: skip
        self.skip = nn.Conv2d(inside, out, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.skip(x))


class ResNet8(nn.Module):
    """MLPerf Tiny's image classification."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.blocks = nn.Sequential(_Block(16, 16, 1), _Block(16, 32, 2), _Block(32, 64, 2))
        self.last = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.avg_pool2d(self.blocks(self.stem(x)), 8)
        return torch.softmax(self.last(x.flatten(1)), 1)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "cifarnet": (CifarNet, (1, 3, 32, 32)),
    "ds_cnn": (DSCNN, (1, 1, 49, 10)),
    "resnet8": (ResNet8, (1, 3, 32, 32)),
    "autoencoder": (Autoencoder, (1, 640)),
}
TRAINED: dict[str, Callable[[], nn.Module]] = {"cifarnet": cifarnet, "mobilenetv2": cifar.mobilenet}
