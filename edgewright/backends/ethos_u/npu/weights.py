"""Convolution constants: the compressed weight stream in the order the hardware walks it, and the scale stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.npu import weight_stream
from edgewright.errors import FormatError

Array = np.ndarray[Any, Any]
_IFM_MICRO = 8  # input channels a MAC unit takes at once
_SUBKERNEL = 8  # kernels are walked in pieces of 8 by 8
RECORD_BYTES = 10


@dataclass(frozen=True)
class Shape:
    """What decides the order of a weight stream."""

    ofm_depth: int
    ifm_depth: int  # 1 for a depthwise convolution
    height: int
    width: int
    dilation: tuple[int, int]
    block_depth: int
    ifm_bits: int
    part_kernel: bool
    depthwise: bool
    ofm_micro: int  # output channels a MAC unit makes at once


def ofm_micro(accelerator: str) -> int:
    return 4 if accelerator == "ethos-u55-32" else 8


def unpack(stream: bytes, shape: Shape) -> Array:
    """The weights of a stream as (output channel, row, column, input channel)."""
    count = _count(shape)
    values = weight_stream.decode(stream, count)
    if values.size < count:
        raise FormatError(f"a weight stream must hold {count} weights", value=values.size, where="weight_data")
    order = _order(shape)
    weights = np.zeros(shape.ofm_depth * shape.height * shape.width * shape.ifm_depth, np.int16)
    real = order >= 0
    weights[order[real]] = values[: order.size][real]
    return weights.reshape(shape.ofm_depth, shape.height, shape.width, shape.ifm_depth)


def scales(data: bytes, channels: int) -> tuple[Array, Array, Array]:
    """Bias, multiplier and shift of each output channel: 40 signed, 32 and 6 bits."""
    raw = np.frombuffer(data, np.uint8)[: channels * RECORD_BYTES].reshape(channels, RECORD_BYTES).astype(np.int64)
    places = np.int64(1) << (8 * np.arange(5, dtype=np.int64))
    bias = ((raw[:, :5] @ places) ^ (1 << 39)) - (1 << 39)
    return bias, raw[:, 5:9] @ places[:4], raw[:, 9] & 0x3F


def _count(shape: Shape) -> int:
    """How many weights a stream holds, the zeros between included: known before anything of that size is made."""

    def whole(total: int, block: int, group: int) -> int:
        last = total % block
        return total // block * -(-block // group) * group + -(-last // group) * group

    outs = whole(shape.ofm_depth, shape.block_depth, shape.ofm_micro)
    ins = 1 if shape.depthwise else -(-shape.ifm_depth // _ifm_block(shape)) * _ifm_block(shape)
    if shape.part_kernel and not shape.depthwise:
        ins = whole(shape.ifm_depth, _ifm_block(shape), _IFM_MICRO)
    return outs * ins * sum(_kernel_places(shape, *piece).size for piece in _subkernels(shape))


@lru_cache(maxsize=32)
def _order(shape: Shape) -> Array:
    """For each weight of the stream its place in the tensor, or -1 where the hardware is fed a zero."""
    pieces = [
        _piece(shape, block, ifm_block, subkernel)
        for block in range(0, shape.ofm_depth, shape.block_depth)
        for ifm_block in range(0, shape.ifm_depth, _ifm_block(shape))
        for subkernel in _subkernels(shape)
    ]
    return np.concatenate(pieces)


def _ifm_block(shape: Shape) -> int:
    return 16 if shape.part_kernel or shape.ifm_bits == 16 else 32


def _subkernels(shape: Shape) -> Iterator[tuple[range, range]]:
    step_y, step_x = (_SUBKERNEL // dilation for dilation in shape.dilation)
    for y in range(0, shape.height, step_y):
        for x in range(0, shape.width, step_x):
            yield range(y, min(y + step_y, shape.height)), range(x, min(x + step_x, shape.width))


def _piece(shape: Shape, block: int, ifm_block: int, subkernel: tuple[range, range]) -> Array:
    """The order within one block of output channels, one of input channels, and one piece of the kernel."""
    outs = _groups(block, min(block + shape.block_depth, shape.ofm_depth), shape.ofm_micro)
    ins = np.zeros((1, 1), np.int64)
    if not shape.depthwise:
        # Blocks are whole when the depth is walked first; part-kernel order ends with the last group that has channels
        stop = ifm_block + _ifm_block(shape)
        ins = _groups(ifm_block, min(stop, shape.ifm_depth) if shape.part_kernel else stop, _IFM_MICRO)
    places = _kernel_places(shape, *subkernel)
    # Axes: output group, kernel element, input group, output channel, input channel
    o, k, i = outs[:, None, None, :, None], places[None, :, None, None, None], ins[None, None, :, None, :]
    place = (o * (shape.height * shape.width) + k) * shape.ifm_depth + i
    place = np.where((o < shape.ofm_depth) & (k >= 0) & (i < shape.ifm_depth), place, -1)
    return (place.transpose(2, 0, 1, 3, 4) if shape.part_kernel else place).reshape(-1)


def _groups(start: int, stop: int, size: int) -> Array:
    count = -(-(stop - start) // size)
    return start + np.arange(count * size, dtype=np.int64).reshape(count, size)


def _kernel_places(shape: Shape, rows: range, columns: range) -> Array:
    """The kernel's elements, and -1 up to the multiple the hardware reads them in."""
    places = [y * shape.width + x for y in rows for x in columns]
    multiple = (2 if shape.ifm_bits == 16 else 4) if shape.part_kernel else 4 if shape.depthwise else 1
    return np.array(places + [-1] * (-len(places) % multiple), np.int64)
