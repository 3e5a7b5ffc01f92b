"""The output stage's arithmetic against Python's own integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgewright.backends.ethos_u.npu.output_stage import apply_table, rescale
from edgewright.backends.ethos_u.npu.pooling import divide_by_counts


def exact(value: int, multiplier: int, shift: int, rounding: str) -> int:
    product = value * multiplier
    if rounding == "truncate":
        return -(-product >> shift) if product < 0 else product >> shift
    half = 1 << (shift - 1) if shift else 0
    if rounding == "tfl" and shift > 31:
        half += (1 << 30) if value >= 0 else -(1 << 30)
    return (product + half) >> shift


def twice(value: int, multiplier: int, shift: int) -> int:
    """TensorFlow Lite's words for it: a doubling high product, then a rounding division by a power of two."""
    product = value * multiplier
    high = abs(product + ((1 << 30) if product >= 0 else 1 - (1 << 30))) >> 31
    high = high if product + ((1 << 30) if product >= 0 else 1 - (1 << 30)) >= 0 else -high
    more = shift - 31
    remainder, threshold = high & ((1 << more) - 1), (((1 << more) - 1) >> 1) + (high < 0)
    return (high >> more) + (remainder > threshold)


NUMBERS = (st.integers(-(1 << 39), (1 << 39) - 1), st.integers(0, (1 << 32) - 1), st.integers(0, 62))


@settings(max_examples=500, derandomize=True, deadline=None)
@given(*NUMBERS, st.sampled_from(("tfl", "truncate", "natural")))
@example(-(1 << 39), (1 << 32) - 1, 40, "tfl")
@example((1 << 39) - 1, (1 << 32) - 1, 62, "natural")
@example(-3, 1, 1, "truncate")
def test_rescale(value: int, multiplier: int, shift: int, rounding: str) -> None:
    expected = exact(value, multiplier, shift, rounding)
    answer = int(rescale(np.array([value, 0]), multiplier, shift, rounding)[0])
    if abs(expected) < 1 << 40:  # what is larger is clamped: only its sign matters
        assert answer == expected
    else:
        assert (answer > 0) == (expected > 0) and abs(answer) > 1 << 32


@settings(max_examples=500, derandomize=True, deadline=None)
@given(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(1 << 30, (1 << 31) - 1), st.integers(32, 61))
def test_rounding_twice_is_tensorflow_lites(value: int, multiplier: int, shift: int) -> None:
    assert int(rescale(np.array([value]), multiplier, shift, "tfl")[0]) == twice(value, multiplier, shift)


def test_scales_by_channel() -> None:
    values = np.arange(-60, 60).reshape(10, 3, 4)
    multipliers, shifts = np.array([1, 3, 1 << 30, (1 << 32) - 1]), np.array([0, 2, 31, 33])
    answer = rescale(values, multipliers, shifts, "natural")
    for channel in range(4):
        expected = [exact(int(v), int(multipliers[channel]), int(shifts[channel]), "natural")
                    for v in values[..., channel].reshape(-1)]  # fmt: skip
        assert answer[..., channel].reshape(-1).tolist() == expected


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 9, 12, 25, 49, 64, 100, 256])
def test_padded_averages_round_halves_away_from_zero(count: int) -> None:
    sums = np.arange(-300 * count, 300 * count)
    expected = np.sign(sums) * ((2 * np.abs(sums) + count) // (2 * count))
    assert np.array_equal(divide_by_counts(sums, np.full(sums.shape, count), "natural"), expected)


def test_tables() -> None:
    values = np.arange(-128, 128)
    assert apply_table(values, np.arange(256).astype(np.uint8), np.dtype(np.int8)).tolist() == list(range(256))
    assert apply_table(values + 128, np.arange(256, dtype=np.uint8), np.dtype(np.uint8)).tolist() == list(range(256))
    line = np.arange(-256, 256, dtype=np.int64) * 128  # a base and a slope for every 128 values: here y = x
    entries = ((line & 0xFFFF) | 128 << 16).astype("<i4")
    whole = np.arange(-32768, 32768)
    assert np.array_equal(apply_table(whole, entries, np.dtype(np.int16)), whole)
