"""Feature maps in memory: NHWC and NHCWB16 layouts, in up to four tiles.

NHCWB16 stores channels in bricks of 16: the order in memory is height, brick, width, channel within the brick, so that
the 16 channels of a pixel's brick are contiguous. The last brick may be partly used.

A map is split into up to four rectangular tiles with base addresses of their own: 0 top left, 1 top right, 2 bottom
left, 3 bottom right. The left and the right column of tiles split their rows at different heights (``height0``,
``height1``). Compilers use tiles for rolling buffers, whose rows wrap around to the start of the buffer. See the
registers ``IFM_BASE0`` to ``IFM_BASE3``, ``IFM_HEIGHT0_M1`` and ``IFM_WIDTH0_M1`` in Arm's Ethos-U technical reference
manuals.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.npu.memory import NpuMemory
from edgewright.backends.ethos_u.npu.registers import Registers
from edgewright.errors import FormatError

BRICK = 16  # channels per brick of NHCWB16
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class FeatureMap:
    """One of IFM, IFM2 and OFM, as the registers describe it."""

    region: int
    bases: tuple[int, int, int, int]
    height0: int  # rows of tile 0; those beyond are in tile 2
    height1: int  # rows of tile 1; those beyond are in tile 3
    width0: int  # columns of tiles 0 and 2; those beyond are in tiles 1 and 3
    strides: tuple[int, int, int]  # in bytes: row, column, brick
    layout: str
    dtype: np.dtype[Any]
    zero_point: int

    def read(self, memory: NpuMemory, height: int, width: int, depth: int) -> Array:
        """The stored elements as a (height, width, depth) array."""
        values = np.empty((height, width, depth), self.dtype)
        for base, rows, columns in self._tiles(height, width):
            tile = values[rows, columns]
            for part, channels in self._brick_views(memory.view, base, tile.shape):
                tile[:, :, channels] = part.reshape(*tile.shape[:2], -1)
        return values

    def write(self, memory: NpuMemory, values: Array) -> None:
        for base, rows, columns in self._tiles(*values.shape[:2]):
            tile = values[rows, columns]
            for part, channels in self._brick_views(memory.writable, base, tile.shape):
                part[...] = tile[:, :, channels].reshape(part.shape)

    def byte_ranges(self, height: int, width: int, depth: int) -> list[tuple[int, int]]:
        """(begin, end) byte range of each tile in use."""
        row, column, brick = self.strides
        if self.layout == "NHWC":
            steps = [(depth, self.dtype.itemsize)]
        else:
            column = BRICK * self.dtype.itemsize
            steps = [(-(-depth // BRICK), brick), (min(depth, BRICK), self.dtype.itemsize)]
        ranges = []
        for base, rows, columns in self._tiles(height, width):
            counts = [(rows.stop - rows.start, row), (columns.stop - columns.start, column), *steps]
            ends = [(n - 1) * step for n, step in counts]
            ranges.append((base + sum(e for e in ends if e < 0), base + sum(e for e in ends if e > 0) + steps[-1][1]))
        return ranges

    def _tiles(self, height: int, width: int) -> Iterator[tuple[int, slice, slice]]:
        left, right = slice(0, min(self.width0, width)), slice(self.width0, width)
        tiles = (
            (slice(0, min(self.height0, height)), left),
            (slice(0, min(self.height1, height)), right),
            (slice(self.height0, height), left),
            (slice(self.height1, height), right),
        )
        for base, (rows, columns) in zip(self.bases, tiles, strict=True):
            if rows.start < rows.stop and columns.start < columns.stop:
                yield base, rows, columns

    def _brick_views(self, view: Any, base: int, shape: tuple[int, ...]) -> Iterator[tuple[Array, slice]]:
        """Views of one tile with the channels of each: the full bricks, then the partial one."""
        (height, width, depth), (row, column, brick), size = shape, self.strides, self.dtype.itemsize
        if self.layout == "NHWC":
            yield view(self.region, base, shape, (row, column, size), self.dtype), slice(None)
            return
        full_bricks = depth // BRICK
        if full_bricks:
            strides = (row, BRICK * size, brick, size)
            part = view(self.region, base, (height, width, full_bricks, BRICK), strides, self.dtype)
            yield part, slice(0, full_bricks * BRICK)
        if depth % BRICK:
            part_shape, strides3 = (height, width, depth % BRICK), (row, BRICK * size, size)
            yield (
                view(self.region, base + full_bricks * brick, part_shape, strides3, self.dtype),
                slice(full_bricks * BRICK, depth),
            )


def feature_map_from_registers(registers: Registers, name: str) -> FeatureMap:
    """The feature map whose registers begin with ``name``."""
    precision = f"{name}_PRECISION"
    sign, bits = registers.field(precision, "signed"), registers.choice(precision, "bits")
    row, column, brick = (registers.address(f"{name}_STRIDE_{axis}") for axis in "YXC")
    base0, base1, base2, base3 = (registers.address(f"{name}_BASE{tile}") for tile in range(4))
    return FeatureMap(
        region=registers.number(f"{name}_REGION"),
        bases=(base0, base1, base2, base3),
        height0=registers.count(f"{name}_HEIGHT0"),
        height1=registers.count(f"{name}_HEIGHT1"),
        width0=registers.count(f"{name}_WIDTH0"),
        strides=(row, column, brick),
        layout=registers.choice(precision, "layout"),
        dtype=element_type(sign, bits),
        zero_point=registers.signed(f"{name}_ZERO_POINT"),
    )


def element_type(sign: int, bits: str) -> np.dtype[Any]:
    if bits == "32" and not sign:
        raise FormatError("32-bit elements must be signed", where="cmd_data")
    return np.dtype(f"<{'i' if sign else 'u'}{int(bits) // 8}")
