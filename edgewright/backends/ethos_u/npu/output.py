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
    if _fits(values, multiplier):
        return _shifted(values * multiplier, shift, rounding)
    exact = values.astype(object) * multiplier.astype(object)
    return np.asarray(_shifted(exact, shift.astype(object), rounding) & ((1 << 64) - 1), np.uint64).view(np.int64)


def _fits(values: Array, multiplier: Array) -> bool:
    largest = max(abs(int(values.max(initial=0))), abs(int(values.min(initial=0))))
    return largest * int(multiplier.max(initial=0)) < 1 << 62


def _shifted(product: Array, shift: Array, rounding: str) -> Array:
    if rounding == "truncate":
        return np.where(product < 0, -(-product >> shift), product >> shift)
    half = (1 << shift) >> 1
    if rounding == "tfl":
        twice = np.where(shift > 31, 1 << 30, 0).astype(product.dtype)
        half = half + np.where(product < 0, -twice, twice)
    rounded: Array = (product + half) >> shift
    return rounded


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
