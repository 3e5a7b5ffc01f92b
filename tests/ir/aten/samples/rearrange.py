"""Samples of joining, splitting, padding and re-reading tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ir.aten.harness import Sample, channels_last
from tests.ir.aten.samples.movement import CL, CUBE, EVERY, IMAGE, LAST, calls, every_type, f32
from tests.ir.aten.samples.values import FLOATS, INTS, normal


def joins() -> list[Sample]:
    cat, stack = "aten::cat.out", "aten::stack.out"
    found = [Sample(cat, [[normal(d, 2, 3), normal(d, 1, 3, seed=3)], 0]) for d in EVERY]
    found += [Sample(stack, [[normal(d, 2, 3), normal(d, 2, 3, seed=3)], 1]) for d in EVERY]
    return [
        *found,
        *calls(cat, [[IMAGE, IMAGE], 1], [[IMAGE, IMAGE, IMAGE], -1], [[LAST, IMAGE], 1], [[CUBE], 0]),
        Sample(cat, [[LAST, LAST], 1], dim_order=CL),
        *calls(
            cat, [[f32(0), CUBE, f32(0), CUBE], 1], [[f32(0), CUBE], -3], [[f32(0), f32(0)], 0], [[f32(0), f32(2)], 0]
        ),
        *calls(cat, [[f32(0, 3), f32(2, 3)], 0], [[f32(2, 0), f32(2, 3)], 1], [[f32(0, 3), f32(0, 2)], 1]),
        Sample(cat, [[normal("int64", 3), f32(2)], 0], out=["float32"]),
        Sample(cat, [[normal("float16", 3), normal("bfloat16", 2)], 0], out=["float32"]),
        Sample(cat, [[normal("int8", 3), normal("uint8", 2), normal("bool", 1)], 0], out=["int16"]),
        Sample(cat, [[normal("float16", 3), normal("int64", 2)], 0], out=["float16"]),
        *calls(
            stack, [[f32(), f32()], 0], [[f32()], -1], [[CUBE, CUBE, CUBE], -1], [[CUBE, CUBE], 3], [[f32(0, 2)] * 3, 0]
        ),
        *calls(stack, [[LAST, IMAGE], 0], [[f32(3, 2).T, f32(2, 3)], -3]),
        Sample(stack, [[normal("int64", 3), f32(3)], 0], out=["float32"]),
    ]


def pieces(key: str, x: np.ndarray, how: Any, dim: int, sizes: list[int]) -> Sample:
    """A split of ``x`` along ``dim``, whose pieces have ``sizes``."""
    shapes = [tuple(size if i == dim % x.ndim else s for i, s in enumerate(x.shape)) for size in sizes]
    return Sample(key, [x, how, dim], shapes=shapes)


def splits() -> list[Sample]:
    split, sizes, unbind = "aten::split_copy.Tensor_out", "aten::split_with_sizes_copy.out", "aten::unbind_copy.int_out"
    found = []
    for d in EVERY:
        x = normal(d, 5, 2)
        found += [pieces(split, x, 2, 0, [2, 2, 1]), pieces(sizes, x, [1, 4], 0, [1, 4])]
        found.append(Sample(unbind, [x, 1], shapes=[(5,), (5,)]))
    return [
        *found,
        pieces(split, IMAGE, 3, -2, [3, 1]),
        pieces(split, LAST, 1, 1, [1, 1, 1]),
        pieces(split, CUBE, 2**62, 2, [4]),
        pieces(split, f32(0, 3), 0, 0, [0]),
        pieces(split, f32(0, 3), 2, 0, [0]),
        pieces(split, f32(0, 3), 2, 1, [2, 1]),
        pieces(sizes, LAST, [1, 0, 2], 1, [1, 0, 2]),
        pieces(sizes, CUBE, [4], -1, [4]),
        pieces(sizes, f32(0, 3), [0, 0], 0, [0, 0]),
        Sample(unbind, [f32(3), 0], shapes=[(), (), ()]),
        Sample(unbind, [LAST, -3], shapes=[(2, 4, 2)] * 3),
        Sample(unbind, [f32(2, 0), 0], shapes=[(0,), (0,)]),
    ]


def readings() -> list[Sample]:
    strided, unfold = "aten::as_strided_copy.out", "aten::unfold_copy.out"
    shuffle, unshuffle = "aten::pixel_shuffle.out", "aten::pixel_unshuffle.out"
    return [
        *every_type(strided, (3, 4), [2, 2], [4, 2], 1),
        *calls(
            strided, [CUBE, [24], [1], None], [CUBE, [3, 5], [0, 1], 19], [CUBE, [], [], 23], [CUBE, [4, 4], [5, 2], 2]
        ),
        *calls(strided, [CUBE, [0, 2], [1, 1], 0], [CUBE, [1, 1], [10**6, 10**6], 3], [LAST, [4, 3], [3, 1], 6]),
        *calls(strided, [f32(), [3], [0], None]),
        *every_type(unfold, (5, 2), 0, 3, 2),
        *calls(unfold, [CUBE, -1, 2, 1], [CUBE, 1, 3, 1], [CUBE, 1, 0, 1], [CUBE, 2, 4, 100], [LAST, 2, 2, 2]),
        *calls(unfold, [f32(), 0, 1, 1], [f32(), -1, 0, 3], [f32(0, 3), 1, 2, 1], [f32(3, 5).T, 0, 2, 2]),
        *every_type(shuffle, (4, 2, 3), 2),
        *calls(shuffle, [f32(2, 8, 2, 3), 2], [f32(9, 1, 2), 3], [f32(2, 2, 8, 1, 1), 2], [f32(3, 2, 2), 1]),
        *calls(shuffle, [channels_last(f32(2, 4, 2, 2)), 2], [f32(0, 4, 2, 2), 2]),
        *every_type(unshuffle, (1, 4, 6), 2),
        *calls(unshuffle, [f32(2, 2, 4, 2), 2], [f32(1, 3, 6), 3], [f32(2, 2, 1, 2, 2), 2], [f32(3, 2, 2), 1]),
        *calls(unshuffle, [channels_last(f32(2, 3, 4, 2)), 2]),
    ]


def constants() -> list[Sample]:
    key = "aten::constant_pad_nd.out"
    return [
        *(Sample(key, [normal(d, 2, 3), [1, 2], 1]) for d in EVERY),
        *calls(key, [CUBE, [1, 0, 2, 1], 0.5], [CUBE, [0, 0, 0, 0, 1, 1], -1], [CUBE, [], 3], [IMAGE, [1] * 8, 0]),
        *calls(key, [CUBE, [-1, 2], 9.0], [CUBE, [-1, -2, 1, -1], 9.0], [CUBE, [-4, 0], 9.0], [CUBE, [-4, 3], 2.0]),
        *calls(
            key,
            [CUBE, [0, 1], float("inf")],
            [CUBE, [0, 1], float("nan")],
            [f32(0, 2), [1, 1, 2, 0], 7],
            [f32(), [], 1],
        ),
        Sample(key, [normal("int32", 3), [1, 0], 2.75], note="the number is cut"),
        Sample(key, [LAST, [1, 1], 0.0], dim_order=CL),
    ]


def borders() -> list[Sample]:
    found = []
    for n, shape in ((1, (2, 5)), (2, (2, 4, 5)), (3, (1, 3, 4, 5))):
        for way, dtypes in (("reflection", (*FLOATS, *INTS)), ("replication", (*FLOATS, *INTS))):
            key = f"aten::{way}_pad{n}d.out"
            found += [Sample(key, [normal(d, *shape), [2, 1] * n]) for d in dtypes]
            batch = f32(2, *shape)
            cases = [[1, 2, 0, 3, 2, 1], [-1, 2, 1, -2, 0, 1], [0] * 6, [-2, -2, -1, -1, -1, -1], [3, 0, 0, 0, 1, 0]]
            found += calls(key, *([batch, case[: 2 * n]] for case in cases))
            found += calls(key, [f32(0, *shape), [1, 1] * n], [batch[..., ::-1].copy().swapaxes(0, 1), [1, 0] * n])
        found += calls(
            f"aten::replication_pad{n}d.out", [f32(*shape), [7, 9] * n], [f32(*shape), [-6, 3] + [0, 0] * (n - 1)]
        )
    found += calls("aten::reflection_pad1d.out", [f32(2, 3), [-4, 2]], [f32(2, 3), [2, -4]])
    found += [
        Sample(f"aten::{way}_pad2d.out", [LAST, [1, 0, 2, 3]], dim_order=CL) for way in ("reflection", "replication")
    ]
    return found


SAMPLES = [*joins(), *splits(), *readings(), *constants(), *borders()]
