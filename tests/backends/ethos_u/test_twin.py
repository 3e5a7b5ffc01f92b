"""Operators of a twin are checked before they run: their meanings trust what they are given."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

from edgewright.backends.ethos_u.twin import check
from edgewright.errors import EdgewrightError, FormatError, LimitError
from edgewright.ir.graph import Op, Origin, Value
from edgewright.ir.tosa.execute import run_op

MEMORY = 1 << 24
# What Twin turns into errors of ours, and nothing else.
ERRORS = (EdgewrightError, KeyError, TypeError, ValueError, IndexError, AttributeError)


def tensor(shape: tuple[int, ...], dtype: Any = np.int8) -> Value:
    value = Value("v", np.dtype(dtype), shape)
    value.dim_order = tuple(range(len(shape)))
    return value


def op(kind: str, result: tuple[int, ...], **args: Any) -> Op:
    return Op(f"tosa.{kind}", args, [tensor(result)], Origin("", ""))


def conv(**changes: Any) -> Op:
    args = {
        "input": tensor((1, 8, 8, 4)), "weight": tensor((16, 3, 3, 4)), "bias": tensor((16,), np.int32), "input_zp": 0,
        "weight_zp": 0, "pad": [1, 1, 1, 1], "stride": [1, 1], "dilation": [1, 1],
    }  # fmt: skip
    return op("conv2d", (1, 8, 8, 16), **{**args, **changes})


def pool(**changes: Any) -> Op:
    args = {"input": tensor((1, 8, 8, 4)), "kernel": [2, 2], "stride": [2, 2], "pad": [0] * 4}
    return op("max_pool2d", (1, 4, 4, 4), **{**args, **changes})


def resize(**changes: Any) -> Op:
    args = {"input": tensor((1, 8, 8, 4)), "scale": [4, 2, 4, 2], "offset": [0, 0], "border": [2, 2], "mode": "nearest"}
    return op("resize", (1, 16, 16, 4), **{**args, **changes})


def transposed(**changes: Any) -> Op:
    args = {
        "input": tensor((1, 8, 8, 4)), "weight": tensor((16, 2, 2, 4)), "bias": tensor((16,), np.int32), "input_zp": 0,
        "weight_zp": 0, "out_pad": [0] * 4, "stride": [2, 2],
    }  # fmt: skip
    return op("transpose_conv2d", (1, 16, 16, 16), **{**args, **changes})


SOUND = [
    conv(), pool(), resize(), transposed(),
    op("pad", (1, 8, 8, 6), input=tensor((1, 8, 8, 4)), value=tensor((1,)), padding=[0] * 7 + [2]),
    op("tile", (2, 4), input=tensor((1, 4)), multiples=[2, 1]),
    op("add", (1, 8, 8, 4), a=tensor((1, 8, 8, 4), np.int32), b=tensor((1, 1, 1, 4), np.int32)),
    op("matmul", (1, 2, 4), a=tensor((1, 2, 3)), b=tensor((1, 3, 4)), a_zp=0, b_zp=0),
    op("gather", (1, 2, 4), values=tensor((1, 9, 4)), indices=tensor((1, 2), np.int32)),
    op("cast", (4,), input=tensor((4,)), dtype="int32"),
    op("concat", (1, 8), inputs=[tensor((1, 4)), tensor((1, 4))], axis=1),
]  # fmt: skip


@pytest.mark.parametrize("sound", SOUND, ids=[o.kind for o in SOUND])
def test_what_is_sound_passes_and_runs(sound: Op) -> None:
    check(sound, MEMORY)
    (out,) = sound.outputs
    assert out is not None
    held = {v: np.zeros(v.bound, v.dtype) for v in sound.inputs()}
    assert run_op(sound, held).shape == out.bound


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (conv(stride=[0, 1]), "stride: must be whole numbers from 1; got 0"),
        (conv(stride=[-1, 1]), "stride: must be whole numbers from 1; got -1"),
        (conv(stride=[1]), "stride: must be 2 numbers"),
        (conv(stride=[1.0, 1]), "stride: must be whole numbers"),
        (conv(stride=[True, 1]), "stride: must be whole numbers"),
        (conv(dilation=[0, 1]), "dilation: must be whole numbers from 1"),
        (conv(dilation=[9, 1]), "a window must fit its image; got 19 in 10"),
        (conv(pad=[-8, 1, 1, 1]), "pad: must be whole numbers from 0"),
        (conv(pad="1111"), "pad: must be 4 numbers"),
        (conv(weight=tensor((16, 3, 3, 5))), "weight: must have the channels of its input"),
        (conv(weight=tensor((16, 3, 3))), "weight: must be a tensor of 4 dimensions"),
        (conv(weight=tensor((16, 0, 3, 4))), "a window must fit its image"),
        (conv(weight=7), "weight: must be a tensor of 4 dimensions"),
        (pool(kernel=[0, 2]), "kernel: must be whole numbers from 1"),
        (pool(kernel=[9, 2]), "a window must fit"),
        (resize(scale=[4, 0, 4, 2]), "scale: must be whole numbers from 1"),
        (resize(border=[-99, 0]), "must give an image"),
        (resize(mode="cubic"), "must give an image"),
        (transposed(stride=[0, 0]), "stride: must be whole numbers from 1"),
        (op("tile", (4,), input=tensor((4,)), multiples=[-1]), "multiples: must be whole numbers from 1"),
        (op("pad", (4,), input=tensor((4,)), value=tensor((1,)), padding=[1]), "padding: must be 2 numbers"),
        (op("cast", (4,), input=tensor((4,)), dtype="O"), "dtype: must be one of bool"),
        (op("cast", (4,), input=tensor((4,)), dtype="U99999999"), "dtype: must be one of bool"),
        (op("no_such", (4,), input=tensor((4,))), "must be an operator of TOSA"),
        (Op("abs", {"input": tensor((4,))}, [tensor((4,))], Origin("", "")), "must be an operator of TOSA"),
    ],
)  # fmt: skip
def test_what_would_read_elsewhere_is_refused(broken: Op, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        check(broken, MEMORY)


@pytest.mark.parametrize(
    "greedy",
    [
        conv(pad=[1 << 20, 1, 1, 1]),
        pool(pad=[0, 1 << 24, 0, 0]),
        resize(scale=[1 << 20, 1, 1, 1]),
        transposed(stride=[1 << 20, 1]),
        transposed(out_pad=[1 << 30, 0, 0, 0]),
        op("tile", (4,), input=tensor((4,)), multiples=[1 << 30]),
        op("pad", (4,), input=tensor((4,)), value=tensor((1,)), padding=[0, 1 << 30]),
        op("add", (4,), a=tensor((1 << 12, 1)), b=tensor((1, 1 << 12))),
        op("matmul", (1, 2, 2), a=tensor((1, 1 << 12, 1)), b=tensor((1, 1, 1 << 12)), a_zp=0, b_zp=0),
        op("identity", (1 << 22,), input=tensor((4,))),
    ],
)
def test_what_would_take_too_much_is_refused(greedy: Op) -> None:
    with pytest.raises(LimitError, match="may take 16777216 bytes"):
        check(greedy, MEMORY)


def test_arguments_of_any_kind_are_errors_of_ours() -> None:
    odd: list[Any] = [None, -1, 1 << 62, "x", [], [None], [[1]], {}, 0.5, (1, 1), [1 << 40] * 4, tensor((0,))]
    for sound in SOUND:
        for name in sound.args:
            for value in odd:
                broken = Op(sound.kind, {**sound.args, name: value}, sound.outputs, sound.origin)
                with contextlib.suppress(*ERRORS):
                    check(broken, MEMORY)
