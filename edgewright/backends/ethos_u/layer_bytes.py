"""Constants of a blob by the layer whose passes read or copy them."""

from __future__ import annotations

from collections.abc import Iterator

from edgewright.backends.ethos_u.blob import read_blob
from edgewright.backends.ethos_u.npu.registers import Registers
from edgewright.backends.ethos_u.npu.stream import Instruction, decode
from edgewright.errors import FormatError
from edgewright.ir.graph import Origin
from edgewright.ir.layer_names import layer_of
from edgewright.runtime.disassembly import DelegateContents
from edgewright.runtime.layer_bytes import LayerBytes

_CONSTANTS = 0  # region
_STREAMS = ("WEIGHT", "WEIGHT1", "WEIGHT2", "WEIGHT3", "SCALE", "SCALE1")


def layer_bytes(contents: DelegateContents) -> Iterator[LayerBytes]:
    """The commands, and every byte of the constants that passes refer to once, for the first pass that does."""
    blob = read_blob(contents.blob, contents.named_data)
    if blob.external:
        return
    yield LayerBytes("commands", len(blob.cmd_data))
    stream = decode(bytes(blob.cmd_data), contents.layers)
    counted = bytearray(len(blob.weight_data))
    registers, passes = Registers(), 0
    for instruction in stream.instructions:
        if not instruction.command.is_operation:
            registers.set(instruction)
        if not instruction.is_pass:
            continue
        layer = layer_of(stream.origins.get(instruction.offset, Origin()))
        for start, end in _ranges(instruction, registers):
            if not 0 <= start <= end <= len(counted):
                continue
            new = counted.count(0, start, end)
            counted[start:end] = b"\1" * (end - start)
            if new:
                yield LayerBytes(layer or f"pass {passes}", new)
        passes += 1


def _ranges(instruction: Instruction, registers: Registers) -> Iterator[tuple[int, int]]:
    """What a pass reads of the constants: weights and scales, or the source of a copy."""
    name = instruction.command.name
    if name == "DMA_START":
        if registers.field("DMA0_SRC_REGION", "internal") or registers.field("DMA0_SRC_REGION", "region") != _CONSTANTS:
            return
        start = registers.address("DMA0_SRC")
        yield start, start + registers.address("DMA0_LEN")
    elif name in ("CONV", "DEPTHWISE"):
        for stream in _STREAMS:
            try:
                region = registers.number(f"{stream.rstrip('123')}_REGION")
                start, size = registers.address(f"{stream}_BASE"), registers.number(f"{stream}_LENGTH")
            except FormatError:  # not set, or not of this NPU
                continue
            if region == _CONSTANTS:
                yield start, start + size
