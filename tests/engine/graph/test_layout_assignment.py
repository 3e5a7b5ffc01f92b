"""Operators among neighbours that want their operands and results in other layouts, against the reference.

``test_verify_plan.py`` has each operator in some contexts; here are all of them, and cases that were wrong once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.backends.xnnpack.numerics import XNNPACK
from edgewright.engine.graph.layout import Border
from edgewright.ir.core.execute import Executor
from edgewright.ir.graph import Graph, Op, QParams, Value
from tests.engine.graphs import (
    I8,
    biases,
    check_alike,
    compare,
    constant,
    cpus,
    filters,
    graph,
    layouts,
    quantized,
    random,
    real,
    run,
)  # fmt: skip
from tests.engine.layout_contexts import neighbours, window
from tests.engine.random_operators import SUBJECTS
from tests.engine.sanitize import sanitize

BOUND = 3e-5  # of the largest: Winograd, and sums of another order


@pytest.mark.slow
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", SUBJECTS)
def test_operator_in_every_context(name: str, seed: int, cpu: str) -> None:
    made, inputs = SUBJECTS[name](np.random.default_rng(seed))
    for _, (wrapped, given) in neighbours(made, list(inputs)):
        wanted = Executor(wrapped, XNNPACK).run(given)
        check_alike(run(wrapped, given, cpu), wanted, BOUND)
        check_alike(sanitize(wrapped, given, cpu), wanted, BOUND)


def _convolution(kind: str, x: Value, y: Value, weight: Value, pad: int, groups: int, bias: Value | None = None) -> Op:
    args = {
        "input": x,
        "weight": weight,
        "bias": bias,
        "stride": [1, 1],
        "padding": [pad] * 4,
        "dilation": [1, 1],
        "groups": groups,
    }
    return Op(f"core.{kind}", args, [y])


@pytest.mark.sample(3)
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("channels", [4, 16, 48, 480])
def test_int8_depthwise_convolution_stays_in_its_part_of_a_concatenation(channels: int, cpu: str) -> None:
    """cat([p, depthwise(p)]): the second part's kernel once wrote as many channels as the whole has."""
    x, p, d = (quantized(n, 1, 4, 4, channels) for n in "xpd")
    both, y = quantized("both", 1, 4, 4, 2 * channels), quantized("y", 1, 4, 4, 8)
    ops = (
        _convolution("conv2d", x, p, filters(channels, 1, 1, channels, quantize=True), 0, 1, biases(channels, True)),
        _convolution("depthwise_conv2d", p, d, filters(1, 3, 3, channels, quantize=True, axis=3), 1, channels),
        Op("core.cat", {"tensors": [p, d], "dim": 3}, [both]),
        _convolution("conv2d", both, y, filters(8, 1, 1, 2 * channels, quantize=True), 0, 1),
    )
    compare(graph([x], [y], *ops), [random(x)], cpu)


def has_border(made: Graph, value: Value, cpu: str) -> bool:
    return layouts(made, cpu)[value.name].border != Border()


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("batch", [1, 3])
def test_dynamically_quantized_pointwise_convolution_writes_around_a_border(batch: int, cpu: str) -> None:
    x, y = real("x", batch, 8, 7, 12), real("y", batch, 8, 7, 12)
    q = QParams(1.0, 0, I8, -128, 127, axis=-3, dynamic="per_token")
    rows = Value("rows", I8, x.bound, (0, 1, 2, 3), q=q)
    op, out = window(y, "windowed")
    pointwise = _convolution("conv2d", rows, y, filters(12, 1, 1, 12, quantize=True), 0, 1, biases(12, False))
    made = graph([x], [out], Op("core.convert", {"self": x}, [rows]), pointwise, op)
    assert has_border(made, y, cpu)
    compare(made, [random(x)], cpu)


@pytest.mark.parametrize("cpu", cpus())
def test_rows_inside_a_border_are_dynamically_quantized(cpu: str) -> None:
    x, inside, y = real("x", 2, 5, 6, 20), real("inside", 2, 5, 6, 20), real("y", 2, 5, 6, 9)
    q = QParams(1.0, 0, I8, -128, 127, axis=-1, dynamic="per_token")
    rows = Value("rows", I8, x.bound, (0, 1, 2, 3), q=q)
    linear = Op("core.linear", {"input": rows, "weight": filters(9, 20, quantize=True), "bias": biases(9, False)}, [y])
    op, out = window(inside, "windowed")
    ops = (Op("core.hardswish", {"self": x}, [inside]), Op("core.convert", {"self": inside}, [rows]), linear, op)
    made = graph([x], [y, out], *ops)
    assert has_border(made, inside, cpu)
    compare(made, [random(x)], cpu)


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("integer", [False, True])
def test_linear_layers_read_and_write_images_with_borders(integer: bool, cpu: str) -> None:
    """As in ConvNeXt: a linear layer over channels between two depthwise convolutions."""

    def value(name: str, channels: int) -> Value:
        shape = (2, 5, 6, channels)
        return quantized(name, *shape) if integer else real(name, *shape)

    x, y, z = value("x", 16), value("y", 24), value("z", 24)
    first, a = window(x, "a")
    second, b = window(a, "b")
    weight = filters(24, 16, quantize=integer)
    linear = Op("core.linear", {"input": a, "weight": weight, "bias": biases(24, integer)}, [y])
    third, z = window(y, "z")
    given: list[Any] = [random(x)]
    made = Graph("test", [x], [b, z], [first, second, linear, third])
    assert has_border(made, a, cpu) and has_border(made, y, cpu)
    compare(made, given, cpu)


@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (2, 0, 0, 1), (0, 2, 1, 0), (2, 1, 2, 1)])
@pytest.mark.parametrize("integer", [False, True])
def test_transposed_convolutions_are_cropped_on_each_side(integer: bool, pads: tuple[int, ...]) -> None:
    x = quantized("x", 1, 4, 5, 3) if integer else real("x", 1, 4, 5, 3)
    shape = (1, 4 * 2 + 1 - pads[0] - pads[1], 5 * 2 + 1 - pads[2] - pads[3], 4)
    y = quantized("y", *shape) if integer else real("y", *shape)
    args = {"input": x, "weight": filters(4, 3, 3, 3, quantize=integer), "bias": biases(4, integer)}
    args |= {"stride": [2, 2], "padding": list(pads), "dilation": [1, 1], "groups": 1, "output_padding": [0, 0]}
    compare(graph([x], [y], Op("core.conv_transpose2d", args, [y])), [random(x)], cpus()[-1])


@pytest.mark.sample(4)
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("shape", [(2, 1, 1, 1), (2, 1, 3, 4), (2, 3, 1, 4), (1, 3, 1, 4), (3, 2, 2, 16)])
@pytest.mark.parametrize("integer", [False, True])
def test_pointwise_convolution_of_an_image_that_a_window_reads_too(integer: bool, shape: Any, cpu: str) -> None:
    x = quantized("x", *shape) if integer else real("x", *shape)
    y = quantized("y", *shape[:3], 2) if integer else real("y", *shape[:3], 2)
    op, out = window(x, "windowed")
    pointwise = _convolution("conv2d", x, y, filters(2, 1, 1, shape[-1], quantize=integer), 0, 1)
    compare(graph([x], [y, out], pointwise, op), [random(x)], cpu)


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("kernel", [(3, 3), (1, 3), (2, 2)])
def test_convolution_of_padded_pixels(kernel: tuple[int, int], cpu: str) -> None:
    """Pixels of a multiple of 4096 bytes have 64 more between them, which are no part of the window."""
    x, inside = real("x", 2, 4, 4, 1024), real("inside", 2, 4, 4, 1024)
    y = real("y", 2, *((4 - k) // 2 + 1 for k in kernel), 3)
    convolution = _convolution("conv2d", inside, y, filters(3, *kernel, 1024, quantize=False), 0, 1)
    convolution.args["stride"] = [2, 2]
    made = graph([x], [y], Op("core.hardswish", {"self": x}, [inside]), convolution)
    assert layouts(made, cpu)["inside"].strides[-2:] == (4096 + 64, 4)
    compare(made, [random(x)], cpu, 3e-5)


@pytest.mark.parametrize("cpu", cpus())
def test_value_between_two_moves_has_one_layout(cpu: str) -> None:
    """Rows of 4096 bytes are padded in images. A producer that wrote such an image's layout, whose own result was then
    stored with the strides of the next move, left elements where no reader looked."""
    x, y, wide = real("x", 1, 4, 1024), real("y", 1, 4, 1024), real("wide", 1, 2, 2, 1024)
    rows, mean = real("rows", 1, 4, 1024), real("mean", 1, 1024)
    ops = (
        Op("core.mul", {"self": x, "other": constant(random(real("c", 1024)))}, [y]),
        Op("core.view", {"self": y, "size": [1, 2, 2, 1024]}, [wide]),
        Op("core.view", {"self": wide, "size": [1, 4, 1024]}, [rows]),
        Op("core.mean", {"self": rows, "dim": [1], "keepdim": False}, [mean]),
    )
    compare(graph([x], [mean], *ops), [random(x)], cpu)
