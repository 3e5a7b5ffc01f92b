"""Output stage: converts accumulators to stored elements (scale, round, add zero point, clamp, table lookup).

A real scale is a 32-bit integer multiplier and a right shift (Jacob et al., "Quantization and Training of Neural
Networks for Efficient Integer-Arithmetic-Only Inference", 2018, section 2.2). The three rounding modes differ in ties
and signs. ``natural`` adds half and shifts: ties go up. ``truncate`` rounds towards zero. ``tfl`` reproduces gemmlowp:
SaturatingRoundingDoublingHighMul rounds the product at bit 31, then RoundingDivideByPOT rounds the remaining shift.
TOSA's RESCALE has ``natural`` and ``tfl`` as single and double rounding (``apply_scale_32`` in its specification).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.npu.memory import NpuMemory
from edgewright.backends.ethos_u.npu.registers import Registers, signed
from edgewright.errors import MissingError

Array = np.ndarray[Any, Any]
_FIRST_TABLE, _LAST_TABLE = 16, 23
_CLIPS = {"u8": np.uint8, "s8": np.int8, "s16": np.int16}


def rescale(values: Array, multiplier: Any, shift: Any, rounding: str) -> Array:
    """``values * multiplier / 2**shift``: ``natural`` rounds half up, ``truncate`` towards zero.

    ``tfl`` rounds twice, like TensorFlow Lite: at bit 31 of the product, then half away from zero.
    """
    multiplier, shift = np.asarray(multiplier, np.int64), np.asarray(shift, np.int64)
    if rounding == "truncate":
        sign = np.where(values < 0, -1, 1)
        return sign * _multiply_shift(values * sign, multiplier, shift, np.int64(0))
    half = np.where(shift > 0, np.int64(1) << np.maximum(shift - 1, 0), 0)
    if rounding == "tfl":
        nudge = np.where(shift > 31, 1 << 30, 0)
        half = half + np.where(values < 0, -nudge, nudge)
    return _multiply_shift(values, multiplier, shift, half)


_SPLIT_BITS = 20  # width of the low part of a split value


def _multiply_shift(values: Array, multiplier: Array, shift: Array, half: Any) -> Array:
    """``(values * multiplier + half) >> shift``; a product of more than 63 bits is split into two parts.

    Exact for sums of up to 50 bits, ten more than the accumulators have.
    """
    largest = max(abs(int(values.max(initial=0))), abs(int(values.min(initial=0))))
    if largest * int(multiplier.max(initial=0)) < 1 << 62:
        result: Array = (values * multiplier + half) >> shift
        return result
    high, low = values >> _SPLIT_BITS, values & ((1 << _SPLIT_BITS) - 1)
    sum_high = high * multiplier + ((low * multiplier + half) >> _SPLIT_BITS)
    left_shifted = np.clip(sum_high, -(1 << 42), 1 << 42) << np.maximum(
        _SPLIT_BITS - shift, 0
    )  # small shifts saturate later
    wide: Array = np.where(shift >= _SPLIT_BITS, sum_high >> np.maximum(shift - _SPLIT_BITS, 0), left_shifted)
    return wide


@dataclass(frozen=True)
class OutputStage:
    """Parameters of the output stage; calling it converts accumulators to elements."""

    dtype: np.dtype[Any]
    zero_point: int
    rounding: str
    low: int
    high: int
    table: Array | None

    def __call__(self, values: Array, multiplier: Any, shift: Any) -> Array:
        values = rescale(values, multiplier, shift, self.rounding) + self.zero_point
        if self.dtype.itemsize < 4 or self.table is not None:
            values = np.minimum(np.maximum(values, self.low), self.high)
        if self.table is not None:
            values = apply_table(values, self.table, self.dtype)
        return values.astype(self.dtype)


def apply_table(values: Array, table: Array, dtype: np.dtype[Any]) -> Array:
    """Look up 8-bit values in 256 entries; interpolate 16-bit values in 512 entries of (base, slope)."""
    if table.size == 256:
        result: Array = table[(values + (0 if dtype == np.uint8 else 128)) & 0xFF]
        return result
    entry = table[((values >> 7) + 256) & 0x1FF].astype(np.int64)
    base, slope = ((entry & 0xFFFF) ^ 0x8000) - 0x8000, entry >> 16
    interpolated: Array = base + ((slope * (values & 0x7F) + 64) >> 7)
    return interpolated


def output_stage_from_registers(registers: Registers, memory: NpuMemory, dtype: np.dtype[Any]) -> OutputStage:
    """The output stage the registers describe. 32-bit results are clamped only if a narrower clip is selected."""
    clip = registers.choice("ACTIVATION", "clip")
    limits = np.iinfo(_CLIPS.get(clip, dtype))
    bounds = [registers.number(f"ACTIVATION_{end}") for end in ("MIN", "MAX")]
    if limits.min < 0:
        bounds = [signed(bound, 16) for bound in bounds]
    if dtype.itemsize == 4 and clip == "ofm":
        bounds = [int(limits.min), int(limits.max)]
    return OutputStage(
        dtype=dtype,
        zero_point=registers.signed("OFM_ZERO_POINT"),
        rounding=registers.choice("OFM_PRECISION", "round"),
        low=max(bounds[0], int(limits.min)),
        high=min(bounds[1], int(limits.max)),
        table=_table(registers, memory, dtype),
    )


def _table(registers: Registers, memory: NpuMemory, dtype: np.dtype[Any]) -> Array | None:
    function = registers.field("ACTIVATION", "function")
    if function == 0:
        return None
    if not _FIRST_TABLE <= function <= _LAST_TABLE:
        raise MissingError(f"activation {function}", "must be none or a lookup table: others are not simulated")
    kind, entries = {1: (dtype.str, 256), 2: ("<i4", 512), 4: ("<i4", 256)}[dtype.itemsize]
    return memory.table(function - _FIRST_TABLE, kind, entries)
