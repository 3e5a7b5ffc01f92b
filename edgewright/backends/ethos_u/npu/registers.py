"""NPU register file: each command sets one register, which keeps its value until it is set again."""

from __future__ import annotations

from edgewright.backends.ethos_u.npu.stream import Instruction
from edgewright.errors import FormatError


def signed(value: int, bits: int) -> int:
    """Sign-extend the low ``bits`` bits.

    >>> signed(0xFFF0, 16)
    -16
    """
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


class Registers:
    """Register values by name. Reading a register that no command has set is an error: hardware leaves it undefined."""

    def __init__(self) -> None:
        self._set: dict[str, Instruction] = {}

    def copy(self) -> Registers:
        clone = Registers()
        clone._set = dict(self._set)
        return clone

    def set(self, instruction: Instruction) -> None:
        self._set[instruction.command.name] = instruction

    def is_set(self, name: str) -> bool:
        """Whether a command has set the register."""
        return name in self._set

    def _get(self, name: str) -> Instruction:
        try:
            return self._set[name]
        except KeyError:
            raise FormatError(f"{name} must be set before it is used", where="cmd_data") from None

    def number(self, name: str) -> int:
        """The parameter of a register, or the payload of one that has a payload and is not an address."""
        setting = self._get(name)
        return setting.payload if setting.command.payload else setting.parameter

    def count(self, name: str) -> int:
        """A size; registers store sizes minus one."""
        return self.number(f"{name}_M1") + 1

    def signed(self, name: str) -> int:
        return signed(self.number(name), 16)

    def field(self, name: str, field: str) -> int:
        return self._get(name).field(field)

    def has_field(self, name: str, field: str) -> bool:
        return any(row.name == field for row in self._get(name).command.fields)

    def choice(self, name: str, field: str) -> str:
        """The name of a field's value; an unnamed value is an error."""
        setting = self._get(name)
        row = next(f for f in setting.command.fields if f.name == field)
        value = row.of(setting.parameter)
        if value not in row.names:
            rule = f"{name}'s {field} must be one of {', '.join(row.names.values())}"
            raise FormatError(rule, value=value, where="cmd_data", offset=setting.offset)
        return row.names[value]

    def address(self, name: str) -> int:
        """A 40-bit signed address or stride, with the high 8 bits in the parameter."""
        setting = self._get(name)
        return signed(setting.payload | (setting.parameter & 0xFF) << 32, 40)

    def scale(self, name: str) -> tuple[int, int]:
        """An unsigned multiplier and the right shift that follows it."""
        setting = self._get(name)
        return setting.payload, setting.parameter & 0x3F
