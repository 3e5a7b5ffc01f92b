"""Convolutions and linear layers, real and of bytes, on every instruction set: bytes equal the reference's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewright.engine import make_plan
from edgewright.engine.host_arch import is_aarch64
from edgewright.ir.graph import Graph, Op, QParams, Value
from tests.engine.graphs import (
    I8,
    U8,
    biases,
    compare,
    constant,
    cpus,
    filters,
    graph,
    quantized,
    random,
    real,
    run,
)

INF = float("inf")


def value(name: str, shape: tuple[int, ...], quantize: bool, **options: Any) -> Value:
    return quantized(name, *shape, **options) if quantize else real(name, *shape)


def conv(
    shape: tuple[int, int, int, int],
    channels: int,
    kernel: tuple[int, int] = (1, 1),
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    quantize: bool = False,
    depthwise: bool = False,
    bias: bool = True,
    limits: tuple[float, float] | None = None,
    **options: Any,
) -> Graph:
    """One convolution."""
    x = value("x", shape, quantize, **options)
    size = [(n + a + b - d * (k - 1) - 1) // s + 1 for n, a, b, d, k, s in
            zip(shape[1:3], padding[::2], padding[1::2], dilation, kernel, stride, strict=True)]  # fmt: skip
    form = (1, *kernel, channels) if depthwise else (channels, *kernel, shape[3] // groups)
    weight = filters(*form, quantize=quantize, axis=3 if depthwise else 0)
    out = value("y", (shape[0], *size, channels), quantize, scale=0.3, zero=-7)
    args = {"input": x, "weight": weight, "bias": biases(channels, quantize) if bias else None, "stride": list(stride),
            "padding": list(padding), "dilation": list(dilation), "groups": groups,
            "output_padding": [0, 0]}  # fmt: skip
    if limits is not None:
        args["limits"] = limits
    return graph([x], [out], Op("core.depthwise_conv2d" if depthwise else "core.conv2d", args, [out]))


def check(made: Graph, cpu: str) -> None:
    bound = 1e-5 if is_aarch64() and by_winograd(made, cpu) else 2e-6  # vectors of four are filled by any channels
    compare(made, [random(made.inputs[0])], cpu, bound)


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("quantize", [False, True])
class TestConvolutions:
    @pytest.mark.sample(20)
    @pytest.mark.parametrize("inputs", [1, 3, 5, 16, 17, 24, 33, 64])
    @pytest.mark.parametrize("outputs", [1, 4, 5, 16, 24, 33, 96])
    def test_pointwise_of_any_channels(self, cpu: str, quantize: bool, inputs: int, outputs: int) -> None:
        check(conv((1, 5, 7, inputs), outputs, quantize=quantize), cpu)

    @pytest.mark.parametrize("size", [(1, 1, 1), (1, 1, 2), (2, 3, 3), (1, 13, 29), (3, 1, 5)])
    def test_pointwise_of_any_size(self, cpu: str, quantize: bool, size: tuple[int, int, int]) -> None:
        check(conv((*size, 19), 70, quantize=quantize), cpu)

    @pytest.mark.parametrize("limits", [None, (0.0, 6.0), (0.0, INF), (-1.0, 1.0), (-INF, 2.0)])
    def test_limits(self, cpu: str, quantize: bool, limits: tuple[float, float] | None) -> None:
        check(conv((1, 6, 6, 20), 40, (3, 3), padding=(1, 1, 1, 1), quantize=quantize, limits=limits), cpu)

    @pytest.mark.parametrize("kernel", [(3, 3), (1, 5), (7, 2), (5, 5)])
    @pytest.mark.parametrize("stride", [(1, 1), (2, 2), (3, 1)])
    @pytest.mark.parametrize("padding", [(0, 0, 0, 0), (1, 1, 1, 1), (0, 2, 1, 0)])
    def test_windows(self, cpu: str, quantize: bool, kernel: Any, stride: Any, padding: Any) -> None:
        check(conv((2, 9, 11, 6), 21, kernel, stride, padding, quantize=quantize), cpu)

    @pytest.mark.parametrize("channels", [3, 4, 1])
    def test_first_layers(self, cpu: str, quantize: bool, channels: int) -> None:
        check(conv((1, 17, 23, channels), 32, (3, 3), (2, 2), (1, 1, 1, 1), quantize=quantize), cpu)

    @pytest.mark.parametrize("dilation", [(2, 2), (1, 3), (4, 1)])
    def test_dilation(self, cpu: str, quantize: bool, dilation: Any) -> None:
        check(conv((1, 13, 13, 12), 8, (3, 3), padding=(2, 2, 2, 2), dilation=dilation, quantize=quantize), cpu)

    def test_groups(self, cpu: str, quantize: bool) -> None:
        check(conv((1, 6, 7, 24), 48, (3, 3), padding=(1, 1, 1, 1), groups=3, quantize=quantize), cpu)

    def test_without_bias(self, cpu: str, quantize: bool) -> None:
        check(conv((1, 4, 4, 8), 8, quantize=quantize, bias=False), cpu)

    @pytest.mark.parametrize("zero", [-128, 0, 127])
    def test_zero_points(self, cpu: str, quantize: bool, zero: int) -> None:
        check(conv((1, 6, 6, 9), 17, (3, 3), padding=(1, 1, 1, 1), quantize=quantize, zero=zero), cpu)


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("quantize", [False, True])
class TestDepthwise:
    @pytest.mark.sample(6)
    @pytest.mark.parametrize("channels", [1, 3, 5, 16, 17, 24, 33, 72, 144])
    @pytest.mark.parametrize("stride", [1, 2])
    def test_channels(self, cpu: str, quantize: bool, channels: int, stride: int) -> None:
        made = conv((1, 9, 14, channels), channels, (3, 3), (stride, stride), (1, 1, 1, 1), groups=channels,
                    quantize=quantize, depthwise=True)  # fmt: skip
        check(made, cpu)

    @pytest.mark.sample(7)
    @pytest.mark.parametrize("kernel", [(3, 3), (5, 5), (7, 7), (1, 4), (2, 6), (3, 9)])
    @pytest.mark.parametrize("stride", [(1, 1), (2, 2), (1, 3)])
    @pytest.mark.parametrize("width", [9, 10, 23])
    def test_windows(self, cpu: str, quantize: bool, kernel: Any, stride: Any, width: int) -> None:
        padding = (kernel[0] // 2, kernel[0] // 2, kernel[1] // 2, kernel[1] // 2)
        made = conv((2, 8, width, 20), 20, kernel, stride, padding, groups=20, quantize=quantize, depthwise=True)
        check(made, cpu)

    @pytest.mark.parametrize("width", [41, 43])
    def test_long_rows_end_in_an_overlapping_tile(self, cpu: str, quantize: bool, width: int) -> None:
        made = conv((1, 3, width, 24), 24, (3, 3), (1, 1), (1, 1, 1, 1), groups=24, quantize=quantize, depthwise=True)
        check(made, cpu)

    @pytest.mark.sample(6)
    @pytest.mark.parametrize("dilation", [(2, 2), (1, 3)])
    @pytest.mark.parametrize("kernel", [3, 5])
    def test_dilation(self, cpu: str, quantize: bool, dilation: Any, kernel: int) -> None:
        made = conv((1, 17, 19, 33), 33, (kernel, kernel), (1, 1), (2, 2, 3, 3), dilation, 33, quantize, True)
        check(made, cpu)


def transposed(shape: Any, channels: int, kernel: Any, stride: Any, padding: Any, extra: Any, groups: int,
               quantize: bool) -> Graph:  # fmt: skip
    x = value("x", shape, quantize)
    size = [(n - 1) * s + k + e - a - b for n, s, k, e, a, b in
            zip(shape[1:3], stride, kernel, extra, padding[::2], padding[1::2], strict=True)]  # fmt: skip
    weight = filters(channels, *kernel, shape[3] // groups, quantize=quantize)
    out = value("y", (shape[0], *size, channels), quantize, scale=0.3, zero=-7)
    args = {"input": x, "weight": weight, "bias": biases(channels, quantize), "stride": list(stride), "groups": groups,
            "padding": list(padding), "dilation": [1, 1], "output_padding": list(extra),
            "limits": (-2.0, 9.0)}  # fmt: skip
    return graph([x], [out], Op("core.conv_transpose2d", args, [out]))


@pytest.mark.sample(4)
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("quantize", [False, True])
@pytest.mark.parametrize("kernel", [(2, 2), (3, 3), (4, 1), (1, 1)])
@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (3, 2)])
def test_transposed(cpu: str, quantize: bool, kernel: Any, stride: Any) -> None:
    check(transposed((2, 5, 6, 10), 20, kernel, stride, (0, 0, 0, 0), (0, 0), 1, quantize), cpu)
    if min(kernel) > 1:
        extra = (1, 0) if stride[0] > 1 else (0, 0)
        check(transposed((1, 5, 6, 24), 32, kernel, stride, (1, 1, 0, 0), extra, 2, quantize), cpu)


@pytest.mark.sample(4)
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("size", [(14, 14), (7, 9), (4, 5), (56, 8)])
@pytest.mark.parametrize(("inputs", "outputs"), [(16, 16), (48, 80), (128, 32)])
@pytest.mark.parametrize("padding", [(1, 1, 1, 1), (0, 0, 0, 0), (1, 0, 0, 2)])
def test_winograd(cpu: str, size: Any, inputs: int, outputs: int, padding: Any) -> None:
    """Within 1e-5 of the reference's largest result, and the plan uses Winograd."""
    if min(size) + sum(padding[:2]) < 6 or size[1] + sum(padding[2:]) < 6:
        size = (size[0] + 2, size[1] + 2)
    made = conv((2, *size, inputs), outputs, (3, 3), padding=padding, limits=(0.0, INF))
    assert by_winograd(made, cpu)
    compare(made, [random(made.inputs[0])], cpu, 1e-5)


@pytest.mark.parametrize("cpu", cpus())
def test_winograd_with_a_sum(cpu: str) -> None:
    made = conv((1, 9, 9, 32), 32, (3, 3), padding=(1, 1, 1, 1))
    (x,), middle, y = made.inputs, made.outputs[0], real("z", 1, 9, 9, 32)
    made.ops.append(Op("core.add", {"self": x, "other": middle, "limits": (0.0, INF)}, [y]))
    made.outputs[0] = y
    assert winograd_labels(made, cpu) == ["conv2d+add"]
    compare(made, [random(x)], cpu, 1e-5)


@pytest.mark.sample(3)
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("size", [(14, 14), (7, 8), (16, 11)])
@pytest.mark.parametrize(("inputs", "outputs"), [(64, 64), (96, 192), (128, 128)])
@pytest.mark.parametrize("padding", [(1, 1, 1, 1), (0, 2, 2, 0)])
def test_winograd_of_int8(cpu: str, size: Any, inputs: int, outputs: int, padding: Any) -> None:
    """Bit for bit the plain sums, whatever the border and the zero points."""
    made = conv((2, *size, inputs), outputs, (3, 3), padding=padding, quantize=True, limits=(-2.0, 3.0))
    assert by_winograd(made, cpu)
    check(made, cpu)


@pytest.mark.parametrize("cpu", cpus())
def test_winograd_of_int8_with_a_sum(cpu: str) -> None:
    made = conv((1, 12, 12, 64), 64, (3, 3), padding=(1, 1, 1, 1), quantize=True)
    (x,), middle, y = made.inputs, made.outputs[0], value("z", (1, 12, 12, 64), True, scale=0.2, zero=11)
    made.ops.append(Op("core.add", {"self": middle, "other": x, "limits": (-5.0, INF)}, [y]))
    made.outputs[0] = y
    assert winograd_labels(made, cpu) == ["conv2d+add"]
    check(made, cpu)


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize(("taps", "fits"), [(1036, True), (1037, False)])
def test_winograd_of_int8_up_to_its_limit(cpu: str, taps: int, fits: bool) -> None:
    """Sums reach 2**25 and no farther: there, weights and data are as large as they can be."""
    made = conv((1, 8, 8, 128), 64, (3, 3), padding=(1, 1, 1, 1), quantize=True)
    data = np.zeros((64, 3, 3, 128), np.int8)
    data.reshape(64, -1)[::2, :taps] = 127
    data.reshape(64, -1)[1::2, :taps] = -127
    made.ops[0].args["weight"] = constant(data, QParams(1e-5, 0, I8, -128, 127))  # so that results are within bytes
    assert by_winograd(made, cpu) == fits
    x = np.full(made.inputs[0].bound, 127, np.int8)
    compare(made, [x], cpu)
    compare(made, [np.where(np.arange(x.size).reshape(x.shape) % 3, x, -128).astype(np.int8)], cpu)


def by_winograd(made: Graph, cpu: str) -> bool:
    return bool(winograd_labels(made, cpu))


def winograd_labels(made: Graph, cpu: str) -> list[str]:
    return [s.label for s in make_plan(made, threads=1, cpu=cpu).steps if s.kernel.startswith("winograd")]


@pytest.mark.sample(4)
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("quantize", [False, True])
@pytest.mark.parametrize("channels", [16, 24, 40, 64, 144])
@pytest.mark.parametrize("kind", ["add", "sub"])
@pytest.mark.parametrize("first", [False, True])
def test_a_sum_follows(cpu: str, quantize: bool, channels: int, kind: str, first: bool) -> None:
    """The sum is done at the product's end, whichever operand the product is."""
    made = conv((1, 7, 9, channels), channels, quantize=quantize, limits=(-3.0, 4.0))
    (x,), middle = made.inputs, made.outputs[0]
    y = value("z", middle.bound, quantize, scale=0.2, zero=11)
    a, b = (x, middle) if first else (middle, x)
    made.ops.append(Op(f"core.{kind}", {"self": a, "other": b, "limits": (-5.0, INF)}, [y]))
    made.outputs[0] = y
    assert len([s for s in make_plan(made, threads=1, cpu=cpu).steps if "+" in s.label]) == 1
    check(made, cpu)


@pytest.mark.sample(6)
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("channels", [16, 24, 80, 144])
def test_a_table_follows(cpu: str, depthwise: bool, channels: int) -> None:
    made = conv((1, 7, 9, channels), channels, (3, 3), padding=(1, 1, 1, 1), groups=channels if depthwise else 1,
                quantize=True, depthwise=depthwise)  # fmt: skip
    middle = made.outputs[0]
    a, b, y = real("a", *middle.bound), real("b", *middle.bound), quantized("z", *middle.bound, scale=0.1)
    made.ops += [
        Op("core.convert", {"self": middle}, [a]),
        Op("core.hardswish", {"self": a}, [b]),
        Op("core.convert", {"self": b}, [y]),
    ]
    made.outputs[0] = y
    kind, table = "depthwise_conv2d" if depthwise else "conv2d", "convert+hardswish+convert"
    labels = {s.label for s in make_plan(made, threads=1, cpu=cpu).steps} - {"clone"}
    assert labels in ({kind, table}, {f"{kind}+{table}"})  # AVX-512 looks a table up in registers
    check(made, cpu)


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("quantize", [False, True])
@pytest.mark.parametrize("rows", [(), (1,), (2,), (3, 4), (50,)])
@pytest.mark.parametrize(("inputs", "outputs"), [(7, 10), (64, 1000), (1280, 40)])
@pytest.mark.parametrize("transposed", [False, True])
def test_linear(cpu: str, quantize: bool, rows: tuple[int, ...], inputs: int, outputs: int, transposed: bool) -> None:
    x, y = value("x", (*rows, inputs), quantize), value("y", (*rows, outputs), quantize, scale=0.5)
    shape = (inputs, outputs) if transposed else (outputs, inputs)
    weight = filters(*shape, quantize=quantize, axis=1 if transposed else 0)
    args = {"input": x, "weight": weight, "bias": biases(outputs, quantize), "transposed": transposed}
    made = graph([x], [y], Op("core.linear", args, [y]))
    check(made, cpu)


@pytest.mark.parametrize("cpu", cpus())
def test_uint8(cpu: str) -> None:
    made = conv((1, 6, 6, 9), 17, (3, 3), padding=(1, 1, 1, 1), quantize=True, zero=131, dtype=U8)
    out = made.outputs[0]
    changed = quantized("y", *out.bound, scale=0.3, zero=120, dtype=U8)
    made.ops[0].outputs[0] = changed
    made.outputs[0] = changed
    check(made, cpu)


@pytest.mark.parametrize("cpu", cpus())
def test_scales_that_leave_32_bits_saturate(cpu: str) -> None:
    made = conv((1, 3, 3, 64), 16, quantize=True, scale=1e6)
    check(made, cpu)
    assert set(np.unique(run(made, [random(made.inputs[0])], cpu)[0])) == {-128, 127}


@pytest.mark.parametrize("cpu", cpus())
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_convolution(cpu: str, data: Any) -> None:
    draw = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    kernel, stride, dilation = ((draw(1, 4), draw(1, 4)), (draw(1, 3), draw(1, 3)), (draw(1, 2), draw(1, 2)))
    padding = tuple(draw(0, 2) for _ in range(4))
    size = tuple(max(draw(1, 12), d * (k - 1) + 1) for k, d in zip(kernel, dilation, strict=True))
    quantize, depthwise = data.draw(st.booleans()), data.draw(st.booleans())
    inputs = draw(1, 40)
    made = conv((draw(1, 2), *size, inputs), inputs if depthwise else draw(1, 80), kernel, stride, padding, dilation,
                inputs if depthwise else 1, quantize, depthwise, zero=draw(-128, 127))  # fmt: skip
    check(made, cpu)


def chain(stride: int, kernel: int, high: int, residual: bool, images: int = 1) -> Graph:
    """A pointwise convolution to many channels, a depthwise one, and a pointwise one to few."""
    first = conv((images, high, 60, 24), 96, limits=(0.0, 6.0))
    (x,), wide = first.inputs, first.outputs[0]
    half = kernel // 2
    second = conv(wide.bound, 96, (kernel, kernel), (stride, stride), (half,) * 4, groups=96, depthwise=True,
                  limits=(0.0, 6.0))  # fmt: skip
    second.ops[0].args["input"] = wide
    third = conv(second.outputs[0].bound, 24)
    third.ops[0].args["input"] = second.outputs[0]
    ops, y = [first.ops[0], second.ops[0], third.ops[0]], third.outputs[0]
    if residual:
        total = real("z", *y.bound)
        ops.append(Op("core.add", {"self": x, "other": y}, [total]))
        y = total
    return graph([x], [y], *ops)


@pytest.mark.sample(6)
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize(("stride", "kernel", "residual"), [(1, 3, True), (1, 5, False), (2, 3, False), (2, 5, False)])
@pytest.mark.parametrize("high", [47, 64])
def test_chains_are_done_row_by_row(cpu: str, stride: int, kernel: int, residual: bool, high: int) -> None:
    made = chain(stride, kernel, high, residual, images=2 if high == 64 else 1)
    kinds = [s.kernel.split("_")[0] for s in make_plan(made, threads=1, cpu=cpu).steps]
    assert "chain" in kinds
    assert "depthwise" not in kinds
    check(made, cpu)


def test_threads_share_a_chain() -> None:
    made = chain(1, 3, 64, True)
    (step,) = [s for s in make_plan(made, threads=2).steps if s.kernel.startswith("chain")]
    assert step.units >= 2 * step.grain, "a chunk for each thread"
    (want,), (got,) = (run(made, [random(made.inputs[0])], cpus()[-1], threads) for threads in (1, 2))
    assert (want == got).all()


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("kernel", [3, 5, 7])
@pytest.mark.parametrize("channels", [2, 3, 4])
@pytest.mark.parametrize("width", [21, 32])
def test_images_given_plane_by_plane(cpu: str, kernel: int, channels: int, width: int) -> None:
    """A real image becomes bytes and channels-last on its way into the first convolution."""
    half = kernel // 2
    made = conv((2, 12, width, channels), 16, (kernel, kernel), (2, 2), (half,) * 4, quantize=True)
    x = real("planes", 2, channels, 12, width)
    stored = quantized("stored", 2, channels, 12, width)
    made.ops[:0] = [
        Op("core.convert", {"self": x}, [stored]),
        Op("core.permute", {"self": stored, "dims": [0, 2, 3, 1]}, made.inputs),
    ]
    made.inputs = [x]
    assert any(s.kernel.startswith("to_channels_last") for s in make_plan(made, threads=1, cpu=cpu).steps)
    check(made, cpu)


@pytest.mark.sample(4)
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("quantize", [False, True])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_linear_layers_that_are_joined(cpu: str, quantize: bool, dim: int) -> None:
    """Rows that would not lie at equal distances in the whole are made elsewhere."""
    shape = [3, 5, 64]
    x, other = value("x", (3, 5, 24), quantize), value("o", tuple(shape), quantize, scale=0.3, zero=-7)
    made = value("m", tuple(shape), quantize, scale=0.3, zero=-7)
    shape[dim] *= 2
    out = value("y", tuple(shape), quantize, scale=0.3, zero=-7)
    weight, bias = filters(64, 24, quantize=quantize), biases(64, quantize)
    ops = [
        Op("core.linear", {"input": x, "weight": weight, "bias": bias}, [made]),
        Op("core.cat", {"tensors": [made, other], "dim": dim}, [out]),
    ]
    compare(graph([x, other], [out], *ops), [random(x), random(other, 1)], cpu)


@pytest.mark.parametrize("cpu", cpus())
def test_a_linear_layer_of_a_constant(cpu: str) -> None:
    """Files may not have one; a graph from elsewhere is computed all the same."""
    rows = constant(random(real("rows", 1, 4, 3, 8)))
    weight = constant(random(real("weight", 5, 8), seed=1))
    product, x, out = (real(name, 1, 4, 3, 5) for name in ("product", "x", "out"))
    linear = Op("core.linear", {"input": rows, "weight": weight, "bias": None}, [product])
    made = graph([x], [out], linear, Op("core.add", {"self": product, "other": x}, [out]))
    compare(made, [random(x)], cpu)


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize(
    ("groups", "inputs", "outputs", "merged"),
    [
        (13, 8, 8, 1),
        (6, 8, 8, 2),
        (32, 4, 4, 4),
        (8, 3, 12, 1),
        (5, 24, 24, 1),
        (7, 3, 3, 1),
        (7, 5, 5, 1),
        (9, 16, 4, 3),
    ],
)
def test_narrow_groups_of_bytes_are_merged_as_far_as_vectors_need(
    groups: int, inputs: int, outputs: int, merged: int, cpu: str
) -> None:
    made = conv(
        (1, 5, 6, groups * inputs), groups * outputs, (3, 3), padding=(1, 1, 1, 1), groups=groups, quantize=True
    )
    check(made, cpu)
    steps = [s for s in make_plan(made, threads=1, cpu=cpu).steps if s.label == "conv2d"]
    assert len(steps) == groups // merged and all(s.python is None for s in steps)
