"""Memory of an Ethos-U delegate on a device: command stream, weights, lookup tables, scratch and fast scratch."""

from __future__ import annotations

import re
from collections.abc import Mapping

from edgewright.backends.ethos_u.blob import ALIGNMENT, read_blob
from edgewright.backends.ethos_u.npu.registers import Registers
from edgewright.backends.ethos_u.npu.stream import CommandStream, decode
from edgewright.backends.ethos_u.target import MEMORY_MODES
from edgewright.ir.graph import Origin
from edgewright.ir.layer_names import layer_of
from edgewright.runtime.device_memory import DeviceBlob, DeviceCommands, DeviceMemory

# ExecuTorch's handle has 9 words in its published sources; more are counted, as it is no part of an interface.
_HANDLE_WORDS = 32
_CONSTANTS, _FAST = 0, 2  # regions
_MODE = re.compile(rb"--memory-mode=(\S+)")
_LIMIT = re.compile(rb"--arena-cache-size=(\d{1,15})(?:\s|$)")
_PRODUCTS = ("CONV", "DEPTHWISE")
_ADDRESS_SPACE = 1 << 32


def device_memory(contents: DeviceBlob) -> DeviceMemory:
    """What a delegate takes of the device."""
    blob = read_blob(contents.blob, contents.named_data)
    stream = decode(bytes(blob.cmd_data), contents.layers)
    tables, final, command_bytes = _tables(stream)
    table_bytes = sum(size for _, size in tables)
    fast = _fast_scratch_limit(contents.specs) if _uses_fast_scratch(stream) else 0
    match = _MODE.search(contents.specs.get("compile_flags", b""))
    mode = match.group(1) if match else b""
    return DeviceMemory(
        target=stream.accelerator,
        parts={
            "command stream": len(blob.cmd_data),
            "weights and biases": len(blob.weight_data) - table_bytes,
            "lookup tables": table_bytes,
        },
        scratch=blob.scratch_size,
        alignment=ALIGNMENT,
        handle_words=_HANDLE_WORDS,
        fast_scratch=fast,
        fast_scratch_exact=not fast,
        final_tables=len(final),
        final_table_bytes=sum(size for _, size in final),
        final_command_bytes=command_bytes if final else 0,
        final_layers=tuple(dict.fromkeys(filter(None, final.values()))),
        constants_in_sram=mode == b"Sram_Only",
        scratch_in_dram=mode.startswith(b"Dedicated_Sram"),
    )


def device_commands(contents: DeviceBlob) -> DeviceCommands:
    """The command stream and weights of a delegate, and where in the scratch memory its inputs and outputs are."""
    blob = read_blob(contents.blob, contents.named_data)
    inputs, outputs = (tuple((t.offset, t.nbytes) for t in tensors) for tensors in (blob.inputs, blob.outputs))
    return DeviceCommands(bytes(blob.cmd_data), bytes(blob.weight_data), blob.scratch_size, inputs, outputs)


def _tables(stream: CommandStream) -> tuple[set[tuple[int, int]], dict[tuple[int, int], str], int]:
    """Lookup tables among the constants, as offsets and sizes: all, and those that are read only after the last
    convolution or matrix product, with their layers; and the bytes of commands after it."""
    registers, tables, last = Registers(), set[tuple[int, int]](), 0
    final: dict[tuple[int, int], str] = {}
    for instruction in stream.instructions:
        name = instruction.command.name
        if not instruction.command.is_operation:
            registers.set(instruction)
        elif name in _PRODUCTS:
            final.clear()
            last = instruction.offset
        elif name == "DMA_START" and _loads_table(registers):
            table = (registers.address("DMA0_SRC"), registers.address("DMA0_LEN"))
            if table not in tables:
                final[table] = layer_of(stream.origins.get(instruction.offset, Origin()))
            tables.add(table)
    return tables, final, stream.instructions[-1].offset - last if stream.instructions else 0


def _loads_table(registers: Registers) -> bool:
    """A transfer from the constants to the memory inside the NPU, which holds nothing but tables."""
    if not registers.field("DMA0_DST_REGION", "internal") or registers.field("DMA0_SRC_REGION", "internal"):
        return False
    return registers.field("DMA0_SRC_REGION", "region") == _CONSTANTS


def _uses_fast_scratch(stream: CommandStream) -> bool:
    for instruction in stream.instructions:
        fields = {field.name: field.of(instruction.parameter) for field in instruction.command.fields}
        if instruction.command.name.endswith("_REGION"):
            region = fields.get("region", instruction.parameter)
            if region == _FAST and not fields.get("internal"):
                return True
    return False


def _fast_scratch_limit(specs: Mapping[str, bytes]) -> int:
    """The most that Vela may have used: the limit in its flags, or that of the memory mode."""
    flags = specs.get("compile_flags", b"")
    limit, mode = _LIMIT.search(flags), _MODE.search(flags)
    if limit:
        return int(limit.group(1))
    return (MEMORY_MODES.get(mode.group(1).decode()) if mode else None) or _ADDRESS_SPACE
