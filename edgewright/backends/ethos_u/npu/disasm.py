"""Disassembler: prints a command stream, one line per operation or one per command."""

from __future__ import annotations

from collections.abc import Callable

from edgewright.backends.ethos_u.npu.registers import Registers, signed
from edgewright.backends.ethos_u.npu.stream import CommandStream, Instruction
from edgewright.errors import FormatError

UNARY = ("LRELU", "ABS", "CLZ", "NOT")  # on U85 too


def disassemble(program: CommandStream, *, full: bool = False) -> str:
    """List the operations with the registers each one reads; with ``full``, every command instead."""
    lines = [_title(program)]
    registers = Registers()
    for instruction in program.instructions:
        if not instruction.command.is_operation:
            registers.set(instruction)
        if full or instruction.command.is_operation:
            text = command_text(instruction) if full else operation_text(instruction, registers)
            lines.append(f"{instruction.offset:#08x}  {text}")
    return "\n".join(lines) + "\n"


def _title(program: CommandStream) -> str:
    operations = sum(i.command.is_operation for i in program.instructions)
    return f"{program.accelerator}: {len(program.instructions)} commands, {operations} of them operations"


def command_text(instruction: Instruction) -> str:
    """One command with its decoded parameter and payload."""
    command = instruction.command
    verb = "" if command.is_operation else "SET "
    return f"{verb}{command.name:<20} {_value(instruction)}".rstrip()


def _value(instruction: Instruction) -> str:
    command, parameter, payload = instruction.command, instruction.parameter, instruction.payload
    if command.payload == "address":
        number = signed(payload | (parameter & 0xFF) << 32, 40)
        return f"{number:#x} ({number})"
    if command.payload == "scale":
        return f"{payload} >> {parameter & 0x3F}" + (f" (mode {parameter >> 6:#x})" if parameter >> 6 else "")
    if command.payload:
        return str(payload)
    if command.fields:
        return " ".join(f"{f.name}={f.names.get(f.of(parameter), f.of(parameter))}" for f in command.fields)
    return str(signed(parameter, 16) if command.parameter_type == "signed" else parameter)


def operation_text(instruction: Instruction, registers: Registers) -> str:
    """One operation with the registers it reads."""
    name = instruction.command.name
    describe: dict[str, Callable[[], list[str]]] = {
        "CONV": lambda: [*_window(registers), *_feature_maps(registers), *_constants(registers)],
        "DEPTHWISE": lambda: [*_window(registers), *_feature_maps(registers), *_constants(registers)],
        "POOL": lambda: [*_mode(instruction), *_window(registers), *_feature_maps(registers)],
        "RESIZE": lambda: [*_mode(instruction), *_feature_maps(registers)],
        "ELEMENTWISE": lambda: [
            *_mode(instruction),
            *_feature_maps(registers, binary=_mode(instruction)[0] not in UNARY),
        ],
        "DMA_START": lambda: _dma(registers),
    }
    if name not in describe:
        return f"{name} {instruction.parameter}"
    try:
        return f"{name:<11} " + "  ".join(describe[name]())
    except FormatError as error:  # a register is unset: list the rest
        return f"{name:<11} ({error.rule})"


def _mode(instruction: Instruction) -> list[str]:
    row = instruction.command.fields[0]
    value = row.of(instruction.parameter)
    return [row.names.get(value, str(value))]


def _window(registers: Registers) -> list[str]:
    def step(axis: str) -> int:
        return 1 + registers.field("KERNEL_STRIDE", axis) + 2 * registers.field("KERNEL_STRIDE", f"{axis}_high")

    dilation = [1 + registers.field("KERNEL_STRIDE", f"dilation_{axis}") for axis in "yx"]
    extents = [registers.number(f"KERNEL_{side}_M1") for side in ("HEIGHT", "WIDTH")]
    parts = ["x".join(str(extent // by + 1) for extent, by in zip(extents, dilation, strict=True))]
    if (step("y"), step("x")) != (1, 1):
        parts.append(f"stride {step('y')}x{step('x')}")
    if dilation != [1, 1]:
        parts.append(f"dilation {dilation[0]}x{dilation[1]}")
    pads = [registers.number(f"IFM_PAD_{side}") for side in ("TOP", "LEFT", "BOTTOM", "RIGHT")]
    if any(pads):
        parts.append("pad " + ",".join(map(str, pads)))
    return parts


def _feature_maps(registers: Registers, binary: bool = False) -> list[str]:
    parts = [_feature_map(registers, "IFM", registers.count("IFM_DEPTH"))]
    if binary:
        parts.append(_operand2(registers))
    depth = registers.count("OFM_DEPTH")
    height, width = registers.count("OFM_HEIGHT"), registers.count("OFM_WIDTH")
    ofm = _feature_map(registers, "OFM", depth, f"{height}x{width}x{depth}")
    return [*parts, f"-> {ofm}", *_scaling(registers), *_activation(registers)]


def _feature_map(registers: Registers, name: str, depth: int, shape: str = "") -> str:
    precision = f"{name}_PRECISION"
    kind = registers.choice(precision, "signed") + registers.choice(precision, "bits")
    if registers.has_field(precision, "storage") and registers.choice(precision, "storage") == "chained":
        return f"{name.lower()} {kind} {shape} chained".replace("  ", " ")
    layout = registers.choice(precision, "layout")
    shape = shape or f"{registers.count(f'{name}_HEIGHT0')}x{registers.count(f'{name}_WIDTH0')}x{depth}"
    base = f"{registers.number(f'{name}_REGION')}:{registers.address(f'{name}_BASE0'):#x}"
    zero = registers.signed(f"{name}_ZERO_POINT")
    return f"{name.lower()} {kind} {shape} {layout} @{base}" + (f" zero {zero}" if zero else "")


def _operand2(registers: Registers) -> str:
    if registers.field("IFM2_BROADCAST", "scalar"):
        scalar = "IFM2_SCALAR" if registers.is_set("IFM2_SCALAR") else "OP_SCALAR"
        return f"ifm2 scalar {registers.signed(scalar)}"
    broadcast = [axis for axis in ("height", "width", "depth") if registers.field("IFM2_BROADCAST", axis)]
    text = _feature_map(registers, "IFM2", 1 if "depth" in broadcast else registers.count("OFM_DEPTH"))
    return text + (f" over {','.join(broadcast)}" if broadcast else "")


def _scaling(registers: Registers) -> list[str]:
    if not registers.field("OFM_PRECISION", "global_scale") or not registers.is_set("OFM_SCALE"):
        return []
    multiplier, shift = registers.scale("OFM_SCALE")
    return [] if (multiplier, shift) == (1, 0) else [f"* {multiplier} >> {shift}"]


def _activation(registers: Registers) -> list[str]:
    function = registers.field("ACTIVATION", "function")
    low, high = (registers.signed(f"ACTIVATION_{end}") for end in ("MIN", "MAX"))
    clamp = [] if registers.choice("ACTIVATION", "clip") == "none" else [f"clamp {low}..{high}"]
    return [*clamp, *([f"function {function}"] if function else [])]


def _constants(registers: Registers) -> list[str]:
    if not registers.is_set("WEIGHT_BASE"):
        return []
    return [
        f"{name.lower()}s {registers.number(f'{name}_LENGTH')} bytes "
        f"@{registers.number(f'{name}_REGION')}:{registers.address(f'{name}_BASE'):#x}"
        for name in ("WEIGHT", "SCALE")
    ]


def _dma(registers: Registers) -> list[str]:
    sides = []
    for side in ("SRC", "DST"):
        internal = registers.field(f"DMA0_{side}_REGION", "internal")
        region = "internal" if internal else registers.field(f"DMA0_{side}_REGION", "region")
        sides.append(f"{region}:{registers.address(f'DMA0_{side}'):#x}")
    return [f"{registers.address('DMA0_LEN')} bytes", " -> ".join(sides)]
