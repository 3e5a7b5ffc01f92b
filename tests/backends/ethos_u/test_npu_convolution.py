"""Convolutions on the simulated NPU and in the TOSA reference model: the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.backends.ethos_u.tosa_graphs import SIMULATED, Graph, assert_equal


def convolution(shape: Any, weights: Any, *, kind: str = "CONV2D", dtype: str = "i8", rounding: str = "single",
                per_channel: bool = True, zero: tuple[int, int] = (3, -5), **options: Any) -> Graph:  # fmt: skip
    """One convolution with random constants, and the rescale that brings its sums back."""
    rng = np.random.default_rng(len(shape) + sum(weights))
    graph = Graph()
    x = graph.input(shape, dtype)
    limit = 7 if options.get("weight_type") == "i4" else 127
    values = rng.integers(-limit, limit, weights, endpoint=True)
    channels = weights[2] * weights[3] if kind == "DEPTHWISE_CONV2D" else weights[0]
    taps = int(np.prod(weights)) / (channels if kind == "DEPTHWISE_CONV2D" else weights[0])
    zero = (0, 0) if dtype == "i16" else zero
    sums = graph.conv(x, values, rng.integers(-3000, 3000, channels), kind=kind, zero=zero[0], **options)
    scale = 1.5 / (limit * np.sqrt(taps)) * rng.uniform(0.5, 1, channels if per_channel else 1)
    scaled = graph.rescale(sums, scale if per_channel else scale[0], zero=(0, zero[1]), to=dtype, rounding=rounding,
                           scale32=dtype != "i16")  # fmt: skip
    return graph.output(scaled)


DEPTHWISE, TRANSPOSE = "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D"
CASES: dict[str, Callable[[], Graph]] = {
    "3x3": partial(convolution, (1, 9, 10, 4), weights=(16, 3, 3, 4), pad=(1, 1, 1, 1)),
    "3x3 of 3 channels": partial(convolution, (1, 16, 16, 3), weights=(8, 3, 3, 3), pad=(0, 1, 0, 1), stride=(2, 2)),
    "stride 3": partial(convolution, (1, 13, 13, 8), weights=(8, 4, 4, 8), stride=(3, 3)),
    "two strides": partial(convolution, (1, 13, 12, 8), weights=(12, 3, 2, 8), stride=(1, 2)),
    "dilated": partial(convolution, (1, 12, 12, 16), weights=(24, 3, 3, 16), pad=(2, 2, 2, 2), dilation=(2, 2)),
    "dilated by 2 and 1": partial(convolution, (1, 12, 12, 5), weights=(7, 3, 3, 5), dilation=(2, 1)),
    "dilated by 3": partial(convolution, (1, 12, 12, 8), weights=(8, 3, 3, 8), dilation=(3, 3)),
    "1x1": partial(convolution, (1, 6, 7, 40), weights=(33, 1, 1, 40)),
    "1x1 deep": partial(convolution, (1, 2, 3, 530), weights=(300, 1, 1, 530)),
    "3x3 of 20 channels": partial(convolution, (1, 6, 6, 20), weights=(10, 3, 3, 20)),
    "3x3 of 44 channels": partial(convolution, (1, 6, 6, 44), weights=(20, 3, 3, 44)),
    "3x3 of 130 channels": partial(convolution, (1, 6, 6, 130), weights=(70, 3, 3, 130)),
    "1x1 of 16 channels": partial(convolution, (1, 6, 6, 16), weights=(24, 1, 1, 16)),
    "9x9 kernel": partial(convolution, (1, 16, 16, 4), weights=(5, 9, 9, 4), pad=(4, 4, 4, 4)),
    "1x12 kernel": partial(convolution, (1, 4, 30, 4), weights=(9, 1, 12, 4)),
    "one channel": partial(convolution, (1, 16, 16, 1), weights=(8, 5, 5, 1)),
    "one scale": partial(convolution, (1, 8, 8, 8), weights=(17, 3, 3, 8), per_channel=False),
    "double rounding": partial(convolution, (1, 8, 8, 8), weights=(17, 3, 3, 8), rounding="double"),
    "fully connected": partial(convolution, (1, 1, 1, 200), weights=(50, 1, 1, 200)),
    "batch of rows": partial(convolution, (5, 1, 1, 64), weights=(20, 1, 1, 64)),
    "batch of images": partial(convolution, (3, 6, 6, 8), weights=(12, 3, 3, 8)),
    "int16": partial(convolution, (1, 8, 9, 12), weights=(16, 3, 3, 12), dtype="i16", pad=(1, 1, 1, 1)),
    "int16 3x3 of 20 channels": partial(convolution, (1, 6, 6, 20), weights=(10, 3, 3, 20), dtype="i16"),
    "int16 dilated": partial(convolution, (1, 9, 9, 8), weights=(10, 3, 3, 8), dtype="i16", dilation=(2, 2)),
    "int16 1x1": partial(convolution, (1, 8, 9, 40), weights=(33, 1, 1, 40), dtype="i16"),
    "int16 stride 2": partial(convolution, (1, 9, 9, 3), weights=(11, 3, 3, 3), dtype="i16", stride=(2, 2)),
    "int4 weights": partial(convolution, (1, 8, 8, 8), weights=(16, 3, 3, 8), weight_type="i4"),
    "depthwise": partial(convolution, (1, 9, 9, 19), weights=(3, 3, 19, 1), kind=DEPTHWISE, pad=(1, 1, 1, 1)),
    "depthwise stride 2": partial(convolution, (1, 9, 9, 32), weights=(3, 3, 32, 1), kind=DEPTHWISE, stride=(2, 2)),
    "depthwise dilated": partial(convolution, (1, 12, 12, 8), weights=(3, 3, 8, 1), kind=DEPTHWISE, dilation=(2, 2)),
    "depthwise 5x5": partial(convolution, (1, 12, 12, 24), weights=(5, 5, 24, 1), kind=DEPTHWISE, pad=(2, 2, 2, 2)),
    "depthwise 9x9": partial(convolution, (1, 12, 12, 8), weights=(9, 9, 8, 1), kind=DEPTHWISE, pad=(4, 4, 4, 4)),
    "depthwise of one channel": partial(convolution, (1, 9, 9, 1), weights=(3, 3, 1, 8), kind=DEPTHWISE),
    "depthwise multiplied": partial(convolution, (1, 9, 9, 4), weights=(3, 3, 4, 2), kind=DEPTHWISE),
    "depthwise int16": partial(convolution, (1, 9, 9, 12), weights=(3, 3, 12, 1), kind=DEPTHWISE, dtype="i16"),
    "transposed": partial(convolution, (1, 5, 6, 8), weights=(12, 3, 3, 8), kind=TRANSPOSE, stride=(2, 2)),
    "transposed 2x2": partial(convolution, (1, 5, 6, 8), weights=(12, 2, 2, 8), kind=TRANSPOSE, stride=(2, 2)),
    "transposed stride 1": partial(convolution, (1, 5, 6, 8), weights=(12, 3, 3, 8), kind=TRANSPOSE),
    "transposed cut": partial(convolution, (1, 5, 6, 8), weights=(12, 4, 4, 8), kind=TRANSPOSE, stride=(2, 2),
                              pad=(-1, -1, -1, -1)),
}  # fmt: skip


@pytest.mark.sample(68)
@pytest.mark.parametrize("accelerator", SIMULATED)
@pytest.mark.parametrize("case", CASES)
def test_convolution(case: str, accelerator: str) -> None:
    assert_equal(CASES[case](), accelerator)
