"""Weight and scale streams of a convolution.

A weight stream stores weights in the order in which the MAC array consumes them, not in tensor order: blocks of output
channels (the OFM block depth), blocks of input channels (the IFM block), 8x8 subkernels, and within those groups of
output and input channels that match the array's micro-block. Depth-first traversal visits all input channels of a tap
before the next tap; part-kernel traversal visits several taps per group of channels, for inputs with few channels.
Zeros pad each level to its group size. Vela's encoder, ``ethosu/vela/weight_compressor.py``, has the other direction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.npu import weight_stream
from edgewright.errors import FormatError

Array = np.ndarray[Any, Any]
_IFM_UBLOCK_DEPTH = 8  # input channels that the MAC array consumes at once
_SUBKERNEL = 8  # kernels are traversed in subkernels of 8x8
RECORD_BYTES = 10


@dataclass(frozen=True)
class StreamLayout:
    """Parameters that determine the order of a weight stream."""

    ofm_depth: int
    ifm_depth: int  # 1 for a depthwise convolution
    height: int
    width: int
    dilation: tuple[int, int]
    block_depth: int
    ifm_bits: int
    part_kernel: bool
    depthwise: bool
    ofm_ublock_depth: int  # output channels that the MAC array produces at once


def ofm_ublock_depth(accelerator: str) -> int:
    return 4 if accelerator == "ethos-u55-32" else 8


def unpack_weights(stream: bytes, layout: StreamLayout) -> Array:
    """Decode a stream to OHWI weights."""
    count = _stream_length(layout)
    values = weight_stream.decode(stream, count)
    if values.size < count:
        raise FormatError(f"a weight stream must hold {count} weights", value=values.size, where="weight_data")
    indices = _stream_order(layout)
    weights = np.zeros(layout.ofm_depth * layout.height * layout.width * layout.ifm_depth, np.int16)
    valid = indices >= 0
    weights[indices[valid]] = values[: indices.size][valid]
    return weights.reshape(layout.ofm_depth, layout.height, layout.width, layout.ifm_depth)


def unpack_scales(data: bytes, channels: int) -> tuple[Array, Array, Array]:
    """Bias (40 bits, signed), multiplier (32 bits) and shift (6 bits) of each output channel."""
    raw = np.frombuffer(data, np.uint8)[: channels * RECORD_BYTES].reshape(channels, RECORD_BYTES).astype(np.int64)
    byte_weights = np.int64(1) << (8 * np.arange(5, dtype=np.int64))
    bias = ((raw[:, :5] @ byte_weights) ^ (1 << 39)) - (1 << 39)
    return bias, raw[:, 5:9] @ byte_weights[:4], raw[:, 9] & 0x3F


def _stream_length(layout: StreamLayout) -> int:
    """Number of weights in a stream, padding included; computed before anything of that size is allocated."""

    def padded_depth(total: int, block: int, group: int) -> int:
        last = total % block
        return total // block * -(-block // group) * group + -(-last // group) * group

    outs = padded_depth(layout.ofm_depth, layout.block_depth, layout.ofm_ublock_depth)
    ins = 1 if layout.depthwise else -(-layout.ifm_depth // _ifm_block(layout)) * _ifm_block(layout)
    if layout.part_kernel and not layout.depthwise:
        ins = padded_depth(layout.ifm_depth, _ifm_block(layout), _IFM_UBLOCK_DEPTH)
    return outs * ins * sum(_kernel_taps(layout, *subkernel).size for subkernel in _subkernels(layout))


@lru_cache(maxsize=32)
def _stream_order(layout: StreamLayout) -> Array:
    """OHWI index of each weight of the stream, or -1 for padding."""
    blocks = [
        _block_order(layout, block, ifm_block, subkernel)
        for block in range(0, layout.ofm_depth, layout.block_depth)
        for ifm_block in range(0, layout.ifm_depth, _ifm_block(layout))
        for subkernel in _subkernels(layout)
    ]
    return np.concatenate(blocks)


def _ifm_block(layout: StreamLayout) -> int:
    return 16 if layout.part_kernel or layout.ifm_bits == 16 else 32


def _subkernels(layout: StreamLayout) -> Iterator[tuple[range, range]]:
    step_y, step_x = (_SUBKERNEL // dilation for dilation in layout.dilation)
    for y in range(0, layout.height, step_y):
        for x in range(0, layout.width, step_x):
            yield range(y, min(y + step_y, layout.height)), range(x, min(x + step_x, layout.width))


def _block_order(layout: StreamLayout, block: int, ifm_block: int, subkernel: tuple[range, range]) -> Array:
    """``_stream_order`` within one OFM block, one IFM block and one subkernel."""
    outs = _channel_groups(block, min(block + layout.block_depth, layout.ofm_depth), layout.ofm_ublock_depth)
    ins = np.zeros((1, 1), np.int64)
    if not layout.depthwise:
        # Depth-first order pads to a full IFM block; part-kernel order ends with the last group that has channels
        stop = ifm_block + _ifm_block(layout)
        ins = _channel_groups(ifm_block, min(stop, layout.ifm_depth) if layout.part_kernel else stop, _IFM_UBLOCK_DEPTH)
    taps = _kernel_taps(layout, *subkernel)
    # Axes: output group, kernel element, input group, output channel, input channel
    o, k, i = outs[:, None, None, :, None], taps[None, :, None, None, None], ins[None, None, :, None, :]
    index = (o * (layout.height * layout.width) + k) * layout.ifm_depth + i
    index = np.where((o < layout.ofm_depth) & (k >= 0) & (i < layout.ifm_depth), index, -1)
    return (index.transpose(2, 0, 1, 3, 4) if layout.part_kernel else index).reshape(-1)


def _channel_groups(start: int, stop: int, size: int) -> Array:
    count = -(-(stop - start) // size)
    return start + np.arange(count * size, dtype=np.int64).reshape(count, size)


def _kernel_taps(layout: StreamLayout, rows: range, columns: range) -> Array:
    """Kernel taps, padded with -1 to the multiple that the hardware reads."""
    taps = [y * layout.width + x for y in rows for x in columns]
    multiple = (2 if layout.ifm_bits == 16 else 4) if layout.part_kernel else 4 if layout.depthwise else 1
    return np.array(taps + [-1] * (-len(taps) % multiple), np.int64)
