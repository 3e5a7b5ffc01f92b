"""Memory regions of an NPU with bounds-checked access: no address of a command stream is used unchecked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from edgewright.errors import FormatError, LimitError

INTERNAL = "internal memory"
_INTERNAL_BYTES = {"u55-32": 16, "u55-64": 16, "u55-128": 24, "u55-256": 48, "u65-256": 48}  # KiB
TABLE_BYTES = 2048  # lookup tables occupy the end of internal memory


class NpuMemory:
    """Regions by number, and the internal memory that only DMA and lookup tables reach."""

    def __init__(self, accelerator: str, regions: Mapping[int, np.ndarray[Any, Any]]) -> None:
        self._regions = dict(regions)
        self._internal = np.zeros(1024 * _INTERNAL_BYTES[accelerator.removeprefix("ethos-")], np.uint8)

    @property
    def regions(self) -> dict[int, np.ndarray[Any, Any]]:
        """Bytes of each region, by number."""
        return dict(self._regions)

    def view(self, region: int, at: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> Any:
        """A strided view at offset ``at``; raises if its first or last byte is outside the region."""
        buffer = self._region(region)
        if math.prod(shape) * np.dtype(dtype).itemsize > buffer.size:
            raise FormatError(f"must fit the {buffer.size} bytes of region {region}", value=shape, where="cmd_data")
        steps = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
        low = at + sum(s for s in steps if s < 0)
        high = at + sum(s for s in steps if s > 0) + np.dtype(dtype).itemsize
        if low < 0 or high > buffer.size:
            rule = f"addresses must be within the {buffer.size} bytes of region {region}"
            raise FormatError(rule, value=f"{low}..{high}", where="cmd_data")
        return np.ndarray(shape, dtype, buffer.data, at, strides)

    def bytes(self, region: int, at: int, length: int) -> bytes:
        """A copy of ``length`` bytes."""
        if length == 0:
            return b""
        return bytes(self.view(region, at, (length,), (1,), np.uint8))

    def copy(self, source: tuple[int, int], target: tuple[int | str, int], length: int) -> None:
        """Copy ``length`` bytes between (region, address) pairs; the target may be internal memory."""
        if length == 0:
            return
        source_bytes = self.view(*source, (length,), (1,), np.uint8).copy()
        region, at = target
        if isinstance(region, int):
            self.writable(region, at, (length,), (1,), np.uint8)[:] = source_bytes
            return
        if at < 0 or at + length > self._internal.size:
            rule = f"a copy must be within the {self._internal.size} bytes of the {INTERNAL}"
            raise FormatError(rule, value=f"{length} bytes at {at}", where="cmd_data")
        self._internal[at : at + length] = source_bytes

    def writable(self, region: int, at: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> Any:
        if not self._region(region).flags.writeable:
            raise FormatError("constants must not be written to", value=f"region {region}", where="cmd_data")
        return self.view(region, at, shape, strides, dtype)

    def table(self, slot: int, dtype: str, entries: int) -> np.ndarray[Any, Any]:
        """A lookup table: eight slots of 256 bytes, of which a large table spans several."""
        tables = self._internal[-TABLE_BYTES:]
        at, length = 256 * slot, entries * np.dtype(dtype).itemsize
        if at + length > TABLE_BYTES:
            raise FormatError(f"a table of {length} bytes must fit after its slot", value=slot, where="cmd_data")
        return tables[at : at + length].view(dtype)

    def table_range(self, table: np.ndarray[Any, Any]) -> tuple[int, int]:
        """Offset and length of a lookup table in internal memory."""
        start: int = table.__array_interface__["data"][0] - self._internal.__array_interface__["data"][0]
        return start, table.nbytes

    def _region(self, region: int) -> np.ndarray[Any, Any]:
        if region not in self._regions:
            regions = ", ".join(map(str, sorted(self._regions)))
            raise FormatError(f"a region must be one of {regions}", value=region, where="cmd_data")
        return self._regions[region]


class Budget:
    """Limit on the work of a stream: a short stream can request years of it, so ``spend`` checks before it starts."""

    ELEMENTS = 1 << 26  # of one feature map, padding included

    def __init__(self, steps: int) -> None:
        self._left = self._steps = steps

    def check_elements(self, *shapes: tuple[int, ...]) -> None:
        for shape in shapes:
            count = math.prod(shape)
            if count > self.ELEMENTS:
                raise LimitError("feature map", f"must have at most {self.ELEMENTS} elements", value=count)

    @property
    def used(self) -> int:
        return self._steps - self._left

    def spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            remedy = "Pass a larger `steps` if the file is one you trust."
            raise LimitError("command stream", f"must take at most {self._steps} steps", remedy=remedy)
