"""Memory layouts: strides in bytes, and for NHWC images a padded border.

A border stores the padding of a convolution or pool around the image itself, so that kernels need no bounds checks at
the edges. Adjacent rows share their borders: the right border of a row is the left border of the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgewright.engine.plan import ALIGN, Address, TensorView
from edgewright.ir.dtypes import DType
from edgewright.ir.graph import Value


@dataclass(frozen=True)
class Border:
    """Padding pixels around an image. They hold 0, or the zero point of quantized images."""

    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0

    def union(self, other: Border) -> Border:
        first, second = self.sides, other.sides
        return Border(*(max(a, b) for a, b in zip(first, second, strict=True)))

    @property
    def sides(self) -> tuple[int, int, int, int]:
        return self.top, self.bottom, self.left, self.right

    def __bool__(self) -> bool:
        return any(self.sides)


@dataclass(frozen=True)
class Layout:
    """Strides of a tensor whose first element is ``start`` bytes into an allocation of ``size`` bytes."""

    shape: tuple[int, ...]
    item: int
    strides: tuple[int, ...]
    start: int
    size: int
    border: Border = Border()

    @property
    def dense(self) -> bool:
        return self.strides == dense_strides(self.shape, self.item)

    @property
    def straight(self) -> bool:
        """Whether the innermost dimension is contiguous."""
        return not self.shape or self.shape[-1] == 1 or self.strides[-1] == self.item

    @property
    def pixel(self) -> int:
        return self.strides[-2]

    @property
    def row(self) -> int:
        return self.strides[-3]

    @property
    def image(self) -> int:
        return self.strides[-4]


def dense_strides(shape: Sequence[int], item: int) -> tuple[int, ...]:
    strides, step = [], item
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def dense_layout(shape: Sequence[int], item: int) -> Layout:
    size = int(np.prod(shape, dtype=np.int64)) * item
    return Layout(tuple(shape), item, dense_strides(shape, item), 0, size)


def padded_channels(channels: int) -> int:
    """Bytes per pixel of an int8 image: padded, because kernels store full vectors."""
    return 4 if channels <= 4 else -(-channels // 16) * 16


def image_layout(shape: Sequence[int], item: int, pixel: int, border: Border) -> Layout:
    """The NHWC layout of an image with a border; rows share their left and right borders."""
    batch, height, width, _ = shape
    side = max(border.left, border.right)
    row = (width + side) * pixel
    top = border.top * row + border.left * pixel
    top += -top % ALIGN  # keeps the first pixel vector-aligned
    below = border.bottom * row + side * pixel
    image = (border.top + height + border.bottom) * row
    size = top + (batch - 1) * image + height * row + below
    return Layout(tuple(shape), item, (image, row, pixel, item), top, size, border)


@dataclass(frozen=True)
class Storage:
    """Where a value is stored. Inside the engine int8 is stored as uint8 with an offset of 128, except ``raw`` values
    in the caller's arrays. ``inside``: a slice of another tensor's rows, without padding of its own to overwrite."""

    value: Value
    address: Address  # of the first element
    layout: Layout
    raw: bool = False
    inside: bool = False

    def at(self, offset: int = 0) -> Address:
        return Address(self.address.buffer, self.address.offset + offset, self.address.index)

    def view(self, dtype: DType) -> TensorView:
        return TensorView(self.address, dtype, self.layout.shape, self.layout.strides)
