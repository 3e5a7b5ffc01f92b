"""Memory traffic of a command stream: the bytes that each operation reads and writes, by memory region.

Every operand counts once, by the extents in its registers. The hardware may read feature maps and weights again for
every block of the result, and fetches whole bursts, so this is a lower bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from edgewright.backends.ethos_u.npu.disasm import UNARY, operation_text
from edgewright.backends.ethos_u.npu.kernel import kernel_from_registers
from edgewright.backends.ethos_u.npu.registers import Registers
from edgewright.backends.ethos_u.npu.stream import CommandStream, Instruction
from edgewright.errors import FormatError
from edgewright.ir.graph import Origin
from edgewright.ir.layer_names import layer_of
from edgewright.runtime.disassembly import PassTraffic

BASIS = "Bytes of operands, each counted once: a lower bound, as blocks may be read again."
_REGIONS = {0: "constants", 1: "scratch", 2: "fast scratch"}


def passes(stream: CommandStream) -> list[PassTraffic]:
    """The operations of a stream with their traffic, in order; synchronization is left out."""
    registers, result = Registers(), []
    for instruction in stream.instructions:
        if not instruction.command.is_operation:
            registers.set(instruction)
            continue
        if instruction.is_pass:
            text, traffic = operation_text(instruction, registers), dict(_traffic(instruction, registers))
            layer = layer_of(stream.origins.get(instruction.offset, Origin()))
            macs = _macs(instruction, registers)
            result.append(PassTraffic(text=text, traffic=traffic, layer=layer, macs=macs))
    return result


def _traffic(instruction: Instruction, registers: Registers) -> Counter[str]:
    found: Counter[str] = Counter()
    name = instruction.command.name
    if name == "DMA_START":
        length = registers.address("DMA0_LEN")
        for side in ("SRC", "DST"):
            found[_dma_region(registers, side)] += length
        return found
    _add(found, lambda: _feature_map(registers, "IFM", registers.count("IFM_DEPTH")))
    _add(found, lambda: _result(registers))
    if name == "ELEMENTWISE":
        _add(found, lambda: _second_operand(instruction, registers))
    if name in ("CONV", "DEPTHWISE"):
        for constants in ("WEIGHT", "SCALE"):
            _add(found, lambda c=constants: _constants(registers, c))  # type: ignore[misc]
    return found


def _macs(instruction: Instruction, registers: Registers) -> int:
    """Multiply-accumulates of a convolution."""
    name = instruction.command.name
    if name not in ("CONV", "DEPTHWISE"):
        return 0
    try:
        taps = kernel_from_registers(registers).elements * (registers.count("IFM_DEPTH") if name == "CONV" else 1)
        return taps * registers.count("OFM_HEIGHT") * registers.count("OFM_WIDTH") * registers.count("OFM_DEPTH")
    except FormatError:  # a register is not set
        return 0


def _add(found: Counter[str], count: Callable[[], tuple[str, int]]) -> None:
    """Count an operand, unless its registers are not set."""
    try:
        region, size = count()
    except FormatError:
        return
    if size:
        found[region] += size


def _region(number: int) -> str:
    return _REGIONS.get(number, f"region {number}")


def _feature_map(registers: Registers, name: str, depth: int) -> tuple[str, int]:
    pixels = registers.count(f"{name}_HEIGHT0") * registers.count(f"{name}_WIDTH0")
    return _stored(registers, name, pixels * depth)


def _result(registers: Registers) -> tuple[str, int]:
    elements = registers.count("OFM_HEIGHT") * registers.count("OFM_WIDTH") * registers.count("OFM_DEPTH")
    return _stored(registers, "OFM", elements)


def _stored(registers: Registers, name: str, elements: int) -> tuple[str, int]:
    precision = f"{name}_PRECISION"
    if registers.has_field(precision, "storage") and registers.choice(precision, "storage") == "chained":
        return "", 0
    return _region(registers.number(f"{name}_REGION")), elements * int(registers.choice(precision, "bits")) // 8


def _second_operand(instruction: Instruction, registers: Registers) -> tuple[str, int]:
    mode = instruction.command.fields[0]
    unary = mode.names.get(mode.of(instruction.parameter)) in UNARY
    if unary or registers.field("IFM2_BROADCAST", "scalar"):
        return "", 0
    depth = 1 if registers.field("IFM2_BROADCAST", "depth") else registers.count("OFM_DEPTH")
    return _feature_map(registers, "IFM2", depth)


def _constants(registers: Registers, name: str) -> tuple[str, int]:
    return _region(registers.number(f"{name}_REGION")), registers.number(f"{name}_LENGTH")


def _dma_region(registers: Registers, side: str) -> str:
    if registers.field(f"DMA0_{side}_REGION", "internal"):
        return "internal"
    return _region(registers.field(f"DMA0_{side}_REGION", "region"))
