"""Inception V3 and V4, for images of 299 by 299 pixels, without what is for training only."""

from __future__ import annotations

from layers import Branches, Conv
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

Size = int | tuple[int, int]
ROW7, COLUMN7, ROW3, COLUMN3 = (1, 7), (7, 1), (1, 3), (3, 1)


def conv(inside: int, out: int, kernel: Size, stride: int = 1, pad: bool = False) -> Conv:
    """``pad``: so that the size stays as it is."""
    around = tuple(k // 2 for k in ((kernel, kernel) if isinstance(kernel, int) else kernel))
    return Conv(inside, out, kernel, stride, around if pad else 0, eps=1e-3)  # type: ignore[arg-type]


def chain(inside: int, *steps: tuple[int, Size]) -> nn.Sequential:
    """Convolutions that keep the image's size, one after the other."""
    layers = []
    for out, kernel in steps:
        layers.append(conv(inside, out, kernel, pad=True))
        inside = out
    return nn.Sequential(*layers)


def average(counted: bool = True) -> nn.AvgPool2d:
    return nn.AvgPool2d(3, 1, 1, count_include_pad=counted)


def _fork(inside: int, *before: tuple[int, Size], out: int) -> nn.Sequential:
    """A chain whose end is seen through a row and a column."""
    width = before[-1][0]
    return nn.Sequential(chain(inside, *before), Branches(chain(width, (out, ROW3)), chain(width, (out, COLUMN3))))


def _v3_a(inside: int, pooled: int) -> nn.Module:
    pool = nn.Sequential(average(), conv(inside, pooled, 1))
    wide, twice = chain(inside, (48, 1), (64, 5)), chain(inside, (64, 1), (96, 3), (96, 3))
    return Branches(conv(inside, 64, 1), wide, twice, pool)


def _v3_c(inside: int, width: int) -> nn.Module:
    pool = nn.Sequential(average(), conv(inside, 192, 1))
    once = chain(inside, (width, 1), (width, ROW7), (192, COLUMN7))
    twice = chain(inside, (width, 1), (width, COLUMN7), (width, ROW7), (width, COLUMN7), (192, ROW7))
    return Branches(conv(inside, 192, 1), once, twice, pool)


def _v3_e(inside: int) -> nn.Module:
    pool = nn.Sequential(average(), conv(inside, 192, 1))
    once = _fork(inside, (384, 1), out=384)
    return Branches(conv(inside, 320, 1), once, _fork(inside, (448, 1), (384, 3), out=384), pool)


class InceptionV3(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        stem = (conv(3, 32, 3, 2), conv(32, 32, 3), conv(32, 64, 3, pad=True), nn.MaxPool2d(3, 2), conv(64, 80, 1),
                conv(80, 192, 3), nn.MaxPool2d(3, 2))  # fmt: skip
        reduce_a = Branches(
            conv(288, 384, 3, 2), nn.Sequential(chain(288, (64, 1), (96, 3)), conv(96, 96, 3, 2)), nn.MaxPool2d(3, 2)
        )
        reduce_b = Branches(
            nn.Sequential(chain(768, (192, 1)), conv(192, 320, 3, 2)),
            nn.Sequential(chain(768, (192, 1), (192, ROW7), (192, COLUMN7)), conv(192, 192, 3, 2)),
            nn.MaxPool2d(3, 2),
        )
        self.features = nn.Sequential(
            *stem, _v3_a(192, 32), _v3_a(256, 64), _v3_a(288, 64), reduce_a,
            *(_v3_c(768, n) for n in (128, 160, 160, 192)), reduce_b, _v3_e(1280), _v3_e(2048),
        )  # fmt: skip
        self.head = nn.Sequential(nn.Dropout(0.5), nn.Linear(2048, 1000))

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.head(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))
        return made


def _v4_a() -> nn.Module:
    pool = nn.Sequential(average(False), conv(384, 96, 1))
    once, twice = chain(384, (64, 1), (96, 3)), chain(384, (64, 1), (96, 3), (96, 3))
    return Branches(conv(384, 96, 1), once, twice, pool)


def _v4_b() -> nn.Module:
    pool = nn.Sequential(average(False), conv(1024, 128, 1))
    once = chain(1024, (192, 1), (224, ROW7), (256, COLUMN7))
    twice = chain(1024, (192, 1), (192, COLUMN7), (224, ROW7), (224, COLUMN7), (256, ROW7))
    return Branches(conv(1024, 384, 1), once, twice, pool)


def _v4_c() -> nn.Module:
    pool = nn.Sequential(average(False), conv(1536, 256, 1))
    twice = _fork(1536, (384, 1), (448, COLUMN3), (512, ROW3), out=256)
    return Branches(conv(1536, 256, 1), _fork(1536, (384, 1), out=256), twice, pool)


class InceptionV4(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        once = nn.Sequential(chain(160, (64, 1)), conv(64, 96, 3))
        twice = nn.Sequential(chain(160, (64, 1), (64, ROW7), (64, COLUMN7)), conv(64, 96, 3))
        reduce_a = Branches(
            conv(384, 384, 3, 2),
            nn.Sequential(chain(384, (192, 1), (224, 3)), conv(224, 256, 3, 2)),
            nn.MaxPool2d(3, 2),
        )
        reduce_b = Branches(
            nn.Sequential(chain(1024, (192, 1)), conv(192, 192, 3, 2)),
            nn.Sequential(chain(1024, (256, 1), (256, ROW7), (320, COLUMN7)), conv(320, 320, 3, 2)),
            nn.MaxPool2d(3, 2),
        )
        self.features = nn.Sequential(
            conv(3, 32, 3, 2), conv(32, 32, 3), conv(32, 64, 3, pad=True),
            Branches(nn.MaxPool2d(3, 2), conv(64, 96, 3, 2)), Branches(once, twice),
            Branches(conv(192, 192, 3, 2), nn.MaxPool2d(3, 2)), *(_v4_a() for _ in range(4)), reduce_a,
            *(_v4_b() for _ in range(7)), reduce_b, *(_v4_c() for _ in range(3)),
        )  # fmt: skip
        self.head = nn.Linear(1536, 1000)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.head(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))
        return made
