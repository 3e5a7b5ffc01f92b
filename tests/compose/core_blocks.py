"""Blocks in the core dialect's steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.compose.core import Core, arithmetic, byte, draw_q, image, single
from tests.compose.draw import Draw
from tests.compose.motifs import Block
from tests.compose.spec import Step


class CoreBlock(Block):
    def __init__(self, d: Draw, b: Core, apply: Callable[[Step], int]) -> None:
        super().__init__(d, apply)
        self.b = b

    def _byte(self, at: int) -> bool:
        return byte(self.b.values[at])

    def shape(self, at: int) -> tuple[int, ...]:
        return self.b.values[at].bound

    def image(self, even: bool = False) -> int:
        return self.pick(
            self.b.values, lambda v: image(v) and arithmetic(v) and not (even and (v.bound[1] % 2 or v.bound[2] % 2))
        )

    def conv(self, at: int, channels: int, kernel: int = 1, stride: int = 1, act: str | None = None) -> int:
        return self.add("conv2d", at, channels=channels, groups=1, limits=act, **self._window(kernel, stride))

    def depthwise(self, at: int, kernel: int = 3, stride: int = 1, act: str | None = None) -> int:
        return self.add("depthwise", at, times=1, limits=act, **self._window(kernel, stride))

    def _window(self, kernel: int, stride: int) -> dict[str, Any]:
        half = kernel // 2
        return {"kernel": [kernel, kernel], "stride": [stride, stride], "padding": [half] * 4, "dilation": [1, 1],
                "bias": self.d.chance(0.8), "per_channel": True, "q": draw_q(self.d),
                "seed": self.d.seed()}  # fmt: skip

    def double(self, at: int, channels: int) -> int:
        return self.add("transposed", at, kernel=[2, 2], stride=[2, 2], padding=[0] * 4, extra=[0, 0], dilation=[1, 1],
                        groups=1, channels=channels, bias=True, limits=None, per_channel=True, q=draw_q(self.d),
                        seed=self.d.seed())  # fmt: skip

    def binary(self, kind: str, a: int, b: int, act: str | None = None) -> int:
        return self.add("binary", a, b, kind=kind, limits=act, q=draw_q(self.d))

    def cat(self, *parts: int) -> int:
        return self.add("cat", *parts, dim=len(self.shape(parts[0])) - 1, q=draw_q(self.d))

    def part(self, at: int, start: int, length: int) -> int:
        return self.add("slice", at, dim=len(self.shape(at)) - 1, start=start, length=length)

    def shuffle(self, at: int) -> int:
        return self.add("shuffle", at, groups=2)

    def global_pool(self, at: int) -> int:
        return self.add("global_pool", at, q=draw_q(self.d), limits=None)

    def function(self, kind: str, at: int) -> int:
        if self._byte(at):
            return self.add("table", at, kinds=[kind], q=[1.0, -128])
        return self.add("unary", at, kind=kind, seed=0)

    def max_pool(self, at: int) -> int:
        return self.add("pool", at, kind="max_pool2d", kernel=[3, 3], stride=[1, 1], padding=[1] * 4, limits=None)

    def rows(self, at: int) -> int:
        n, high, wide, channels = self.shape(at)
        return self.add("view", at, shape=[n, high * wide, channels])

    def sequence(self) -> int:
        return self.pick(self.b.values, lambda v: single(v) and len(v.bound) == 3)

    def matrix(self) -> int:
        return self.pick(self.b.values, lambda v: single(v) and len(v.bound) == 2)

    def linear(self, at: int, channels: int) -> int:
        return self.add("linear", at, channels=channels, bias=True, limits=None, q=[1, 0], seed=self.d.seed())

    def heads(self, at: int, count: int) -> int:
        n, length, size = self.shape(at)
        return self.add("permute", self.add("view", at, shape=[n, length, count, size // count]), dims=[0, 2, 1, 3])

    def unheads(self, at: int) -> int:
        n, heads, length, size = self.shape(at)
        return self.add("view", self.add("permute", at, dims=[0, 2, 1, 3]), shape=[n, length, heads * size])

    def matmul(self, a: int, b: int, transposed: bool) -> int:
        return self.add("bmm", a, b, flip=transposed)

    def softmax(self, at: int) -> int:
        return self.add("softmax", at)

    def bias(self, at: int) -> int:
        return self.add("with_constant", at, kind="add", shape="row", flip=False, limits=None, q=[1, 0],
                        seed=self.d.seed())  # fmt: skip

    def dynamic(self) -> tuple[int, bool]:
        x = self.pick(self.b.values, lambda v: single(v) and 2 <= len(v.bound) <= 4)
        pictures = len(self.shape(x)) == 4 and self.d.chance(0.7)
        return self.add("quantize_rows", x, axis=-3 if pictures else -1), pictures
