"""From accumulators to stored elements: scale, round, add the zero point, clamp, look up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.npu.memory import Memory
from edgewright.backends.ethos_u.npu.registers import Registers, signed
from edgewright.errors import MissingError

Array = np.ndarray[Any, Any]
_FIRST_TABLE, _LAST_TABLE = 16, 23
_CLIPS = {"u8": np.uint8, "s8": np.int8, "s16": np.int16}


def rescale(values: Array, multiplier: Any, shift: Any, rounding: str) -> Array:
    """``values * multiplier / 2**shift``, rounded: ``natural`` halves up, ``truncate`` towards zero.

    ``tfl`` rounds twice as TensorFlow Lite does: at bit 31 of the product, and then halves away from zero.
    """
    multiplier, shift = np.asarray(multiplier, np.int64), np.asarray(shift, np.int64)
    if rounding == "truncate":
        sign = np.where(values < 0, -1, 1)
        return sign * _shifted(values * sign, multiplier, shift, np.int64(0))
    half = np.where(shift > 0, np.int64(1) << np.maximum(shift - 1, 0), 0)
    if rounding == "tfl":
        twice = np.where(shift > 31, 1 << 30, 0)
        half = half + np.where(values < 0, -twice, twice)
    return _shifted(values, multiplier, shift, half)


_LOW = 20  # bits of a value that is split


def _shifted(values: Array, multiplier: Array, shift: Array, half: Any) -> Array:
    """``(values * multiplier + half) >> shift``. Products of more than 63 bits are made of two halves.

    That is exact for sums of up to 50 bits, ten more than the accumulators have.
    """
    largest = max(abs(int(values.max(initial=0))), abs(int(values.min(initial=0))))
    if largest * int(multiplier.max(initial=0)) < 1 << 62:
        whole: Array = (values * multiplier + half) >> shift
        return whole
    high, low = values >> _LOW, values & ((1 << _LOW) - 1)
    joined = high * multiplier + ((low * multiplier + half) >> _LOW)
    far = np.clip(joined, -(1 << 42), 1 << 42) << np.maximum(
        _LOW - shift, 0
    )  # small shifts leave what is clamped later
    split: Array = np.where(shift >= _LOW, joined >> np.maximum(shift - _LOW, 0), far)
    return split


@dataclass(frozen=True)
class OutputStage:
    """What happens to every element on its way out."""

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
            values = looked_up(values, self.table, self.dtype)
        return values.astype(self.dtype)


def looked_up(values: Array, table: Array, dtype: np.dtype[Any]) -> Array:
    """Tables of 256 entries answer 8-bit values; those of 512 hold a base and a slope for every 128 values."""
    if table.size == 256:
        found: Array = table[(values + (0 if dtype == np.uint8 else 128)) & 0xFF]
        return found
    entry = table[((values >> 7) + 256) & 0x1FF].astype(np.int64)
    base, slope = ((entry & 0xFFFF) ^ 0x8000) - 0x8000, entry >> 16
    between: Array = base + ((slope * (values & 0x7F) + 64) >> 7)
    return between


def output_stage(registers: Registers, memory: Memory, dtype: np.dtype[Any]) -> OutputStage:
    """The output stage the registers describe. Results of 32 bits are clamped only where a narrower clip is forced."""
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


def _table(registers: Registers, memory: Memory, dtype: np.dtype[Any]) -> Array | None:
    function = registers.field("ACTIVATION", "function")
    if function == 0:
        return None
    if not _FIRST_TABLE <= function <= _LAST_TABLE:
        raise MissingError(f"activation {function}", "must be none or a lookup table: others are not simulated")
    kind, entries = {1: (dtype.str, 256), 2: ("<i4", 512), 4: ("<i4", 256)}[dtype.itemsize]
    return memory.table(function - _FIRST_TABLE, kind, entries)
