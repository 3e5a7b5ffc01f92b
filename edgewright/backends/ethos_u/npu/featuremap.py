"""Feature maps: how height, width and depth lie in memory, in up to four tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.npu.memory import Memory
from edgewright.backends.ethos_u.npu.registers import Registers
from edgewright.errors import FormatError

BRICK = 16  # channels that lie together in the NHCWB16 layout
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class FeatureMap:
    """One of IFM, IFM2 and OFM, as the registers describe it."""

    region: int
    bases: tuple[int, int, int, int]
    height0: int  # rows of tile 0; those beyond are in tile 2
    height1: int  # rows of tile 1; those beyond are in tile 3
    width0: int  # columns of tiles 0 and 2; those beyond are in tiles 1 and 3
    strides: tuple[int, int, int]  # bytes from row to row, column to column, brick to brick
    layout: str
    dtype: np.dtype[Any]
    zero_point: int

    def read(self, memory: Memory, height: int, width: int, depth: int) -> Array:
        """The elements as stored, an array of height, width, depth."""
        values = np.empty((height, width, depth), self.dtype)
        for base, rows, columns in self._tiles(height, width):
            tile = values[rows, columns]
            for part, channels in self._parts(memory.view, base, tile.shape):
                tile[:, :, channels] = part.reshape(*tile.shape[:2], -1)
        return values

    def write(self, memory: Memory, values: Array) -> None:
        for base, rows, columns in self._tiles(*values.shape[:2]):
            tile = values[rows, columns]
            for part, channels in self._parts(memory.writable, base, tile.shape):
                part[...] = tile[:, :, channels].reshape(part.shape)

    def reach(self, height: int, width: int, depth: int) -> list[tuple[int, int]]:
        """The first byte of each tile that is used, and the one behind its last."""
        row, column, brick = self.strides
        if self.layout == "NHWC":
            steps = [(depth, self.dtype.itemsize)]
        else:
            column = BRICK * self.dtype.itemsize
            steps = [(-(-depth // BRICK), brick), (min(depth, BRICK), self.dtype.itemsize)]
        made = []
        for base, rows, columns in self._tiles(height, width):
            counts = [(rows.stop - rows.start, row), (columns.stop - columns.start, column), *steps]
            ends = [(n - 1) * step for n, step in counts]
            made.append((base + sum(e for e in ends if e < 0), base + sum(e for e in ends if e > 0) + steps[-1][1]))
        return made

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

    def _parts(self, view: Any, base: int, shape: tuple[int, ...]) -> Iterator[tuple[Array, slice]]:
        """Views of one tile, and the channels each holds: in bricks, whole ones first and then what is left."""
        (height, width, depth), (row, column, brick), size = shape, self.strides, self.dtype.itemsize
        if self.layout == "NHWC":
            yield view(self.region, base, shape, (row, column, size), self.dtype), slice(None)
            return
        whole = depth // BRICK
        if whole:
            strides = (row, BRICK * size, brick, size)
            part = view(self.region, base, (height, width, whole, BRICK), strides, self.dtype)
            yield part, slice(0, whole * BRICK)
        if depth % BRICK:
            part_shape, strides3 = (height, width, depth % BRICK), (row, BRICK * size, size)
            yield view(self.region, base + whole * brick, part_shape, strides3, self.dtype), slice(whole * BRICK, depth)


def feature_map(registers: Registers, name: str) -> FeatureMap:
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
