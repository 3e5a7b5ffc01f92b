"""Geometry of a convolution as matrix products, and what convolution lowerings of all element types share."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from edgewright.engine.codegen.builder import Function, Module
from edgewright.engine.graph.layout import Border, Layout, Storage
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels.depthwise import emit_depthwise
from edgewright.engine.kernels.gemm import Window
from edgewright.engine.kernels.tile_loops import PixelStrides, TileGrid
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.plan import KernelArg
from edgewright.ir.graph import Op, Value

# -------------------------------------------------------------------------------------------------------- conv geometry

# Geometry of a convolution as matrix products: output pixels, input window, and strides.
#
# A convolution runs as implicit GEMM: no im2col buffer is written. A tile of output pixels is multiplied with a panel
# of packed filters, and the ``Window`` tells the kernel how to step through a pixel's receptive field in place: loops
# over kernel rows (and columns), each followed by a contiguous run of ``depth`` elements. Padding is real memory, a
# border around the input image that the layout pass reserves, so kernels need no bounds checks. 1x1 convolutions of
# stride 1 degenerate to plain GEMM over all pixels of all images. Background: Anderson et al., "Low-memory GEMM-based
# convolution algorithms for deep neural networks" (2017); Dukhan, "The Indirect Convolution Algorithm" (2019).

_L2_RESIDENT = 256 << 10  # bytes of weights that may still be in L2 since their last use


@dataclass(frozen=True)
class ConvGeometry:
    """Sizes of a convolution of NHWC images with filters [output, height, width, input]."""

    images: int
    size: tuple[int, int]  # of the output
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    border: Border
    groups: int
    inputs: int  # channels per group
    outputs: int  # channels per group
    origin: tuple[int, int] = (0, 0)  # input pixel that the first output's first tap reads
    spacing: tuple[int, int] = (1, 1)  # between output pixels, in the output image
    first: tuple[int, int] = (0, 0)  # output pixel, in the output image

    @property
    def few_steps(self) -> bool:
        """Whether images and groups are few enough for a step each."""
        return self.images * self.groups <= 1024

    @property
    def pointwise(self) -> bool:
        return self.kernel == (1, 1) and self.origin == (0, 0) and self.spacing == (1, 1)

    @property
    def is_gemm(self) -> bool:
        """Whether each output pixel depends only on the input pixel at the same position."""
        return self.pointwise and self.stride == (1, 1) and not self.border

    @property
    def macs(self) -> int:
        return self.images * math.prod((*self.size, *self.kernel)) * self.groups * self.inputs * self.outputs


def conv_geometry(op: Op) -> ConvGeometry:
    """Geometry of conv2d and depthwise_conv2d."""
    x, weight, out = op.args["input"].bound, op.args["weight"].bound, op.outputs[0]
    assert out is not None
    depthwise = op.kind == "core.depthwise_conv2d"
    groups = op.args["groups"]
    kernel, stride, dilation = tuple(weight[1:3]), tuple(op.args["stride"]), tuple(op.args["dilation"])
    size = (int(out.bound[1]), int(out.bound[2]))
    top, _, left, _ = op.args["padding"]
    extent = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in zip(size, stride, dilation, kernel, strict=True)]
    border = Border(top, max(0, extent[0] - x[1] - top), left, max(0, extent[1] - x[2] - left))
    inputs, outputs = (1, weight[3] // groups) if depthwise else (weight[3], weight[0] // groups)
    return ConvGeometry(x[0], size, kernel, stride, dilation, border, groups, inputs, outputs, (-top, -left))


def linear_geometry(op: Op) -> ConvGeometry:
    """Geometry of a linear layer: one image of one row, with a pixel per row of the matrix."""
    weight = op.args["weight"].bound
    outputs, inputs = (weight[1], weight[0]) if op.args.get("transposed") else weight
    rows = math.prod(op.args["input"].bound[:-1])
    return ConvGeometry(1, (1, rows), (1, 1), (1, 1), (1, 1), Border(), 1, inputs, outputs)


@dataclass(frozen=True)
class GemmPart:
    """One GEMM of a convolution: a grid of output pixels, and start offsets in bytes for input, output and residual."""

    grid: TileGrid
    data: int
    out: int
    residual: int
    group: int


def input_window(conv: ConvGeometry, data: Storage, item: int) -> Window:
    """The window of a pixel, with ``depth`` in elements.

    The columns of a kernel row form one contiguous run if pixels have no padding between them. Integer kernels include
    padded channels in the run, against zero filters. Float kernels cannot: 0 times uninitialized padding may be NaN.
    """
    if conv.is_gemm:
        return Window((), conv.inputs, _pixel_stride(data))
    pixel, row = data.layout.pixel, data.layout.row
    kernel_rows = (conv.kernel[0], conv.dilation[0] * row)
    step = conv.stride[1] * pixel
    contiguous = item < 4 or pixel == conv.inputs * item
    if contiguous and conv.groups == 1 and conv.dilation[1] == 1 and conv.kernel[1] > 1:
        depth = (conv.kernel[1] - 1) * (pixel // item) + conv.inputs
        return Window((kernel_rows,), depth, step)
    return Window((kernel_rows, (conv.kernel[1], conv.dilation[1] * pixel)), conv.inputs, step)


def _pixel_stride(storage: Storage) -> int:
    return storage.layout.strides[-2] if len(storage.layout.strides) > 1 else 0


def gemm_parts(
    conv: ConvGeometry, largest: int, data: Storage, out: Storage, second: Storage | None
) -> Iterator[GemmPart]:
    """Split a convolution into GEMMs: one per image and group, or one for all pixels of a plain GEMM."""
    storages = [data, out, *([second] if second else [])]
    if conv.is_gemm and conv.groups == 1:  # ``size`` of a linear layer ignores borders between rows
        for block in row_blocks(*(h.layout for h in storages)):
            steps = [PixelStrides(row, pixel) for row, pixel in zip(block.row, block.pixel, strict=True)]
            residual = block.start[2] if second else 0
            yield GemmPart(
                TileGrid(block.rows, block.columns, largest, *steps), block.start[0], block.start[1], residual, 0
            )
        return
    (high, wide), (stride_h, stride_w) = conv.size, conv.stride
    input_steps = PixelStrides(stride_h * data.layout.row, stride_w * data.layout.pixel)
    output_steps = [
        PixelStrides(conv.spacing[0] * h.layout.row, conv.spacing[1] * h.layout.pixel) for h in storages[1:]
    ]
    corner = _pixel_offset(data, conv.origin)
    for n in range(conv.images):
        for g in range(conv.groups):
            grid = TileGrid(high, wide, largest, input_steps, *output_steps)
            channels = (conv.inputs, conv.outputs, conv.outputs)
            offsets = [n * h.layout.image + g * c * h.layout.item for h, c in zip(storages, channels, strict=False)]
            offsets[1:] = [s + _pixel_offset(h, conv.first) for s, h in zip(offsets[1:], storages[1:], strict=True)]
            yield GemmPart(grid, offsets[0] + corner, offsets[1], offsets[2] if second else 0, g)


def _pixel_offset(storage: Storage, pixel: tuple[int, int]) -> int:
    """Offset in bytes of a pixel from the first one."""
    return pixel[0] * storage.layout.row + pixel[1] * storage.layout.pixel


def has_uniform_pixels(storage: Storage) -> bool:
    """Whether one stride leads from pixel to pixel through all rows and images."""
    return has_uniform_rows(storage.layout)


def should_prefetch(grid: TileGrid, weight_bytes: int, panels_outer: bool) -> bool:
    """Whether int8 GEMMs should prefetch weight panels: they exceed the near caches and each is used long enough.

    Float GEMMs spend four times as long on a panel, and hide the latency anyway.
    """
    return panels_outer and weight_bytes > _L2_RESIDENT and grid.rows * grid.tiles > 2


@dataclass(frozen=True)
class RowBlock:
    """``rows`` x ``columns`` rows of elements: for each tensor the offset of the first and two strides, in bytes."""

    rows: int
    columns: int
    start: tuple[int, ...]
    row: tuple[int, ...]
    pixel: tuple[int, ...]


def row_blocks(*layouts: Layout) -> Iterator[RowBlock]:
    """Split the rows (last dimension) of tensors of one shape into blocks that two nested strided loops can traverse.

    Tensors with uniform row strides form one block. A border breaks the stride after each image row, so an image with a
    border becomes one block per image.
    """
    shape, strides = layouts[0].shape, list(zip(*(layout.strides for layout in layouts), strict=True))
    # (size, strides), outermost first. The innermost keeps its strides even for one row: kernels specialize on them.
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
    """Whether one stride leads from row to row through all outer dimensions."""
    strides, shape = layout.strides, layout.shape
    expected = strides[-2] if len(strides) > 1 else 0
    for n, step in zip(reversed(shape[:-1]), reversed(strides[:-1]), strict=True):
        if n > 1 and step != expected:
            return False
        expected *= n
    return True


def transposed_conv_phases(op: Op) -> list[tuple[ConvGeometry, list[int], list[int]]]:
    """Decompose a transposed convolution into plain convolutions of stride 1, one per phase (subpixel decomposition).

    Output positions with the same remainder modulo the stride use the same subset of taps, and neighbors among them
    read neighboring inputs. So each of the stride_y * stride_x phases is a small dense convolution whose outputs are
    written ``stride`` apart; nothing multiplies the zeros that upsampling the input would insert. Returns for each
    phase its geometry and the filter rows and columns it uses, in window order; -1 for a phase without taps (its output
    is the bias). Background: Shi et al., "Is the deconvolution layer the same as a convolutional layer?" (2016).
    """
    x, weight, out = op.args["input"].bound, op.args["weight"].bound, op.outputs[0]
    assert out is not None
    top, _, left, _ = op.args["padding"]
    axes = []
    for i, before in enumerate((top, left)):
        size, stride, taps = int(out.bound[1 + i]), int(op.args["stride"][i]), int(weight[1 + i])
        axes.append([_phase(size, stride, taps, before, p) for p in range(min(stride, size))])
    groups, phases = op.args["groups"], []
    for start_y, count_y, taps_y, at_y in axes[0]:
        for start_x, count_x, taps_x, at_x in axes[1]:
            last_reads = [at + len(taps) + count - 1 for at, taps, count in
                    ((at_y, taps_y, count_y), (at_x, taps_x, count_x))]  # fmt: skip
            border = Border(max(0, -at_y), max(0, last_reads[0] - x[1]), max(0, -at_x), max(0, last_reads[1] - x[2]))
            conv = ConvGeometry(
                x[0], (count_y, count_x), (len(taps_y), len(taps_x)), (1, 1), (1, 1), border, groups, weight[3],
                weight[0] // groups, (at_y, at_x), (int(op.args["stride"][0]), int(op.args["stride"][1])),
                (start_y, start_x),
            )  # fmt: skip
            phases.append((conv, taps_y, taps_x))
    return phases


def _phase(size: int, stride: int, taps: int, before: int, start: int) -> tuple[int, int, list[int], int]:
    """One phase along a dimension: first output, output count, taps in descending order, and input index of the first
    tap.
    """
    remainder = (start + before) % stride
    used_taps = list(range(remainder, taps, stride))[::-1] or [-1]
    return start, -(-(size - start) // stride), used_taps, (start + before) // stride - (len(used_taps) - 1)


# ------------------------------------------------------------------------------------------------------------ conv base

# Shared parts of convolution lowerings, independent of the element type.


class ConvLowering(Lowering):
    """A convolution whose input image may need a border of padding pixels."""

    def __init__(self, node: Node, conv: ConvGeometry) -> None:
        super().__init__(node)
        self.conv = conv

    def required_border(self) -> tuple[Value, Border] | None:
        return (self.node.op.args["input"], self.conv.border) if self.conv.border else None


class ConvTransposeLowering(Lowering):
    """conv_transpose2d as plain convolutions, one per phase: the outputs ``stride`` apart that use the same taps."""

    def __init__(self, node: Node, phases: Sequence[ConvLowering]) -> None:
        super().__init__(node)
        self.phases = phases

    def required_border(self) -> tuple[Value, Border] | None:
        border = Border()
        for phase in self.phases:
            border = border.union(phase.conv.border)
        return (self.node.op.args["input"], border) if border else None

    def emit(self, context: LoweringContext) -> None:
        for phase in self.phases:
            phase.emit(context)


def emit_depthwise_steps(
    context: LoweringContext, lowering: ConvLowering, kind: str, row: object, emit_row: Callable[[Module], Function],
    weights: KernelArg, nanoseconds: float,
) -> None:  # fmt: skip
    """Emit one step per image, parallel over output rows; ``emit_row`` emits the row function, ``row`` is its key."""
    conv, node = lowering.conv, lowering.node
    storages = [context.storage(v) for v in (node.op.args["input"], node.out, node.residual or node.out)]
    data, out, second = (h.layout for h in storages)
    steps = (data.row, conv.stride[0], out.row, second.row, conv.dilation[0])

    def build(module: Module, name: str) -> None:
        emit_depthwise(module, name, emit_row(module), conv.kernel[0], *steps)

    name = context.kernel(kind, (row, steps), build)
    corner = -conv.border.top * data.row - conv.border.left * data.pixel
    for n in range(conv.images):
        slots = [storages[0].at(corner + n * data.image), weights, storages[1].at(n * out.image),
                 storages[2].at(n * second.image)]  # fmt: skip
        context.step(name, slots, conv.size[0], nanoseconds / conv.images, conv.macs // conv.images)
