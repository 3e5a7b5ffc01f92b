"""The NPU's register file: each command sets one register, and it keeps its value until it is set again."""

from __future__ import annotations

from edgewright.backends.ethos_u.npu.stream import Instruction
from edgewright.errors import FormatError


def signed(value: int, bits: int) -> int:
    """The two's complement number in the low ``bits`` bits.

    >>> signed(0xFFF0, 16)
    -16
    """
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


class Registers:
    """Values by register name. Reading one that no command has set is an error: hardware promises nothing there."""

    def __init__(self) -> None:
        self._set: dict[str, Instruction] = {}

    def copy(self) -> Registers:
        made = Registers()
        made._set = dict(self._set)
        return made

    def set(self, instruction: Instruction) -> None:
        self._set[instruction.command.name] = instruction

    def known(self, name: str) -> bool:
        """Whether a command has set the register."""
        return name in self._set

    def _get(self, name: str) -> Instruction:
        try:
            return self._set[name]
        except KeyError:
            raise FormatError(f"{name} must be set before it is used", where="cmd_data") from None

    def number(self, name: str) -> int:
        """The parameter of a register, or the payload of one that has a payload and is not an address."""
        found = self._get(name)
        return found.payload if found.command.payload else found.parameter

    def count(self, name: str) -> int:
        """A size, which the registers hold less one."""
        return self.number(f"{name}_M1") + 1

    def signed(self, name: str) -> int:
        return signed(self.number(name), 16)

    def field(self, name: str, field: str) -> int:
        return self._get(name).field(field)

    def has_field(self, name: str, field: str) -> bool:
        return any(row.name == field for row in self._get(name).command.fields)

    def choice(self, name: str, field: str) -> str:
        """The name of a field's value; a value without a name is an error."""
        found = self._get(name)
        row = next(f for f in found.command.fields if f.name == field)
        value = row.of(found.parameter)
        if value not in row.names:
            rule = f"{name}'s {field} must be one of {', '.join(row.names.values())}"
            raise FormatError(rule, value=value, where="cmd_data", offset=found.offset)
        return row.names[value]

    def address(self, name: str) -> int:
        """An address or stride: 40 bits, the high 8 of them in the parameter; strides may be negative."""
        found = self._get(name)
        return signed(found.payload | (found.parameter & 0xFF) << 32, 40)

    def scale(self, name: str) -> tuple[int, int]:
        """An unsigned multiplier and the shift to the right that follows it."""
        found = self._get(name)
        return found.payload, found.parameter & 0x3F
