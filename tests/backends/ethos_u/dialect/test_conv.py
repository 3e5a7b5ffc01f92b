"""TOSA's convolutions that are not followed by a RESCALE of their own, or have other windows; and smaller corners."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.ir.graph import Graph, Op, Value
from tests.backends.ethos_u.dialect.test_to_core import computing_steps, factors, rescale, weights
from tests.backends.nxp.dialect.test_to_core import window
from tests.engine.vendors import anything, graph, numbers, plain, same, tosa


def sums(dtype: str, deep: bool, pad: list[int], stride: int, dilation: int, zero: int) -> tuple[Op, Any]:
    x = plain("x", (2, 8, 9, 21 if deep else 6), dtype)
    w = weights(3, 2, 21, 1) if deep else weights(19, 3, 2, 6)
    size = [window(n + pad[2 * i] + pad[2 * i + 1], k, stride, dilation) for i, (n, k) in
            enumerate(zip(x.bound[1:3], (3, 2), strict=True))]  # fmt: skip
    channels = 21 if deep else 19
    acc = plain("acc", (2, *size, channels), "int32" if dtype == "int8" else "int64")
    bias = numbers(np.random.default_rng(2).integers(-4000, 4000, channels), acc.dtype.name)  # type: ignore[union-attr]
    op = tosa("depthwise_conv2d" if deep else "conv2d", acc, input=x, weight=w, bias=bias, input_zp=zero, weight_zp=0,
              pad=pad, stride=[stride] * 2, dilation=[dilation] * 2)  # fmt: skip
    return op, acc


@pytest.mark.sample(4)
@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize(("pad", "stride", "dilation"), [([0] * 4, 1, 1), ([1, 0, 2, 1], 2, 1), ([2] * 4, 1, 2)])
def test_sums_that_several_read(deep: bool, dtype: str, pad: list[int], stride: int, dilation: int) -> None:
    op, acc = sums(dtype, deep, pad, stride, dilation, 5 if dtype == "int8" else 0)
    ops = [rescale(acc, plain(f"y{n}", acc.bound, dtype), 1 << 14, 22 + n) for n in range(2)]
    same(graph([o.outputs[0] for o in ops], op, *ops), "tosa")


def test_an_image_that_two_convolutions_pad_with_different_numbers() -> None:
    x, outs, ops = plain("x", (1, 6, 6, 4), "int8"), [], []
    for zero in (3, 4):
        acc, out = plain("acc", (1, 6, 6, 8), "int32"), plain(f"out{zero}", (1, 6, 6, 8), "int8")
        ops += [
            tosa("conv2d", acc, input=x, weight=weights(8, 3, 3, 4), bias=numbers([0]), input_zp=zero, weight_zp=0,
                 pad=[1] * 4, stride=[1, 1], dilation=[1, 1]),
            rescale(acc, out, *factors(8, 0.01)),
        ]  # fmt: skip
        outs.append(out)
    same(graph(outs, *ops), "tosa")


def padded(x: Value, zero: int) -> tuple[Op, Op]:
    acc, out = plain("acc", (*x.bound[:3], 8), "int32"), plain("out", (*x.bound[:3], 8), "int8")
    conv = tosa("conv2d", acc, input=x, weight=weights(8, 3, 3, x.bound[3]), bias=numbers([0]), input_zp=zero,
                weight_zp=0, pad=[1] * 4, stride=[1, 1], dilation=[1, 1])  # fmt: skip
    return conv, rescale(acc, out, *factors(8, 0.01))


@pytest.mark.parametrize("other", [None, 3, 4], ids=["not padded", "the same", "another number"])
def test_moved_images_of_one_that_a_convolution_pads(other: int | None) -> None:
    """Whatever moves the image's integers, their zero point stays that of the padding."""
    x = plain("x", (1, 6, 6, 8), "int8")
    half, turned, twice, flat = (plain(name, shape, "int8") for name, shape in
        (("half", (1, 6, 6, 4)), ("turned", (1, 4, 6, 6)), ("twice", (1, 6, 6, 16)), ("flat", (36, 8))))  # fmt: skip
    moves = [
        tosa("slice", half, input=x, start=[0] * 4, size=list(half.bound)),
        tosa("transpose", turned, input=half, perms=[0, 3, 1, 2]),
        tosa("concat", twice, inputs=[x, x], axis=3),
        tosa("reshape", flat, input=x, shape=list(flat.bound)),
    ]
    convolutions = [*padded(x, 3), *(() if other is None else padded(half, other))]
    outs = [turned, twice, flat, *(op.outputs[0] for op in convolutions[1::2])]
    same(graph(outs, *moves, *convolutions), "tosa")


@pytest.mark.parametrize(("name", "shape", "args"), [
    ("slice", (1, 3, 6, 4), {"start": [0, 1, 0, 0], "size": [1, 3, 6, 4]}),
    ("transpose", (1, 4, 6, 6), {"perms": [0, 3, 1, 2]}),
    ("reshape", (1, 36, 4), {"shape": [1, 36, 4]}),
    ("tile", (1, 12, 6, 4), {"multiples": [1, 2, 1, 1]}),
    ("reverse", (1, 6, 6, 4), {"axis": 1}),
    ("max_pool2d", (1, 5, 5, 4), {"kernel": [2, 2], "stride": [1, 1], "pad": [0] * 4}),
    ("clamp", (1, 6, 6, 4), {"min_val": -3, "max_val": 9}),
])  # fmt: skip
def test_an_image_that_a_convolution_pads_and_another_operator_moves(
    name: str, shape: tuple[int, ...], args: dict[str, Any]
) -> None:
    """What moves elements keeps the zero point of the convolution that reads them too."""
    x, moved = plain("x", (1, 6, 6, 4), "int8"), plain("moved", shape, "int8")
    acc, out = plain("acc", (1, 6, 6, 8), "int32"), plain("out", (1, 6, 6, 8), "int8")
    conv = tosa("conv2d", acc, input=x, weight=weights(8, 3, 3, 4), bias=numbers([0]), input_zp=3, weight_zp=0,
                pad=[1] * 4, stride=[1, 1], dilation=[1, 1])  # fmt: skip
    same(graph([out, moved], conv, rescale(acc, out, *factors(8, 0.01)), tosa(name, moved, input=x, **args)), "tosa")


def test_images_with_different_zero_points_are_concatenated() -> None:
    """Convolutions read both images, and their concatenation, with different zero points."""
    images, ops, outs = [plain(f"x{n}", (1, 6, 6, 4), "int8") for n in range(2)], [], []
    both = plain("both", (1, 6, 6, 8), "int8")
    ops.append(tosa("concat", both, inputs=images, axis=3))
    for zero, x in ((3, images[0]), (-5, images[1]), (7, both)):
        acc, out = plain("acc", (1, 6, 6, 8), "int32"), plain(f"out{zero}", (1, 6, 6, 8), "int8")
        ops += [
            tosa("conv2d", acc, input=x, weight=weights(8, 3, 3, x.bound[-1]), bias=numbers([0]), input_zp=zero,
                 weight_zp=0, pad=[1] * 4, stride=[1, 1], dilation=[1, 1]),
            rescale(acc, out, *factors(8, 0.01)),
        ]  # fmt: skip
        outs.append(out)
    same(graph([*outs, both], *ops), "tosa")


def test_sums_that_32_bits_do_not_hold_are_left_to_the_reference() -> None:
    x, acc = plain("x", (1, 3, 3, 40), "int16"), plain("acc", (1, 3, 3, 4), "int64")
    w = numbers(np.full((4, 1, 1, 40), 32767), "int16")
    op = tosa("conv2d", acc, input=x, weight=w, bias=numbers([0], "int64"), input_zp=0, weight_zp=0, pad=[0] * 4,
              stride=[1, 1], dilation=[1, 1])  # fmt: skip
    made = [rescale(acc, plain(f"y{n}", acc.bound, "int16"), 1 << 14, 30 + n) for n in range(2)]
    same(graph([o.outputs[0] for o in made], op, *made), "tosa", native=False)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_several_filters_for_each_channel(dtype: str) -> None:
    x, w = plain("x", (2, 7, 6, 5), dtype), weights(3, 3, 5, 4)
    acc = plain("acc", (2, 7, 6, 20), "int32" if dtype == "int8" else "int64")
    y = plain("y", acc.bound, dtype)
    op = tosa("depthwise_conv2d", acc, input=x, weight=w, bias=numbers([3], "int32" if dtype == "int8" else "int64"),
              input_zp=-7 if dtype == "int8" else 0, weight_zp=0, pad=[1] * 4, stride=[1, 1],
              dilation=[1, 1])  # fmt: skip
    by = factors(20, 0.01) if dtype == "int8" else (np.full(20, 1 << 14), np.arange(20, 40))
    same(graph([y], op, rescale(acc, y, *by)), "tosa")


def test_many_taps_for_each_channel() -> None:
    x, w = plain("x", (1, 12, 13, 20), "int8"), weights(9, 9, 20, 1)
    acc, y = plain("acc", (1, 4, 5, 20), "int32"), plain("y", (1, 4, 5, 20), "int8")
    op = tosa("depthwise_conv2d", acc, input=x, weight=w, bias=numbers([3]), input_zp=4, weight_zp=0, pad=[0] * 4,
              stride=[1, 1], dilation=[1, 1])  # fmt: skip
    same(graph([y], op, rescale(acc, y, *factors(20, 0.01))), "tosa")


def volume(dtype: str, pad: list[int], stride: list[int], dilation: list[int], alone: bool) -> Graph:
    x, w = plain("x", (2, 6, 7, 5, 3), dtype), weights(8, 2, 3, 2, 3)
    size = [window(n + pad[2 * i] + pad[2 * i + 1], k, stride[i], dilation[i]) for i, (n, k) in
            enumerate(zip(x.bound[1:4], (2, 3, 2), strict=True))]  # fmt: skip
    wide = "int32" if dtype == "int8" else "int64"
    acc = plain("acc", (2, *size, 8), wide)
    op = tosa("conv3d", acc, input=x, weight=w, bias=numbers(np.arange(8), wide), input_zp=9 if dtype == "int8" else 0,
              weight_zp=0, pad=pad, stride=stride, dilation=dilation)  # fmt: skip
    ops = [rescale(acc, plain(f"y{n}", acc.bound, dtype), 1 << 14, 21 + n) for n in range(1 if alone else 2)]
    return graph([o.outputs[0] for o in ops], op, *ops)


@pytest.mark.sample(4)
@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("sizes", [([0] * 6, [1] * 3, [1] * 3), ([1, 1, 0, 0, 1, 0], [2, 2, 1], [1] * 3),
                                   ([2, 1, 1, 1, 1, 1], [3, 1, 2], [2, 1, 2])])  # fmt: skip
def test_volumes(dtype: str, alone: bool, sizes: Any) -> None:
    same(volume(dtype, *sizes, alone), "tosa")


@pytest.mark.parametrize("dtype", ["int16", "int32"])
def test_largest_of_padded_windows(dtype: str) -> None:
    x, y = plain("x", (2, 7, 8, 21), dtype), plain("y", (2, 8, 5, 21), dtype)
    given = np.minimum(anything(x), -5)  # less than what padding would be if it were 0
    op = tosa("max_pool2d", y, input=x, kernel=[2, 3], stride=[1, 2], pad=[1, 1, 2, 1])
    same(graph([y], op), "tosa", [given])


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32"])
def test_shifts_of_fewer_bits(dtype: str) -> None:
    a, b = plain("a", (9, 21), dtype), plain("b", (9, 21), dtype)
    ops = [tosa(kind, plain(kind, a.bound, dtype), a=a, b=b) for kind in ("logical_left_shift", "logical_right_shift")]
    bits = np.random.default_rng(1).integers(-2, 40, b.bound).astype(dtype)
    same(graph([op.outputs[0] for op in ops], *ops), "tosa", [anything(a), bits])


def test_quotients() -> None:
    a, b, y = (plain(n, (9, 21), "int32") for n in "aby")
    given = [anything(a), anything(b, 1) >> 20]
    given[0][0, :4], given[1][0, :4] = [-(2**31), 7, -7, 5], [-1, 0, 0, -2]
    given[0][0, 0] = -(2**31) + 1
    same(graph([y], tosa("intdiv", y, a=a, b=b)), "tosa", given)


def test_constants_of_constants_are_folded() -> None:
    x, y = plain("x", (3, 5), "int32"), plain("y", (3, 5), "int32")
    least, most = plain("l", (1, 1), "int32"), plain("m", (1, 1), "int32")
    ops = [tosa("maximum", least, a=numbers([[3]]), b=numbers([[9]])), tosa("minimum", most, a=least, b=numbers([[7]]))]
    made = graph([y], *ops, tosa("mul", y, a=x, b=most, shift=0))
    assert computing_steps(made) == [("tosa.mul", "int_elementwise")]
    same(made, "tosa")


def test_scalar_constants_are_folded() -> None:
    x, y, most = plain("x", (3, 5), "int32"), plain("y", (3, 5), "int32"), plain("m", (), "int32")
    first = tosa("minimum", most, a=numbers(3), b=numbers(9))
    made = graph([y], first, tosa("mul", y, a=x, b=most, shift=0))
    assert computing_steps(made) == [("tosa.mul", "int_elementwise")]
    same(made, "tosa")
