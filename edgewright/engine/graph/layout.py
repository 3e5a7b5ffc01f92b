"""How a tensor lies in memory: strides, and for images a border that windows may reach into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgewright.engine.plan import ALIGN, Address, TensorView
from edgewright.ir.dtypes import DType
from edgewright.ir.graph import Value


@dataclass(frozen=True)
class Border:
    """Pixels around an image. They hold what ``fill`` stands for: 0, or the zero point."""

    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0

    def joined(self, other: Border) -> Border:
        mine, theirs = self.sides, other.sides
        return Border(*(max(a, b) for a, b in zip(mine, theirs, strict=True)))

    @property
    def sides(self) -> tuple[int, int, int, int]:
        return self.top, self.bottom, self.left, self.right

    def __bool__(self) -> bool:
        return any(self.sides)


@dataclass(frozen=True)
class Layout:
    """``start`` is where the first element is, in an allocation of ``size`` bytes."""

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
        """The elements of a row lie side by side."""
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
    """Bytes of a pixel of quantized channels: kernels store whole vectors."""
    return 4 if channels <= 4 else -(-channels // 16) * 16


def image_layout(shape: Sequence[int], item: int, pixel: int, border: Border) -> Layout:
    """Channels-last. Rows lie one after the other: a row's right border is the next one's left."""
    batch, height, width, _ = shape
    between = max(border.left, border.right)
    row = (width + between) * pixel
    top = border.top * row + border.left * pixel
    top += -top % ALIGN  # pixels of whole vectors stay aligned
    below = border.bottom * row + between * pixel
    picture = (border.top + height + border.bottom) * row
    size = top + (batch - 1) * picture + height * row + below
    return Layout(tuple(shape), item, (picture, row, pixel, item), top, size, border)


@dataclass(frozen=True)
class Storage:
    """Where a value lives. Signed bytes inside the engine are stored 128 higher; ``raw`` ones are not. What lies
    ``inside`` the rows of another has that one's elements beside its own, where else there is room to spare."""

    value: Value
    address: Address  # of the first element
    layout: Layout
    raw: bool = False
    inside: bool = False

    def at(self, offset: int = 0) -> Address:
        return Address(self.address.buffer, self.address.offset + offset, self.address.index)

    def view(self, dtype: DType) -> TensorView:
        return TensorView(self.address, dtype, self.layout.shape, self.layout.strides)
