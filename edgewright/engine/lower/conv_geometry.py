"""Convolutions and linear layers as products: which pixels, which window, which strides."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from edgewright.engine.graph.layout import Border, Layout, Storage
from edgewright.engine.kernels.gemm import Window
from edgewright.engine.kernels.tile_loops import PixelStrides, TileGrid
from edgewright.ir.graph import Op

_NEAR = 256 << 10  # bytes of weights that may still be where they were used last


@dataclass(frozen=True)
class ConvGeometry:
    """Sizes of a convolution of channels-last images by filters [output, height, width, input]."""

    images: int
    size: tuple[int, int]  # of the output
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    border: Border
    groups: int
    inputs: int  # channels of a group
    outputs: int  # channels of a group
    origin: tuple[int, int] = (0, 0)  # the input pixel of the first output's first tap
    spacing: tuple[int, int] = (1, 1)  # of output pixels in the image they are part of
    first: tuple[int, int] = (0, 0)  # of them

    @property
    def few(self) -> bool:
        """Few enough images and groups to have a step for each."""
        return self.images * self.groups <= 1024

    @property
    def pointwise(self) -> bool:
        return self.kernel == (1, 1) and self.origin == (0, 0) and self.spacing == (1, 1)

    @property
    def flat(self) -> bool:
        """Each output pixel is made of the input pixel at the same place."""
        return self.pointwise and self.stride == (1, 1) and not self.border

    @property
    def macs(self) -> int:
        return self.images * math.prod((*self.size, *self.kernel)) * self.groups * self.inputs * self.outputs


def conv_geometry(op: Op) -> ConvGeometry:
    x, weight, out = op.args["input"].bound, op.args["weight"].bound, op.outputs[0]
    assert out is not None
    depthwise = op.kind == "depthwise_conv2d"
    groups = op.args["groups"]
    kernel, stride, dilation = tuple(weight[1:3]), tuple(op.args["stride"]), tuple(op.args["dilation"])
    size = (int(out.bound[1]), int(out.bound[2]))
    top, _, left, _ = op.args["padding"]
    reach = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in zip(size, stride, dilation, kernel, strict=True)]
    border = Border(top, max(0, reach[0] - x[1] - top), left, max(0, reach[1] - x[2] - left))
    inputs, outputs = (1, weight[3] // groups) if depthwise else (weight[3], weight[0] // groups)
    return ConvGeometry(x[0], size, kernel, stride, dilation, border, groups, inputs, outputs, (-top, -left))


def linear_geometry(op: Op) -> ConvGeometry:
    """A product of rows: one image of one row, a pixel for each."""
    weight = op.args["weight"].bound
    outputs, inputs = (weight[1], weight[0]) if op.args.get("transposed") else weight
    rows = math.prod(op.args["input"].bound[:-1])
    return ConvGeometry(1, (1, rows), (1, 1), (1, 1), (1, 1), Border(), 1, inputs, outputs)


@dataclass(frozen=True)
class GemmPart:
    """One product: a grid of pixels and bytes to where it starts in data, output and second operand."""

    grid: TileGrid
    data: int
    out: int
    second: int
    group: int


def input_window(conv: ConvGeometry, data: Storage, item: int) -> Window:
    """``depth`` in elements. Columns of a kernel row are one run of elements; padded channels between them are part of
    it for integers, whose filters are padded with zeros. Floats cannot: 0 times what padding holds may be NaN."""
    if conv.flat:
        return Window((), conv.inputs, _pixel(data))
    pixel, row = data.layout.pixel, data.layout.row
    down = (conv.kernel[0], conv.dilation[0] * row)
    step = conv.stride[1] * pixel
    run = item < 4 or pixel == conv.inputs * item
    if run and conv.groups == 1 and conv.dilation[1] == 1 and conv.kernel[1] > 1:
        depth = (conv.kernel[1] - 1) * (pixel // item) + conv.inputs
        return Window((down,), depth, step)
    return Window((down, (conv.kernel[1], conv.dilation[1] * pixel)), conv.inputs, step)


def _pixel(home: Storage) -> int:
    return home.layout.strides[-2] if len(home.layout.strides) > 1 else 0


def gemm_parts(
    conv: ConvGeometry, largest: int, data: Storage, out: Storage, second: Storage | None
) -> Iterator[GemmPart]:
    """Products that together are the convolution: one for each image and group, or one for all rows of pixels."""
    homes = [data, out, *([second] if second else [])]
    if conv.flat and conv.groups == 1:  # a linear layer's ``size`` says nothing of rows that a border sets apart
        for block in row_blocks(*(h.layout for h in homes)):
            steps = [PixelStrides(row, pixel) for row, pixel in zip(block.row, block.pixel, strict=True)]
            beside = block.start[2] if second else 0
            yield GemmPart(
                TileGrid(block.rows, block.columns, largest, *steps), block.start[0], block.start[1], beside, 0
            )
        return
    (high, wide), (down, along) = conv.size, conv.stride
    into = PixelStrides(down * data.layout.row, along * data.layout.pixel)
    onto = [PixelStrides(conv.spacing[0] * h.layout.row, conv.spacing[1] * h.layout.pixel) for h in homes[1:]]
    corner = _at(data, conv.origin)
    for n in range(conv.images):
        for g in range(conv.groups):
            grid = TileGrid(high, wide, largest, into, *onto)
            skips = [n * h.layout.image + g * c * h.layout.item for h, c in zip(homes, _channels(conv), strict=False)]
            skips[1:] = [s + _at(h, conv.first) for s, h in zip(skips[1:], homes[1:], strict=True)]
            yield GemmPart(grid, skips[0] + corner, skips[1], skips[2] if second else 0, g)


def _at(home: Storage, pixel: tuple[int, int]) -> int:
    """Bytes from the first pixel to another."""
    return pixel[0] * home.layout.row + pixel[1] * home.layout.pixel


def _channels(conv: ConvGeometry) -> tuple[int, int, int]:
    return conv.inputs, conv.outputs, conv.outputs


def has_uniform_pixels(home: Storage) -> bool:
    """Pixels lie at equal distances, from the first of the first image to the last of the last."""
    return has_uniform_rows(home.layout)


def should_prefetch(grid: TileGrid, weight_bytes: int, panels_outside: bool) -> bool:
    """Whether panels of bytes had better be on their way before they are needed: no near cache holds them all, and
    each is used for long enough. (Products of reals take four times as long, and need not wait anyway.)"""
    return panels_outside and weight_bytes > _NEAR and grid.rows * grid.tiles > 2


@dataclass(frozen=True)
class RowBlock:
    """``rows`` x ``columns`` rows of elements: for each tensor the offset of the first and two strides, in bytes."""

    rows: int
    columns: int
    start: tuple[int, ...]
    row: tuple[int, ...]
    pixel: tuple[int, ...]


def row_blocks(*layouts: Layout) -> Iterator[RowBlock]:
    """The rows (last dimension) of tensors of one shape, in blocks that two nested loops with fixed strides can walk.

    One block where every tensor's rows are equally spaced. A border breaks the spacing after each image row, so an
    image with one becomes one block per image.
    """
    shape, strides = layouts[0].shape, list(zip(*(layout.strides for layout in layouts), strict=True))
    # (size, strides), outermost first. The innermost keeps its own strides, of one row too: kernels know them.
    axes = [(shape[-2], strides[-2])] if len(shape) > 1 else [(1, (0,) * len(layouts))]
    for n, steps in zip(reversed(shape[:-2]), reversed(strides[:-2]), strict=True):
        count, inner = axes[0]
        if n > 1 and steps == tuple(count * s for s in inner):
            axes[0] = n * count, inner
        elif n > 1:
            axes.insert(0, (n, steps))
    if len(axes) == 1:
        axes.insert(0, (1, (0,) * len(layouts)))
    (rows, row), (columns, pixel) = axes[-2:]
    for at in itertools.product(*(range(n) for n, _ in axes[:-2])):
        start = (sum(i * s[t] for i, (_, s) in zip(at, axes[:-2], strict=True)) for t in range(len(layouts)))
        yield RowBlock(rows, columns, tuple(start), row, pixel)


def has_uniform_rows(layout: Layout) -> bool:
    strides, shape = layout.strides, layout.shape
    expected = strides[-2] if len(strides) > 1 else 0
    for n, step in zip(reversed(shape[:-1]), reversed(strides[:-1]), strict=True):
        if n > 1 and step != expected:
            return False
        expected *= n
    return True


def transposed_conv_phases(op: Op) -> list[tuple[ConvGeometry, list[int], list[int]]]:
    """A transposed convolution as plain ones: outputs ``stride`` apart are made of the same taps.

    Each with the rows and columns of filters it uses, in the order of its window; -1 where there is none.
    """
    x, weight, out = op.args["input"].bound, op.args["weight"].bound, op.outputs[0]
    assert out is not None
    top, _, left, _ = op.args["padding"]
    axes = []
    for i, before in enumerate((top, left)):
        size, stride, taps = int(out.bound[1 + i]), int(op.args["stride"][i]), int(weight[1 + i])
        axes.append([_phase(size, stride, taps, before, p) for p in range(min(stride, size))])
    outer, made = op.args["groups"], []
    for start_y, count_y, taps_y, at_y in axes[0]:
        for start_x, count_x, taps_x, at_x in axes[1]:
            ends = [at + len(taps) + count - 1 for at, taps, count in
                    ((at_y, taps_y, count_y), (at_x, taps_x, count_x))]  # fmt: skip
            border = Border(max(0, -at_y), max(0, ends[0] - x[1]), max(0, -at_x), max(0, ends[1] - x[2]))
            conv = ConvGeometry(
                x[0], (count_y, count_x), (len(taps_y), len(taps_x)), (1, 1), (1, 1), border, outer, weight[3],
                weight[0] // outer, (at_y, at_x), (int(op.args["stride"][0]), int(op.args["stride"][1])),
                (start_y, start_x),
            )  # fmt: skip
            made.append((conv, taps_y, taps_x))
    return made


def _phase(size: int, stride: int, taps: int, before: int, start: int) -> tuple[int, int, list[int], int]:
    """One phase along a dimension: its first output, how many, its taps by falling number, where the first reads."""
    number = (start + before) % stride
    own = list(range(number, taps, stride))[::-1] or [-1]
    return start, -(-(size - start) // stride), own, (start + before) // stride - (len(own) - 1)
