"""Exact integers in numpy: what Python's own integers give, also beyond 64 bits."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgewright.ir.int_arithmetic import RangedInt
from edgewright.ir.numpy_ints import NumpyInts, load

INTS = NumpyInts()
EDGES = [0, 1, -1, 2, 7, -8, 127, -128, (1 << 31) - 1, -(1 << 31), (1 << 62) - 1, (1 << 63) - 1, -(1 << 63)]


def pairs(dtype: str) -> tuple[RangedInt, RangedInt, list[tuple[int, int]]]:
    info: Any = np.iinfo(dtype)
    inside = [n for n in EDGES if info.min <= n <= info.max]
    every = [(a, b) for a in inside for b in inside]
    first, second = (load(np.array(side, dtype)) for side in zip(*every, strict=True))
    return first, second, every


def check(result: RangedInt, expected: list[int]) -> None:
    assert [int(n) for n in np.ravel(result.data)] == expected
    assert result.low <= min(expected) and max(expected) <= result.high


def wrapped(value: int, bits: int) -> int:
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b or 1)
    return -quotient if (a < 0) != (b < 0) else quotient


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
@pytest.mark.parametrize(
    ("name", "python"),
    [
        ("add", operator.add), ("sub", operator.sub), ("mul", operator.mul), ("largest", max), ("smallest", min),
        ("divide", truncated),
    ],
)  # fmt: skip
def test_arithmetic(name: str, python: Callable[[int, int], int], dtype: str) -> None:
    a, b, every = pairs(dtype)
    check(getattr(INTS, name)(a, b), [python(*pair) for pair in every])


@pytest.mark.parametrize("name", ["and", "or", "xor"])
def test_bitwise(name: str) -> None:
    a, b, every = pairs("int32")
    python = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}[name]
    check(INTS.bitwise(name, a, b), [python(*pair) for pair in every])


@pytest.mark.parametrize("bits", [8, 32, 64])
def test_products_wrap(bits: int) -> None:
    a, b, every = pairs("int64")
    check(INTS.wrap(INTS.mul(a, b), bits), [wrapped(x * y, bits) for x, y in every])


def test_products_are_shifted_before_they_are_narrowed() -> None:
    a, b, every = pairs("int64")
    check(INTS.shift_right(INTS.plus(INTS.mul(a, b), 1 << 62), 63), [(x * y + (1 << 62)) >> 63 for x, y in every])


@pytest.mark.parametrize("rounded", [False, True])
def test_arithmetic_shifts_of_any_count(rounded: bool) -> None:
    values, counts = (load(np.array(side, np.int32)) for side in ([5, -5, 7, -8, -1, 3, -3], [1, 1, 0, 40, -2, 64, 2]))
    expected = [2, -3, 7, -1, -1, 0, -1] if not rounded else [3, -2, 7, -1, -1, 0, -1]
    expected[3] += rounded  # -8 / 2**40 rounds to 0
    check(INTS.shift_right_each(values, counts, rounded), expected)


def test_logical_shifts() -> None:
    values, counts = (load(np.array(side, np.int8)) for side in ([-1, -1, 1, 64, -1, 1], [1, 7, 7, 1, 8, -1]))
    check(INTS.shift_logical(values, counts, False, 8), [127, 1, 0, 32, 0, 0])
    check(INTS.shift_logical(values, counts, True, 8), [-2, -128, -128, -128, 0, 0])


def test_leading_zeros() -> None:
    check(INTS.leading_zeros(load(np.array([0, 1, 255, 256, (1 << 31) - 1, -1], np.int32))), [32, 31, 24, 23, 1, 0])


def test_floats_round_once_and_nan_is_seen() -> None:
    third = INTS.float_op("div", INTS.to_float(load(np.array([1, 0], np.int8))), np.float32([3, 0]))
    assert third[0] == np.float32(1) / np.float32(3)
    assert np.isnan(third[1])
    check(INTS.to_int(INTS.float_select("ord", third, third, third, -7), -7, 1), [0, -7])
    check(INTS.to_int(np.float32([0.5, 1.5, -2.5]), -3, 3), [0, 2, -2])
    check(INTS.to_int(np.float32([0.5, 1.5, -2.5]), -3, 3, rounded=False), [0, 1, -2])
