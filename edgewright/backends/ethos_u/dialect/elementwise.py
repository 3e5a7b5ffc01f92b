"""Reference of TOSA's elementwise operators, reductions and data movement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.core.index_bounds import OutOfRangePolicy
from edgewright.ir.fixed_point import apply_scale
from edgewright.ir.graph import Array


def rescale(
    input: Array, multiplier: Array, shift: Array, input_zp: int, output_zp: int, dtype: str, rounding: str,
    per_channel: bool,
) -> Array:  # fmt: skip
    """``((input - input_zp) * multiplier >> shift) + output_zp``, saturated; channels are the last dimension.

    TOSA has one 8-bit type and flags for signedness; here arrays have signed and unsigned types.
    """
    x = input.astype(np.int64) - input_zp
    by = multiplier.astype(np.int64) if per_channel else np.int64(multiplier[0])
    bits = shift.astype(np.int64) if per_channel else np.int64(shift[0])
    scaled = np.asarray(apply_scale(x, by, bits, rounding == "double")) + output_zp
    limits = np.iinfo(dtype)
    return np.clip(scaled, limits.min, limits.max).astype(dtype)


def table(input: Array, table: Array) -> Array:
    """8 bits: lookup. 16 bits: linear interpolation between two of 513 entries, with 7 fraction bits."""
    if input.dtype.itemsize == 1:
        return table[input.astype(np.int64) + 128]
    position = input.astype(np.int64) + 32768
    low, fraction = position >> 7, position & 127
    entries = table.astype(np.int64)
    return ((entries[low] << 7) + (entries[low + 1] - entries[low]) * fraction).astype(np.int32)


def clamp(input: Array, min_val: float, max_val: float) -> Array:
    return np.clip(input, min_val, max_val).astype(input.dtype)


def mul(a: Array, b: Array, shift: int) -> Array:
    if a.dtype.kind == "f":
        return np.asarray(a * b)
    wide = a.astype(np.int64) * b.astype(np.int64)
    return np.asarray((wide + (1 << (shift - 1))) >> shift if shift else wide).astype(np.int32)


def arithmetic_right_shift(a: Array, b: Array, round: bool) -> Array:
    wide, bits = a.astype(np.int64), b.astype(np.int64)
    shifted = wide >> bits
    if round:
        shifted = shifted + np.where(bits > 0, (wide >> np.maximum(bits - 1, 0)) & 1, 0)
    return shifted.astype(a.dtype)


def logical_left_shift(a: Array, b: Array) -> Array:
    return np.asarray(a << b, a.dtype)


def logical_right_shift(a: Array, b: Array) -> Array:
    unsigned = np.dtype(f"u{a.dtype}")
    return np.asarray(a.view(unsigned) >> b.astype(unsigned)).view(a.dtype)


def clz(input: Array) -> Array:
    """Leading zeros of a 32-bit integer; zero if negative."""
    value = input.astype(np.int64)
    bits = np.where(value > 0, np.floor(np.log2(np.maximum(value, 1))) + 1, 0)
    return np.where(value < 0, 0, 32 - bits).astype(input.dtype)


def intdiv(a: Array, b: Array) -> Array:
    wide = np.abs(a.astype(np.int64)) // np.maximum(np.abs(b.astype(np.int64)), 1)
    return (np.where((a < 0) != (b < 0), -wide, wide)).astype(a.dtype)


def negate(input: Array, input_zp: int, output_zp: int) -> Array:
    if input.dtype.kind == "f":
        return -input
    limits = np.iinfo(input.dtype)
    return np.clip(output_zp - (input.astype(np.int64) - input_zp), limits.min, limits.max).astype(input.dtype)


def cast(input: Array, dtype: str) -> Array:
    return input.astype(np.dtype(dtype))


def reduce(function: Any) -> Any:
    def run(input: Array, axis: int) -> Array:
        reduced = function(input, axis=axis, keepdims=True)
        return np.asarray(reduced, input.dtype)

    return run


def argmax(input: Array, axis: int) -> Array:
    return np.argmax(input, axis=axis).astype(np.int32)


def concat(inputs: Sequence[Array], axis: int) -> Array:
    return np.concatenate(list(inputs), axis=axis)


def pad(input: Array, value: Array, padding: Sequence[int]) -> Array:
    pairs = [(padding[2 * i], padding[2 * i + 1]) for i in range(input.ndim)]
    return np.pad(input, pairs, constant_values=value.ravel()[0])


def slice_(input: Array, start: Sequence[int], size: Sequence[int]) -> Array:
    return np.ascontiguousarray(input[tuple(slice(a, a + n) for a, n in zip(start, size, strict=True))])


def gather(values: Array, indices: Array) -> Array:
    checked = OutOfRangePolicy("tosa.gather", wrap=True).check(indices, values.shape[1])
    return np.take_along_axis(values, checked[:, :, None].astype(np.int64), axis=1)


def scatter(values: Array, indices: Array, input: Array) -> Array:
    updated, checked = values.copy(), OutOfRangePolicy("tosa.scatter", wrap=True).check(indices, values.shape[1])
    np.put_along_axis(updated, checked[:, :, None].astype(np.int64), input, axis=1)
    return updated


def select(condition: Array, on_true: Array, on_false: Array) -> Array:
    return np.where(condition, on_true, on_false).astype(on_true.dtype)
