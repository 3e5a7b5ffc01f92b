"""Networks that XNNPACK is measured with, beside those of the compiler: with random weights, the same every time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from tests.program.networks import MODELS, conv_norm

Made = tuple[nn.Module, tuple[Any, ...]]


class Squeeze(nn.Module):
    """Each channel weighed by what all of the image says about it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(width, width // 4, 1), nn.Conv2d(width // 4, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * F.hardsigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))))


class MobileNetV3(nn.Module):
    """A short MobileNetV3: hardswish, squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(*conv_norm(3, 16, 3, 2), nn.Hardswish(), *self._block(16, 64, 24, 2), Squeeze(24),
                                      *self._block(24, 72, 40, 2), nn.Hardswish(), Squeeze(40))  # fmt: skip
        self.head = nn.Sequential(nn.Linear(40, 128), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(128, 10))

    @staticmethod
    def _block(inside: int, wide: int, out: int, stride: int) -> list[nn.Module]:
        first = [*conv_norm(inside, wide, 1), nn.Hardswish()]
        return [*first, *conv_norm(wide, wide, 5, stride, wide), nn.Hardswish(), *conv_norm(wide, out, 1)]

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


class DeepLab(nn.Module):
    """Dilated branches and a pooled one, joined, scaled up, and a class for every pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(*conv_norm(3, 16, 3, 2), nn.ReLU(), *conv_norm(16, 32, 3, 2), nn.ReLU())
        self.branches = nn.ModuleList([nn.Conv2d(32, 16, 1)])
        self.branches.extend(nn.Conv2d(32, 16, 3, padding=d, dilation=d) for d in (2, 4))
        self.pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(32, 16, 1), nn.ReLU())
        self.head = nn.Sequential(*conv_norm(64, 32, 1), nn.ReLU(), nn.Conv2d(32, 5, 1))

    def forward(self, x: Tensor) -> Tensor:
        deep = self.stem(x)
        pooled = F.interpolate(self.pooled(deep), deep.shape[2:], mode="bilinear", align_corners=False)
        joined = torch.cat([*(F.relu(b(deep)) for b in self.branches), pooled], 1)
        return F.interpolate(self.head(joined), x.shape[2:], mode="bilinear", align_corners=False).softmax(1)


class AudioNet(nn.Module):
    """Waves in, words out: one-dimensional convolutions."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inside, out, kernel, stride in ((1, 16, 15, 4), (16, 32, 5, 2), (32, 64, 3, 2)):
            layers += [nn.Conv1d(inside, out, kernel, stride, kernel // 2), nn.BatchNorm1d(out), nn.ReLU()]
        self.body = nn.Sequential(*layers, nn.Conv1d(64, 64, 3, padding=1, groups=64), nn.ReLU())
        self.head = nn.Linear(64 * 25, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).flatten(1)).log_softmax(-1)


class Bert(nn.Module):
    """Words and places into an encoder, and a pooled first word."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(100, 48), nn.Parameter(torch.randn(1, 12, 48) * 0.1)
        layer = nn.TransformerEncoderLayer(48, 4, 96, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.pool = nn.Linear(48, 48)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.pool(self.encoder(self.words(x) + self.places)[:, 0]))


def _made(kind: Callable[[], nn.Module], example: Callable[[], Tensor]) -> Callable[[], Made]:
    def make() -> Made:
        torch.manual_seed(13)
        model = kind().requires_grad_(False).train()
        if not isinstance(model, Bert):
            for _ in range(2):  # statistics of batches that are not all alike
                model(torch.cat([example() * 2, example() + 1]))
        return model.eval(), (example(),)

    return make


_SHARED = ("cifarnet", "mobilenet_v2", "resnet18", "vit", "encoder", "upscaler")
NETWORKS: dict[str, Callable[[], Made]] = {
    **{name: MODELS[name] for name in _SHARED},
    "mobilenet_v3": _made(MobileNetV3, lambda: torch.randn(1, 3, 64, 64)),
    "deeplab": _made(DeepLab, lambda: torch.randn(1, 3, 48, 64)),
    "audio": _made(AudioNet, lambda: torch.randn(1, 1, 400)),
    "bert": _made(Bert, lambda: torch.randint(0, 100, (1, 12))),
}
CONVOLUTIONAL = ("cifarnet", "mobilenet_v2", "resnet18", "mobilenet_v3", "deeplab")
