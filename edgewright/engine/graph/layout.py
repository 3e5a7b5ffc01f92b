"""Memory layouts: strides in bytes, borders of NHWC images, and strided views without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgewright.engine.plan import ALIGN, Address, TensorView
from edgewright.ir.dtypes import DType
from edgewright.ir.graph import Op, Value

# --------------------------------------------------------------------------------------------------------------- layout

# Memory layouts: strides in bytes, and for NHWC images a padded border.
#
# A border stores the padding of a convolution or pool around the image itself, so that kernels need no bounds checks at
# the edges. Adjacent rows share their borders: the right border of a row is the left border of the next.


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


# ---------------------------------------------------------------------------------------------------------------- views

# Strided views: permute, slice, reshape and expand without a copy.

VIEW_KINDS = ("core.permute", "core.view", "core.slice", "core.clone", "core.expand", "core.bitcast")


def restride(
    shape: Sequence[int], strides: Sequence[int], new_shape: Sequence[int], item: int
) -> tuple[int, ...] | None:
    """The strides of a reshape without a copy, or None if it needs one.

    >>> restride((4, 6), (96, 8), (4, 2, 3), 8)
    (96, 24, 8)
    >>> restride((4, 6), (96, 8), (24,), 8) is None
    True
    """
    runs: list[tuple[int, int]] = []  # (count, stride) of maximal equidistant runs
    for n, step in zip(shape, strides, strict=True):
        if runs and n != 1 and runs[-1][1] == n * step:
            runs[-1] = runs[-1][0] * n, step
        elif n != 1:
            runs.append((n, step))
    new_strides: list[int] = []
    for n in reversed(new_shape):
        count, step = runs[-1] if runs else (1, item)
        if count % n:
            return None
        new_strides.append(step)
        if n > 1:
            runs[-1:] = [(count // n, step * n)] if count > n else []
    return tuple(reversed(new_strides))


def view_layout(op: Op, layout: Layout) -> tuple[Layout, int] | None:
    """The layout of a view of its operand, and the byte offset of its first element; None if it needs a copy."""
    out = op.outputs[0]
    assert out is not None
    shape, strides = tuple(int(n) for n in out.bound), layout.strides
    if op.kind == "core.permute":
        dims = [int(d) for d in op.args["dims"]]
        return _without_border(layout, shape, [strides[d] for d in dims]), 0
    if op.kind == "core.slice":
        offset = sum(int(a) * s for a, s in zip(op.args["start"], strides, strict=True))
        return _without_border(layout, shape, strides), offset
    if op.kind == "core.expand":
        return replace(layout, shape=shape, strides=broadcast_strides(layout, shape), border=Border()), 0
    new_strides = restride(layout.shape, strides, shape, layout.item)
    return None if new_strides is None else (_without_border(layout, shape, new_strides), 0)


def broadcast_strides(layout: Layout, shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor that is broadcast to ``shape``."""
    more = len(shape) - len(layout.shape)
    steps = zip((1,) * more + layout.shape, (0,) * more + layout.strides, shape, strict=True)
    return tuple(0 if have == 1 and n != 1 else step for have, step, n in steps)


def producer_layout(op: Op, layout: Layout) -> Layout | None:
    """The layout an operator's input must have for its result to have ``layout``; None if there is none."""
    shape = tuple(int(n) for n in op.args["self"].bound)
    if op.kind == "core.permute":
        dims = [int(d) for d in op.args["dims"]]
        return _without_border(layout, shape, [layout.strides[dims.index(d)] for d in range(len(shape))])
    if op.kind not in ("core.view", "core.clone", "core.bitcast"):
        return None
    new_strides = restride(layout.shape, layout.strides, shape, layout.item)
    return None if new_strides is None else _without_border(layout, shape, new_strides)


def view_storage(op: Op, storage: Storage) -> Storage:
    """The storage of a view."""
    out, view = op.outputs[0], view_layout(op, storage.layout)
    assert out is not None and view is not None
    inside = storage.inside or tuple(out.bound[-1:]) != tuple(storage.layout.shape[-1:])
    return Storage(out, storage.at(view[1]), view[0], storage.raw, inside)


def _without_border(layout: Layout, shape: Sequence[int], strides: Sequence[int]) -> Layout:
    """A layout without a border. Dimensions of size 1 get the stride of a dense layout around them."""
    new_strides, inner = list(strides), layout.item
    for d in range(len(shape) - 1, -1, -1):
        outer = next((strides[i] for i in range(d - 1, -1, -1) if shape[i] != 1), inner)
        new_strides[d] = outer if shape[d] == 1 else strides[d]
        inner = new_strides[d] * shape[d]
    return replace(layout, shape=tuple(shape), strides=tuple(new_strides), border=Border())
