"""Whole networks with random weights on the simulated NPU and in the TOSA reference model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.backends.ethos_u.tosa_graphs import Graph, Tensor, assert_equal, compile_graph, random_inputs, simulate

ZERO = -3


class Layers:
    """Layers with random constants whose outputs stay spread over their range."""

    def __init__(self, dtype: str = "i8") -> None:
        self.graph, self.dtype, self.rng = Graph(), dtype, np.random.default_rng(3)
        self.zero = ZERO if dtype == "i8" else 0

    def conv(self, x: Tensor, channels: int, size: int = 1, stride: int = 1, relu: bool = True) -> Tensor:
        weights = np.round(self.rng.normal(0, 30, (channels, size, size, x.shape[3]))).clip(-127, 127)
        return self._finish(x, weights, channels, size, stride, relu, "CONV2D", size * size * x.shape[3])

    def depthwise(self, x: Tensor, stride: int = 1) -> Tensor:
        weights = np.round(self.rng.normal(0, 30, (3, 3, x.shape[3], 1))).clip(-127, 127)
        return self._finish(x, weights, x.shape[3], 3, stride, True, "DEPTHWISE_CONV2D", 9)

    def _finish(self, x: Tensor, weights: Any, channels: int, size: int, stride: int, relu: bool, kind: str,
                taps: int) -> Tensor:  # fmt: skip
        pad = (0, 0, 0, 0) if size == 1 else (0, 1, 0, 1) if stride == 2 else (1, 1, 1, 1)
        bias = self.rng.integers(-2000, 2000, channels) * (1 if self.dtype == "i8" else 200)
        sums = self.graph.conv(x, weights, bias, kind=kind, pad=pad, stride=(stride, stride), zero=self.zero)
        scale = 1.4 / 30 / np.sqrt(taps) * self.rng.uniform(0.7, 1.3, channels)
        y = self.graph.rescale(sums, scale, zero=(0, self.zero), to=self.dtype, scale32=self.dtype == "i8")
        return self.graph.clamp(y, self.zero, 127 if self.dtype == "i8" else 32767) if relu else y

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        room = 20 if self.dtype == "i8" else 15
        a = self.graph.rescale(x, 2 ** (room - 1), zero=(self.zero, 0), to="i32")
        b = self.graph.rescale(y, 0.83 * 2 ** (room - 1), zero=(self.zero, 0), to="i32")
        total = self.graph.binary("ADD", a, b)
        return self.graph.rescale(total, 0.8 / 2 ** (room - 1), zero=(0, self.zero), to=self.dtype)

    def head(self, x: Tensor, classes: int) -> Graph:
        mean = self.graph.pool(x, "AVG_POOL2D", x.shape[1:3], zero=(self.zero, self.zero))
        return self.graph.output(self.conv(mean, classes, relu=False))


def mobilenet(side: int, width: float = 1.0, dtype: str = "i8", classes: int = 1000) -> Graph:
    """The topology of MobileNetV2."""
    layers = Layers(dtype)

    def wide(channels: int) -> int:
        return max(8, int(channels * width + 4) // 8 * 8)

    x = layers.conv(layers.graph.input((1, side, side, 3), dtype), wide(32), 3, 2)
    x = layers.conv(layers.depthwise(x), wide(16), relu=False)
    for channels, count, stride in ((24, 2, 2), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 2), (320, 1, 1)):
        for i in range(count):
            inner = layers.depthwise(layers.conv(x, x.shape[3] * 6), stride if i == 0 else 1)
            y = layers.conv(inner, wide(channels), relu=False)
            x = layers.add(x, y) if i else y
    return layers.head(layers.conv(x, max(1280, wide(1280))), classes)


def resnet(side: int) -> Graph:
    """The topology of ResNet18, with fewer channels."""
    layers = Layers()
    x = layers.conv(layers.graph.input((1, side, side, 3)), 16, 3, 2)
    x = layers.graph.pool(x, "MAX_POOL2D", (3, 3), (2, 2), (0, 1, 0, 1))
    for channels, stride in ((16, 1), (32, 2), (64, 2), (128, 2)):
        for i in range(2):
            step = stride if i == 0 else 1
            y = layers.conv(layers.conv(x, channels, 3, step), channels, 3, relu=False)
            short = x if step == 1 and x.shape[3] == channels else layers.conv(x, channels, 1, 1, relu=False)
            if step == 2:
                short = layers.graph.pool(short, "MAX_POOL2D", (2, 2), (2, 2))
            x = layers.add(short, y)
    return layers.head(x, 100)


@pytest.mark.sample(2)
@pytest.mark.parametrize("accelerator", ["ethos-u55-32", "ethos-u55-128", "ethos-u55-256", "ethos-u65-256"])
def test_small_mobilenet(accelerator: str) -> None:
    assert_equal(mobilenet(96, 0.35, classes=100), accelerator)


def test_small_mobilenet_in_little_memory() -> None:
    assert_equal(mobilenet(96, 0.35, classes=100), "ethos-u55-128", options="arena_size_limit=60000\n")


def test_small_mobilenet_of_16_bits() -> None:
    assert_equal(mobilenet(64, 0.35, "i16", classes=100), "ethos-u55-128")


@pytest.mark.parametrize("accelerator", ["ethos-u55-128", "ethos-u65-256"])
def test_small_resnet(accelerator: str) -> None:
    assert_equal(resnet(64), accelerator)


def test_one_changed_input_changes_the_answer() -> None:
    """The networks above do not swallow their inputs."""
    graph = mobilenet(96, 0.35, classes=100)
    model, (image,) = compile_graph(graph, "ethos-u55-128"), random_inputs(graph)
    changed = image.copy()
    changed[0, 40:56, 40:56] = 0
    first, second = (simulate(model, [x])[0] for x in (image, changed))
    assert len(np.unique(first)) > 20
    assert (first != second).mean() > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("accelerator", ["ethos-u55-128", "ethos-u55-256", "ethos-u65-256"])
def test_mobilenet(accelerator: str) -> None:
    assert_equal(mobilenet(224), accelerator)
