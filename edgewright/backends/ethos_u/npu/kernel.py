"""Kernel window of convolutions and pools: size, stride, dilation, padding, and the input region it covers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.npu.featuremap import FeatureMap
from edgewright.backends.ethos_u.npu.memory import Budget, NpuMemory
from edgewright.backends.ethos_u.npu.registers import Registers
from edgewright.errors import FormatError

Array = np.ndarray[Any, Any]
Pair = tuple[int, int]  # (height, width)


@dataclass(frozen=True)
class Kernel:
    size: Pair
    stride: Pair
    dilation: Pair
    before: Pair  # padding above and to the left
    after: Pair  # padding below and to the right
    upscale: str
    part_kernel: bool

    @property
    def elements(self) -> int:
        return self.size[0] * self.size[1]

    @property
    def padded(self) -> bool:
        return any((*self.before, *self.after))

    def reach(self, ofm: Pair) -> Pair:
        """Input rows and columns the window covers, padding included."""
        steps = zip(ofm, self.stride, self.size, self.dilation, strict=True)
        height, width = ((n - 1) * stride + (size - 1) * dilation + 1 for n, stride, size, dilation in steps)
        return height, width

    def window(self, image: Array, ofm: Pair) -> Array:
        """A padded HWC input as a (rows, columns, kernel rows, kernel columns, channels) view."""
        (height, width), (step_y, step_x), (row, column, channel) = self.size, self.stride, image.strides
        strides = (row * step_y, column * step_x, row * self.dilation[0], column * self.dilation[1], channel)
        return np.ndarray((*ofm, height, width, image.shape[2]), image.dtype, image, 0, strides)


def kernel_from_registers(registers: Registers) -> Kernel:
    def step(axis: str) -> int:
        return 1 + registers.field("KERNEL_STRIDE", axis) + 2 * registers.field("KERNEL_STRIDE", f"{axis}_high")

    dilation = tuple(1 + registers.field("KERNEL_STRIDE", f"dilation_{axis}") for axis in "yx")
    extents = (registers.number("KERNEL_HEIGHT_M1"), registers.number("KERNEL_WIDTH_M1"))
    if any(extent % by for extent, by in zip(extents, dilation, strict=True)):
        raise FormatError("a kernel's extent must be a multiple of its dilation", value=extents, where="cmd_data")
    return Kernel(
        size=(extents[0] // dilation[0] + 1, extents[1] // dilation[1] + 1),
        stride=(step("y"), step("x")),
        dilation=(dilation[0], dilation[1]),
        before=(registers.number("IFM_PAD_TOP"), registers.number("IFM_PAD_LEFT")),
        after=(registers.number("IFM_PAD_BOTTOM"), registers.number("IFM_PAD_RIGHT")),
        upscale=registers.choice("IFM_UPSCALE", "mode"),
        part_kernel=bool(registers.field("KERNEL_STRIDE", "part_kernel")),
    )


def padded_input(ifm: FeatureMap, memory: NpuMemory, window: Kernel, ofm: Pair, depth: int, budget: Budget,
                 fill: int = 0) -> Array:  # fmt: skip
    """The input minus its zero point, upscaled and padded with ``fill``: exactly the region the window covers."""
    reach = window.reach(ofm)
    budget.check_elements((*reach, depth))
    height, width = (r - a - b for r, a, b in zip(reach, window.before, window.after, strict=True))
    image = np.full((*reach, depth), fill, np.int64 if ifm.dtype.itemsize == 4 else np.int32)
    if height < 1 or width < 1:  # the stripe covers only padding
        return image
    top, left = window.before
    inside = image[top : top + height, left : left + width]
    if window.upscale == "none":
        np.subtract(ifm.read(memory, height, width, depth), ifm.zero_point, out=inside, dtype=image.dtype)
        return image
    small: Array = ifm.read(memory, -(-height // 2), -(-width // 2), depth).astype(np.int64) - ifm.zero_point
    if window.upscale == "nearest":
        inside[...] = small.repeat(2, 0).repeat(2, 1)[:height, :width]
    else:
        inside[...] = 0
        inside[::2, ::2] = small
    return image
