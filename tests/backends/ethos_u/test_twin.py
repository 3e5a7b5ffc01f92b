"""Operators of a twin are checked before they run: their meanings trust what they are given."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

from edgewright.backends.ethos_u.dialect import DIALECT
from edgewright.backends.ethos_u.dialect.numerics import TOSA_NUMERICS
from edgewright.errors import EdgewrightError, FormatError, LimitError
from edgewright.ir.graph import Graph, Op, Origin, Value

MEMORY = 1 << 24


def tensor(shape: tuple[int, ...], dtype: Any = np.int8) -> Value:
    value = Value("v", np.dtype(dtype), shape)
    value.dim_order = tuple(range(len(shape)))
    return value


def op(kind: str, result: tuple[int, ...], made: Any = np.int8, **args: Any) -> Op:
    return Op(f"tosa.{kind}", args, [tensor(result, made)], Origin("", ""))


def zeros(shape: tuple[int, ...], dtype: Any = np.int8) -> Value:
    """A constant."""
    value = tensor(shape, dtype)
    value.data = np.zeros(shape, dtype)
    return value


def conv(**changes: Any) -> Op:
    args = {
        "input": tensor((1, 8, 8, 4)), "weight": zeros((16, 3, 3, 4)), "bias": zeros((16,), np.int32), "input_zp": 0,
        "weight_zp": 0, "pad": [1, 1, 1, 1], "stride": [1, 1], "dilation": [1, 1],
    }  # fmt: skip
    return op("conv2d", (1, 8, 8, 16), np.int32, **{**args, **changes})


def pool(**changes: Any) -> Op:
    args = {"input": tensor((1, 8, 8, 4)), "kernel": [2, 2], "stride": [2, 2], "pad": [0] * 4}
    return op("max_pool2d", (1, 4, 4, 4), **{**args, **changes})


def resize(**changes: Any) -> Op:
    args = {"input": tensor((1, 8, 8, 4)), "scale": [4, 2, 4, 2], "offset": [0, 0], "border": [2, 2], "mode": "nearest"}
    return op("resize", (1, 16, 16, 4), **{**args, **changes})


def transposed(**changes: Any) -> Op:
    args = {
        "input": tensor((1, 8, 8, 4)), "weight": zeros((16, 2, 2, 4)), "bias": zeros((16,), np.int32), "input_zp": 0,
        "weight_zp": 0, "out_pad": [0] * 4, "stride": [2, 2],
    }  # fmt: skip
    return op("transpose_conv2d", (1, 16, 16, 16), np.int32, **{**args, **changes})


SOUND = [
    conv(), pool(), resize(), transposed(),
    op("pad", (1, 8, 8, 6), input=tensor((1, 8, 8, 4)), value=zeros((1,)), padding=[0] * 7 + [2]),
    op("tile", (2, 4), input=tensor((1, 4)), multiples=[2, 1]),
    op("add", (1, 8, 8, 4), np.int32, a=tensor((1, 8, 8, 4), np.int32), b=tensor((1, 1, 1, 4), np.int32)),
    op("matmul", (1, 2, 4), np.int32, a=tensor((1, 2, 3)), b=tensor((1, 3, 4)), a_zp=0, b_zp=0),
    op("gather", (1, 2, 4), values=tensor((1, 9, 4)), indices=tensor((1, 2), np.int32)),
    op("cast", (4,), np.int32, input=tensor((4,)), dtype="int32"),
    op("concat", (1, 8), inputs=[tensor((1, 4)), tensor((1, 4))], axis=1),
]  # fmt: skip


@pytest.mark.parametrize("sound", SOUND, ids=[o.kind for o in SOUND])
def test_what_is_sound_passes_and_runs(sound: Op) -> None:
    DIALECT.check_op(sound, MEMORY)
    (out,) = sound.outputs
    assert out is not None
    held = {v: np.zeros(v.bound, v.dtype) for v in sound.inputs() if v.data is None}
    (result,) = DIALECT.run_op(sound, held, TOSA_NUMERICS)
    assert (result.shape, result.dtype) == (out.bound, out.dtype)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (conv(stride=[0, 1]), "stride: must be an integer from 1; got 0"),
        (conv(stride=[-1, 1]), "stride: must be an integer from 1; got -1"),
        (conv(stride=[1]), "stride: must be 2 numbers"),
        (conv(stride=[1.0, 1]), "stride: must be an integer"),
        (conv(stride=[True, 1]), "stride: must be an integer"),
        (conv(dilation=[0, 1]), "dilation: must be an integer from 1"),
        (conv(dilation=[9, 1]), "a window must fit in the padded image; got 19 in 10"),
        (conv(pad=[-8, 1, 1, 1]), "pad: must be an integer from 0"),
        (conv(pad="1111"), "pad: must be a list of integers"),
        (conv(weight=zeros((16, 3, 3, 5))), "weight: must have the channels of the input"),
        (conv(weight=zeros((16, 3, 3))), "weight: must have 4 dimensions"),
        (conv(weight=tensor((16, 0, 3, 4))), "weight: must have a fixed shape with elements"),
        (conv(weight=7), "weight: must be a tensor"),
        (conv(weight=tensor((16, 3, 3, 4))), "weight: must be a constant; got a computed value"),
        (conv(weight=tensor((16, 3, 3, 4), np.int16)), "weight: must be int8; got int16"),
        (conv(bias=tensor((16,), np.int64)), "bias: must be int32; got int64"),
        (conv(bias=zeros((15,), np.int32)), "bias: must have 16 elements, or one"),
        (conv(input_zp=200), "input_zp: must be an integer from -128 to 127; got 200"),
        (conv(more=1), "arguments: must be bias, dilation, input,"),
        (pool(kernel=[0, 2]), "kernel: must be an integer from 1"),
        (pool(kernel=[9, 2]), "a window must fit"),
        (pool(pad=[0, 2, 0, 0]), "pad: must be smaller than the window"),
        (resize(scale=[4, 0, 4, 2]), "scale: must be an integer from 1"),
        (resize(border=[-9, 0]), "must give an image|result: must have the shape"),
        (resize(mode="cubic"), "mode: must be nearest or bilinear"),
        (transposed(stride=[0, 0]), "stride: must be an integer from 1"),
        (transposed(out_pad=[-9, -9, 0, 0]), "out_pad: must crop less than a filter"),
        (op("tile", (4,), input=tensor((4,)), multiples=[-1]), "multiples: must be an integer from 1"),
        (op("pad", (4,), input=tensor((4,)), value=zeros((1,)), padding=[1]), "padding: must be 2 numbers"),
        (op("cast", (4,), input=tensor((4,)), dtype="O"), "dtype: must be that of the result, int8"),
        (op("identity", (5,), input=tensor((4,))), r"result: must have the shape \[4\]; got \[5\]"),
        (op("no_such", (4,), input=tensor((4,))), "must be an operator of TOSA"),
        (Op("abs", {"input": tensor((4,))}, [tensor((4,))], Origin("", "")), "must be an operator of TOSA"),
    ],
)  # fmt: skip
def test_what_would_read_elsewhere_is_refused(broken: Op, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        DIALECT.check_op(broken, MEMORY)


@pytest.mark.parametrize(
    "greedy",
    [
        conv(pad=[1 << 20, 1, 1, 1]),
        transposed(stride=[1 << 20, 1]),
        transposed(out_pad=[1 << 30, 0, 0, 0]),
        op("tile", (4,), input=tensor((4,)), multiples=[1 << 30]),
        op("pad", (4,), input=tensor((4,)), value=zeros((1,)), padding=[0, 1 << 30]),
        op("add", (4,), np.int32, a=tensor((1 << 12, 1), np.int32), b=tensor((1, 1 << 12), np.int32)),
        op("matmul", (1, 2, 2), np.int32, a=tensor((1, 1 << 12, 1)), b=tensor((1, 1, 1 << 12)), a_zp=0, b_zp=0),
    ],
)
def test_what_would_take_too_much_is_refused(greedy: Op) -> None:
    with pytest.raises(LimitError, match="may take 16777216 bytes"):
        DIALECT.check_op(greedy, MEMORY)


def test_arguments_of_any_kind_are_errors_of_ours() -> None:
    odd: list[Any] = [None, -1, 1 << 62, "x", [], [None], [[1]], {}, 0.5, (1, 1), [1 << 40] * 4, tensor((0,))]
    for sound in SOUND:
        for name in sound.args:
            for value in odd:
                broken = Op(sound.kind, {**sound.args, name: value}, sound.outputs, sound.origin)
                inputs = [v for v in dict.fromkeys(broken.inputs()) if v.data is None]
                with contextlib.suppress(EdgewrightError):
                    DIALECT.check(Graph("g", inputs, list(broken.outputs), [broken]), MEMORY)
