"""What the operators of a device graph mean, against LiteRT's reference kernels: every byte, and ties."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewright.backends.nxp.dialect.numerics import quantize_output
from edgewright.ir.fixed_point import quantize_multiplier
from edgewright.ir.graph import QParams, Value
from edgewright.ir.int_rules import DESCRIPTIONS, ELEMENTWISE
from tests.backends.nxp.litert import INT8, differences, graph, numbers, run, value, write_tflite

EVERY = np.arange(-128, 128, dtype=np.int8).reshape(1, 256)
SCALES = [(0.05, 3, 0.04, -10), (0.0392, -128, 0.0235, -128), (0.1, 0, 0.1, 0), (0.031, -20, 0.07, 5)]


def _unary(kind: str, given: tuple[float, int, float, int], **options: Any) -> int:
    x, y = value("x", EVERY.shape, *given[:2]), value("y", EVERY.shape, *given[2:])
    return differences(graph(kind, [x], y, **options), [EVERY])


@pytest.mark.parametrize("given", SCALES)
@pytest.mark.parametrize("kind", ["RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "ABS", "HARD_SWISH", "EXP", "LOG"])
def test_functions_of_every_byte(kind: str, given: tuple[float, int, float, int]) -> None:
    assert _unary(kind, given) == 0


def test_exponentials_that_are_out_of_reach_are_the_largest() -> None:
    assert _unary("EXP", (0.19, -128, 0.005, 0)) == 0


@pytest.mark.parametrize("given", SCALES)
def test_functions_with_fixed_results(given: tuple[float, int, float, int]) -> None:
    assert _unary("LOGISTIC", (*given[:2], 1 / 256, -128)) == 0
    assert _unary("TANH", (*given[:2], 1 / 128, 0)) == 0
    assert _unary("SOFTMAX", (*given[:2], 1 / 256, -128), beta=1.0) == 0


@pytest.mark.parametrize("alpha", [0.01, 0.3, -0.3])
@pytest.mark.parametrize("given", SCALES)
def test_leaky_relu(given: tuple[float, int, float, int], alpha: float) -> None:
    assert _unary("LEAKY_RELU", given, alpha=alpha) == 0


@pytest.mark.parametrize("given", [(0.02, -128, 0.03, -128), (0.3, -128, 0.011, -100)])
def test_reciprocal_roots(given: tuple[float, int, float, int]) -> None:
    assert _unary("RSQRT", given) == 0


@pytest.mark.parametrize("given", SCALES)
@pytest.mark.parametrize("kind", ["ADD", "SUB", "MUL"])
def test_arithmetic_of_every_pair(kind: str, given: tuple[float, int, float, int]) -> None:
    a, b = (x.astype(np.int8) for x in np.meshgrid(np.arange(-128, 128), np.arange(-128, 128)))
    operands = [value("a", a.shape, *given[:2]), value("b", b.shape, *given[2:])]
    assert differences(graph(kind, operands, value("y", a.shape, 0.09, 4)), [a, b]) == 0


@pytest.mark.parametrize("kernels", ["tflite", "xnnpack"])
@pytest.mark.parametrize("factor", [64, 48, 90.7])  # halves are met by the first two
def test_products_of_every_pair(factor: float, kernels: str) -> None:
    a, b = (x.astype(np.int8) for x in np.meshgrid(np.arange(-128, 128), np.arange(-128, 128)))
    for scales in np.random.default_rng(4).uniform(0.01, 0.1, (6, 2)).astype(np.float32):
        operands = [value("a", a.shape, float(scales[0]), 7), value("b", b.shape, float(scales[1]), -20)]
        out = value("y", a.shape, float(scales[0] * scales[1] * np.float32(factor)), 4)
        assert differences(graph("MUL", operands, out), [a, b], kernels) == 0


@pytest.mark.parametrize("given", SCALES)
def test_softmax_of_rows(given: tuple[float, int, float, int]) -> None:
    x = np.random.default_rng(1).integers(-128, 128, (300, 10)).astype(np.int8)
    made = graph("SOFTMAX", [value("x", x.shape, *given[:2])], value("y", x.shape, 1 / 256, -128), beta=1.0)
    assert differences(made, [x]) == 0


@pytest.mark.parametrize("axes", [[1, 2], [3], [0, 1, 2, 3], [2]])
@pytest.mark.parametrize("keep", [True, False])
def test_means(axes: list[int], keep: bool) -> None:
    x = np.random.default_rng(2).integers(-128, 128, (2, 6, 7, 5)).astype(np.int8)
    shape = x.mean(axis=tuple(axes), keepdims=keep).shape
    for given in SCALES:
        for ends in (given[:2], given[2:]):
            operands = [value("x", x.shape, *given[:2]), numbers(axes)]
            assert differences(graph("MEAN", operands, value("y", shape, *ends), keep_dims=keep), [x]) == 0


@pytest.mark.parametrize("given", SCALES)
def test_slopes_of_channels(given: tuple[float, int, float, int]) -> None:
    rng = np.random.default_rng(5)
    slopes = value("slopes", (1, 1, 6), 0.011, 3, rng.integers(-128, 128, (1, 1, 6)).astype(np.int8))
    x = rng.integers(-128, 128, (1, 40, 5, 6)).astype(np.int8)
    made = graph("PRELU", [value("x", x.shape, *given[:2]), slopes], value("y", x.shape, *given[2:]))
    assert differences(made, [x]) == 0


@pytest.mark.parametrize("kind", ["MAXIMUM", "MINIMUM"])
def test_the_larger_and_the_smaller_of_every_pair(kind: str) -> None:
    a, b = (x.astype(np.int8) for x in np.meshgrid(np.arange(-128, 128), np.arange(-128, 128)))
    operands = [value(n, a.shape, 0.1, 4) for n in "ab"]
    assert differences(graph(kind, operands, value("y", a.shape, 0.1, 4)), [a, b]) == 0


@pytest.mark.parametrize("kind", ["REDUCE_MAX", "REDUCE_MIN"])
@pytest.mark.parametrize("axes", [[1, 2], [-1], [0, 1, 2, 3]])
@pytest.mark.parametrize("keep", [True, False])
def test_the_largest_and_the_smallest(kind: str, axes: list[int], keep: bool) -> None:
    x = np.random.default_rng(2).integers(-128, 128, (2, 6, 7, 5)).astype(np.int8)
    shape = x.max(axis=tuple(axes), keepdims=keep).shape
    made = graph(kind, [value("x", x.shape, 0.1, 4), numbers(axes)], value("y", shape, 0.1, 4), keep_dims=keep)
    assert differences(made, [x]) == 0


@pytest.mark.parametrize("kind", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
@pytest.mark.parametrize(
    ("window", "stride"), [((2, 2), (2, 2)), ((3, 5), (1, 2)), ((9, 10), (1, 1)), ((1, 1), (2, 3))]
)
def test_pools(kind: str, window: tuple[int, int], stride: tuple[int, int]) -> None:
    x = np.random.default_rng(2).integers(-128, 128, (2, 9, 10, 5)).astype(np.int8)
    x[0] %= 3  # averages around zero, which are halves
    size = [(n - k) // s + 1 for n, k, s in zip(x.shape[1:3], window, stride, strict=True)]
    options = dict(zip(("filter_h", "filter_w", "stride_h", "stride_w"), (*window, *stride), strict=True))
    given, made = (value(n, shape, 0.1, 4) for n, shape in (("x", x.shape), ("y", (2, *size, 5))))
    assert differences(graph(kind, [given], made, padding=1, **options), [x]) == 0


@pytest.mark.parametrize("size", [(12, 14), (5, 3), (6, 7), (1, 1), (11, 20)])
@pytest.mark.parametrize(
    ("kind", "aligned", "half", "kernels"),
    [
        ("RESIZE_BILINEAR", False, True, "tflite"), ("RESIZE_BILINEAR", True, False, "tflite"),
        ("RESIZE_BILINEAR", False, False, "tflite"), ("RESIZE_BILINEAR", False, True, "xnnpack"),
        ("RESIZE_BILINEAR", True, False, "xnnpack"), ("RESIZE_NEAREST_NEIGHBOR", False, False, "tflite"),
    ],
)  # fmt: skip
def test_resizes(kind: str, aligned: bool, half: bool, kernels: str, size: tuple[int, int]) -> None:
    x = np.random.default_rng(2).integers(-128, 128, (2, 6, 7, 5)).astype(np.int8)
    given, made = (value(n, shape, 0.1, 4) for n, shape in (("x", x.shape), ("y", (2, *size, 5))))
    options = {"align_corners": aligned, "half_pixel_centers": half}
    assert differences(graph(kind, [given, numbers(list(size))], made, **options), [x], kernels) == 0


@pytest.mark.parametrize("mode", [0, 1])
def test_mirrored_edges(mode: int) -> None:
    x = np.random.default_rng(2).integers(-128, 128, (2, 6, 7, 5)).astype(np.int8)
    widths = [[0, 0], [5, 2], [1, 6], [0, 1]]
    shape = tuple(n + a + b for n, (a, b) in zip(x.shape, widths, strict=True))
    operands = [value("x", x.shape, 0.1, 4), numbers(widths)]
    assert differences(graph("MIRROR_PAD", operands, value("y", shape, 0.1, 4), mode=mode), [x]) == 0


def test_every_definition_is_compared() -> None:
    """The engine compiles the same definitions, so nothing else would notice an error in one of them."""
    defined = {kind for kind in (*ELEMENTWISE, *DESCRIPTIONS) if kind.startswith("tflite.")}
    text = Path(__file__).read_text()
    assert [kind for kind in sorted(defined) if f'"{kind.removeprefix("tflite.")}"' not in text] == []


def _every_total(kind: str, count: int, scales: tuple[float, float], zeros: tuple[int, int]) -> tuple[Any, Any]:
    """A reduction of columns whose totals are all those that there are, around zero."""
    totals = np.arange(-40 * count, 40 * count + 1)
    columns = zeros[0] + totals // count + (np.arange(count)[:, None] < totals % count)
    operands = [value("x", columns.shape, scales[0], zeros[0]), numbers([0])]
    out = value("y", (1, totals.size), scales[1], zeros[1])
    return graph(kind, operands, out, keep_dims=True), columns.astype(np.int8)


@pytest.mark.parametrize("count", [6, 14, 16, 30])
@pytest.mark.parametrize("factor", [1.0, 0.5, 4.0, 1.37])  # halves are met by the first three
@pytest.mark.parametrize(
    ("kind", "kernels"), [("MEAN", "tflite"), ("MEAN", "xnnpack"), ("SUM", "sum"), ("SUM", "xnnpack")]
)
def test_sums_and_means_of_every_total(kind: str, kernels: str, count: int, factor: float) -> None:
    scales = (0.0371, 0.0371 * factor * (count if kind == "SUM" else 1))
    for zeros in ((0, 0), (5, 5), (-37, 12)):
        made, x = _every_total(kind, count, scales, zeros)
        assert differences(made, [x], kernels) == 0


@pytest.mark.parametrize("kernels", ["tflite", "xnnpack"])
def test_products_of_two_computed_matrices(kernels: str) -> None:
    rng = np.random.default_rng(3)
    for factor in (60.3, 64, 32, 48):  # halves are met by the last three
        for scales in rng.uniform(0.01, 0.1, (8, 2)).astype(np.float32):
            pair = [rng.integers(-127, 128, shape).astype(np.int8) for shape in ((2, 12, 20), (2, 20, 14))]
            operands = [value(n, x.shape, float(s)) for n, x, s in zip("ab", pair, scales, strict=True)]
            out = value("y", (2, 12, 14), float(scales[0] * scales[1] * np.float32(factor)), -9)
            assert differences(graph("BATCH_MATMUL", operands, out), pair, kernels) == 0


def _product(kind: str, factor: float) -> tuple[Any, np.ndarray[Any, Any]]:
    """A product by one weight of 1: accumulators are the inputs themselves, times a factor with ties."""
    deep = kind == "CONV_2D"
    x = value("x", (1, 1, 256, 1) if deep else (256, 1), 1.0)
    w = value("w", (1, 1, 1, 1) if deep else (1, 1), factor, data=np.ones((1, 1, 1, 1) if deep else (1, 1), np.int8))
    wide = np.dtype(np.int32)
    bias = Value("b", wide, (1,), (0,), np.zeros(1, np.int32), q=QParams(factor, 0, wide, -(2**31), 2**31 - 1))
    options: dict[str, Any] = {"keep_num_dims": True}
    if deep:
        options = {"padding": 1, **dict.fromkeys(("stride_h", "stride_w", "dilation_h", "dilation_w"), 1)}
    return graph(kind, [x, w, bias], value("y", x.bound, 1.0), **options), EVERY.reshape(x.bound)


@pytest.mark.parametrize("factor", [0.5, 0.25, 0.125, 0.75, 0.3])
@pytest.mark.parametrize("kind", ["CONV_2D", "FULLY_CONNECTED"])
def test_ties_of_products(kind: str, factor: float) -> None:
    made, x = _product(kind, factor)
    assert differences(made, [x]) == 0


def test_convolutions_round_twice_and_matrix_products_once() -> None:
    results = {}
    for kind in ("CONV_2D", "FULLY_CONNECTED"):
        made, x = _product(kind, 0.25)
        results[kind] = run(write_tflite(made), [x])[0].ravel()[129]
    assert results == {"CONV_2D": 1, "FULLY_CONNECTED": 0}  # of a quarter


def test_multipliers_are_normal_and_carry() -> None:
    mantissa, exponent = quantize_multiplier([0.5, 1.0, 1 - 2.0**-40, 0.0, 2.0**-40, 3.0])
    assert mantissa.tolist() == [1 << 30, 1 << 30, 1 << 30, 0, 0, 3 << 29]
    assert exponent.tolist() == [0, 1, 1, 0, 0, 2]


def test_one_dtype_of_results() -> None:
    assert quantize_output(np.asarray([300, -300]), value("y", (2,), 1.0)).dtype == INT8
