"""Samples of the operators that reorder, reshape and cut a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ir.aten.harness import Sample, channels_last
from tests.ir.aten.samples.values import COMPLEX, FLOATS, INTS, normal

IMAGE = normal("float32", 2, 3, 4, 2)
CUBE = normal("float32", 2, 3, 4)
LAST = channels_last(IMAGE)
CL = (0, 2, 3, 1)
END = 2**63 - 1
EVERY = (*FLOATS, *INTS, "bool", *COMPLEX)


def calls(key: str, *cases: list[Any], **fields: Any) -> list[Sample]:
    return [Sample(key, case, **fields) for case in cases]


def every_type(key: str, shape: tuple[int, ...], *rest: Any) -> list[Sample]:
    return [Sample(key, [normal(d, *shape), *rest]) for d in EVERY]


def f32(*shape: int) -> np.ndarray:
    return normal("float32", *shape)


def views() -> list[Sample]:
    key = "aten::view_copy.out"
    return [
        *every_type(key, (2, 6), [3, -1]),
        *calls(key, [CUBE, [24]], [CUBE, [-1]], [CUBE, [4, 3, 2]], [CUBE, [1, 2, -1, 1]], [LAST, [6, -1]]),
        *calls(key, [f32(), []], [f32(), [1, -1]], [f32(1), []], [f32(0, 3), [3, 0]], [f32(0, 3), [-1, 3]]),
        *calls(key, [f32(3, 4).T, [2, 6]], [f32(0), [0, 5]]),
        Sample(key, [CUBE, [2, 3, 2, 2]], dim_order=CL),
    ]


def orders() -> list[Sample]:
    permute, transpose, t = "aten::permute_copy.out", "aten::transpose_copy.int_out", "aten::t_copy.out"
    flip, roll = "aten::flip.out", "aten::roll.out"
    return [
        *every_type(permute, (2, 3, 4), [2, 0, 1]),
        *calls(permute, [IMAGE, [0, 2, 3, 1]], [IMAGE, [-1, -4, 2, 1]], [LAST, [0, 2, 3, 1]], [f32(), []]),
        *calls(permute, [f32(0, 3), [1, 0]], [f32(3), [0]]),
        Sample(permute, [IMAGE, [1, 0, 2, 3]], dim_order=CL),
        *every_type(transpose, (2, 3), 0, 1),
        *calls(transpose, [IMAGE, 1, -1], [IMAGE, 2, 2], [LAST, -2, 1], [f32(), 0, -1], [f32(0, 3), 0, 1]),
        *every_type(t, (2, 3)),
        *calls(t, [f32(3)], [f32()], [f32(0, 2)], [f32(4, 3).T]),
        *every_type(flip, (2, 3), [1]),
        *calls(flip, [IMAGE, [0, -1]], [IMAGE, []], [LAST, [1, 2]], [f32(), [0]], [f32(0, 3), [0]]),
        *every_type(roll, (2, 3), [1], [1]),
        *calls(roll, [CUBE, [2], []], [CUBE, [-1, 5], [0, -1]], [CUBE, [1, 1], [2, 2]], [LAST, [7, -2], [1, 2]]),
        *calls(roll, [f32(0, 3), [1], [0]], [f32(), [3], []], [CUBE, [END], [1]]),
    ]


def sizes() -> list[Sample]:
    squeeze, squeezes = "aten::squeeze_copy.dim_out", "aten::squeeze_copy.dims_out"
    unsqueeze, expand, repeat = "aten::unsqueeze_copy.out", "aten::expand_copy.out", "aten::repeat.out"
    ones = f32(1, 3, 1)
    return [
        *every_type(squeeze, (2, 1), 1),
        *calls(squeeze, [ones, 0], [ones, 1], [ones, -1], [f32(), 0], [f32(1), -1], [f32(1, 0), 0]),
        *every_type(squeezes, (1, 2, 1), [0, -1]),
        *calls(
            squeezes, [ones, [0, 1]], [ones, []], [ones, [1]], [f32(), [0]], [channels_last(f32(2, 3, 1, 1)), [2, 3]]
        ),
        *every_type(unsqueeze, (2, 3), 1),
        *calls(unsqueeze, [CUBE, 0], [CUBE, 3], [CUBE, -1], [CUBE, -4], [f32(), 0], [f32(0), -1]),
        *every_type(expand, (2, 1), [3, -1, 4], False),
        *calls(expand, [f32(), [2, 3], False], [f32(), [], False], [f32(3), [2, 3], True], [f32(1, 3), [0, 3], False]),
        *calls(expand, [f32(2, 1), [2, 0], False], [f32(0, 1), [0, 4], False], [LAST[:, :1], [2, 3, 4, 2], False]),
        *every_type(repeat, (2, 3), [2, 1]),
        *calls(repeat, [f32(3), [2, 1, 2]], [f32(), [3]], [f32(), []], [f32(2), [0]], [f32(2), [3, 0]]),
        *calls(repeat, [f32(0, 2), [2, 2]], [LAST, [1, 2, 1, 2]], [CUBE, [1, 1, 1]]),
    ]


def cuts() -> list[Sample]:
    cut, narrow, select = "aten::slice_copy.Tensor_out", "aten::narrow_copy.out", "aten::select_copy.int_out"
    rows = f32(7, 2)
    bounds = [
        (None, None, 1), (0, END, 1), (2, 5, 1), (-3, -1, 1), (-100, 100, 2), (5, 2, 1), (7, 9, 1), (1, END, 3),
        (0, 7, 100), (-END - 1, END, 1), (3, None, 2), (None, -2, 1),
    ]  # fmt: skip
    return [
        *every_type(cut, (4, 3), 0, 1, 3, 1),
        *calls(cut, *([rows, 0, *bound] for bound in bounds)),
        *calls(cut, [IMAGE, -2, 1, 4, 2], [LAST, 1, 1, 3, 1], [f32(0, 3), 0, 0, END, 1], [f32(0, 3), 1, 1, 2, 1]),
        Sample(cut, [LAST, 1, 1, 3, 1], dim_order=CL),
        *every_type(narrow, (4, 3), 0, 1, 2),
        *calls(narrow, [rows, 0, -3, 2], [rows, 0, 7, 0], [rows, -1, 1, 1], [rows, 0, -7, 7], [LAST, 1, 1, 2]),
        *calls(narrow, [f32(0, 3), 0, 0, 0]),
        *every_type(select, (4, 3), 0, 1),
        *calls(select, [rows, 1, 0], [rows, -1, -1], [rows, 0, -7], [f32(3), 0, 2], [LAST, 1, -1], [f32(0, 3), 1, 2]),
    ]


def diagonals() -> list[Sample]:
    diagonal, tril = "aten::diagonal_copy.out", "aten::tril.out"
    return [
        *every_type(diagonal, (3, 4), 0, 0, 1),
        *calls(diagonal, *([f32(3, 5), offset, 0, 1] for offset in (1, 4, 5, 9, -1, -2, -3, -9))),
        *calls(
            diagonal, [IMAGE, 0, 1, 3], [IMAGE, 1, -1, -2], [IMAGE, -1, 2, 0], [LAST, 0, 1, 2], [f32(0, 3), 0, 0, 1]
        ),
        *every_type(tril, (3, 4), 0),
        *calls(tril, *([f32(3, 5), offset] for offset in (1, 4, 9, END, -1, -2, -3, -END))),
        *calls(tril, [IMAGE, 0], [LAST, 1], [f32(4, 3).T, 0], [f32(0, 3), 0], [f32(2, 0, 3, 3), 0]),
        *calls(tril, [np.full((2, 2), np.nan, np.float32), -1]),
    ]


SAMPLES = [*views(), *orders(), *sizes(), *cuts(), *diagonals()]
