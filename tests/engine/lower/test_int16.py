"""Convolutions and pools of 16-bit integers: sums of 48 bits, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from edgewright.backends.ethos_u.dialect import DIALECT
from edgewright.ir.graph import Graph
from tests.backends.ethos_u.dialect.test_to_core import rescale
from tests.backends.nxp.dialect.test_to_core import window
from tests.engine.vendors import anything, graph, numbers, plain, same, tosa


def convolution(
    deep: bool, inputs: int, kernel: int, stride: int, pad: int, wide: bool, gain: float, last: bool = False,
    dilation: int = 1,
) -> Graph:  # fmt: skip
    """``wide``: weights of 16 bits, else of 8. ``gain``: of a sum of ordinary size."""
    rng = np.random.default_rng(1)
    channels, x = inputs if deep else 19, plain("x", (2, 7, 9, inputs), "int16")
    most, dtype = (32767, "int16") if wide else (127, "int8")
    shape = (kernel, kernel, inputs, 1) if deep else (channels, kernel, kernel, inputs)
    weight = numbers(rng.integers(-most, most + 1, shape), dtype)
    size = [window(n + 2 * pad, kernel, stride, dilation) for n in x.bound[1:3]]
    acc, out = (plain("acc", (2, *size, channels), "int64"), plain("out", (2, *size, channels), "int16"))
    bias = numbers(rng.integers(-(1 << 30), 1 << 30, channels), "int64")
    taps = kernel * kernel * (1 if deep else inputs)
    typical = 20000 * most / 2 * np.sqrt(taps)
    bits = int(np.floor(np.log2(typical / 20000 / gain))) + 15
    multiplier = rng.integers(1 << 14, 1 << 15, channels)
    ops = [
        tosa("depthwise_conv2d" if deep else "conv2d", acc, input=x, weight=weight, bias=bias, input_zp=0, weight_zp=0,
             pad=[pad] * 4, stride=[stride] * 2, dilation=[dilation] * 2),
        rescale(acc, out, multiplier, np.full(channels, bits)),
    ]  # fmt: skip
    if last:
        clamped = plain("clamped", out.bound, "int16")
        ops.append(tosa("clamp", clamped, input=out, min_val=0, max_val=20000))
        out = clamped
    return graph([out], *ops)


@pytest.mark.sample(3)
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("inputs", [3, 24, 301])
@pytest.mark.parametrize("sizes", [(1, 1, 0, 1), (3, 1, 1, 1), (3, 2, 0, 2)])
@pytest.mark.parametrize("gain", [1.0, 30.0])  # the second saturates
def test_convolutions(wide: bool, inputs: int, sizes: tuple[int, int, int, int], gain: float) -> None:
    kernel, stride, pad, dilation = sizes
    same(convolution(False, inputs, kernel, stride, pad, wide, gain, gain == 1.0, dilation), "tosa")


@pytest.mark.parametrize("inputs", [5, 16, 37])
@pytest.mark.parametrize("sizes", [(3, 1, 1, 1), (3, 2, 0, 2), (5, 2, 2, 1)])
@pytest.mark.parametrize("gain", [1.0, 30.0])
def test_depthwise_convolutions(inputs: int, sizes: tuple[int, int, int, int], gain: float) -> None:
    kernel, stride, pad, dilation = sizes
    same(convolution(True, inputs, kernel, stride, pad, False, gain, gain == 1.0, dilation), "tosa")


@pytest.mark.parametrize("inputs", [8, 37])
def test_depthwise_sums_of_more_than_32_bits(inputs: int) -> None:
    made = convolution(True, inputs, 3, 1, 1, True, 1.0)
    (sums,) = DIALECT.execute(graph([made.ops[0].outputs[0]], made.ops[0]), [anything(made.inputs[0])])
    assert np.abs(sums).max() > 1 << 31
    same(made, "tosa")


def test_extremes() -> None:
    """The largest products of all, as many as 32 bits do not hold."""
    x, out = plain("x", (1, 1, 2, 600), "int16"), plain("out", (1, 1, 2, 17), "int16")
    acc = plain("acc", (1, 1, 2, 17), "int64")
    weight = numbers(np.full((17, 1, 1, 600), -128), "int8")
    product = tosa("conv2d", acc, input=x, weight=weight, bias=numbers([0], "int64"), input_zp=0, weight_zp=0,
                   pad=[0] * 4, stride=[1, 1], dilation=[1, 1])  # fmt: skip
    given = np.full(x.bound, -32768, np.int16)
    given[:, :, 1] = 32767
    assert np.abs(DIALECT.execute(graph([acc], product), [given])[0]).max() > 1 << 31
    same(graph([out], product, rescale(acc, out, 1 << 14, 40)), "tosa", [given])


@pytest.mark.parametrize(("kernel", "stride"), [([2, 2], [2, 2]), ([3, 2], [1, 2])])
def test_pools(kernel: list[int], stride: list[int]) -> None:
    x = plain("x", (2, 7, 8, 21), "int16")
    y = plain("y", (2, *(window(n, k, s) for n, k, s in zip(x.bound[1:3], kernel, stride, strict=True)), 21), "int16")
    same(graph([y], tosa("max_pool2d", y, input=x, kernel=kernel, stride=stride, pad=[0] * 4)), "tosa")
    same(graph([y], tosa("avg_pool2d", y, input=x, input_zp=0, output_zp=0, kernel=kernel, stride=stride, pad=[0] * 4)),
         "tosa")  # fmt: skip
