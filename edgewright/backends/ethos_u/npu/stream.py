"""The container of a command stream: driver actions around the NPU's words, decoded and checked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.npu.commands import Command, find
from edgewright.engine.jit.cache import cache_key
from edgewright.errors import FormatError, VersionError

_COP2 = int.from_bytes(b"COP2", "little")
_FACTS = int.from_bytes(b"VEUM", "little")
_CONFIG, _COMMANDS, _READ, _DUMP, _NOTHING = 1, 2, 3, 4, 5
_FAMILY = {0: "u55", 1: "u65", 2: "u85"}
_MACS = {"u55": (5, 6, 7, 8), "u65": (8, 9), "u85": (7, 8, 9, 10, 11)}


@dataclass(frozen=True)
class Instruction:
    """One command of a stream. ``offset`` is its first byte within the file."""

    offset: int
    command: Command
    parameter: int
    payload: int = 0

    def field(self, name: str) -> int:
        return next(f for f in self.command.fields if f.name == name).of(self.parameter)


@dataclass(frozen=True)
class Program:
    """A checked command stream and the NPU it was made for (``"ethos-u55-128"``)."""

    accelerator: str
    instructions: tuple[Instruction, ...]
    # Weights that a run has unpacked: the next one finds them here
    unpacked: dict[Any, np.ndarray[Any, Any]] = field(default_factory=dict, compare=False, repr=False)
    digest: str = field(default="", compare=False, repr=False)  # of the file
    # What the last run was, and what was compiled of it
    kept: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)


def decode(data: bytes) -> Program:
    """The commands of a ``COP1`` or ``COP2`` file."""
    words = _words(data)
    accelerator, parts = _parts(words)
    family = accelerator.split("-")[1]
    made = tuple(i for start, end in parts for i in _instructions(words, start, end, family))
    return Program(accelerator, made, digest=cache_key(data))


def accelerator_of(data: bytes) -> str:
    """The NPU a file was made for, whether or not its commands are known here."""
    return _parts(_words(data))[0]


def _words(data: bytes) -> list[int]:
    if data[:4] not in (b"COP1", b"COP2"):
        raise FormatError("must begin with COP1 or COP2", value=bytes(data[:4]), where="cmd_data", offset=0)
    if len(data) % 4:
        raise FormatError("must be whole 32-bit words", value=f"{len(data)} bytes", where="cmd_data")
    words: list[int] = np.frombuffer(data, "<u4").tolist()
    return words


def _parts(words: list[int]) -> tuple[str, list[tuple[int, int]]]:
    """The NPU, and where its commands are: the first word of each part and the one behind it."""
    name, parts = "", list[tuple[int, int]]()
    for config, start, end in _records(words) if words[0] == _COP2 else _actions(words):
        if config:
            name = _accelerator(words, config, name)
        if not name:
            raise FormatError("must name its NPU before its commands", where="cmd_data", offset=4 * start)
        parts.append((start, end))
    if not name:
        raise FormatError("must name its NPU before its end", where="cmd_data", offset=4 * len(words))
    return name, parts


def _actions(words: list[int]) -> Iterator[tuple[int, int, int]]:
    """COP1: the driver's actions, one word each and what belongs to it."""
    at = 1
    while at < len(words):
        action = words[at] & 0xFF
        end = at + _length(words, at, action)
        if action == _CONFIG:
            yield at + 1, end, end
        if action == _COMMANDS:
            yield 0, at + 1, end
        at = end


def _records(words: list[int]) -> Iterator[tuple[int, int, int]]:
    """COP2: records of a kind, a length, facts about the NPU, and commands. Lengths are in bytes."""
    if len(words) < 4 or words[1] != 1:
        raise VersionError("COP2 must be of version 1", value=words[1:2], where="cmd_data", offset=4)
    last = len(words)
    if _within(4, last, words[2]) != 4 * (last - 4):
        raise FormatError(f"must hold the {words[2]} bytes it says", value=4 * (last - 4), where="cmd_data", offset=8)
    at = 4
    while at < last:
        _within(at, last, 12)
        kind, end = words[at], at + 2 + _within(at + 2, last, words[at + 1]) // 4
        facts = _within(at + 3, end, words[at + 2]) // 4
        if kind != 1 or facts < 5 or words[at + 3 : at + 5] != [_FACTS, 1]:
            raise FormatError("must be a record of commands", value=kind, where="cmd_data", offset=4 * at)
        yield at + 6, at + 3 + facts, end
        at = end


def _within(at: int, end: int, length: int) -> int:
    """``length``, if it is whole words and ``end`` is not passed by so many bytes from ``at`` on."""
    left = 4 * max(end - at, 0)
    if length % 4 or length > left:
        rule = f"a length must be whole words within the {left} bytes left"
        raise FormatError(rule, value=length, where="cmd_data", offset=4 * at)
    return length


def _length(words: list[int], at: int, action: int) -> int:
    """How many words a driver action takes, itself included."""
    lengths = {_CONFIG: 3, _COMMANDS: 1 + _word_count(words[at]), _READ: 1, _DUMP: 1, _NOTHING: 1}
    if action not in lengths:
        raise FormatError("must be a known driver action", value=action, where="cmd_data", offset=4 * at)
    if at + lengths[action] > len(words):
        left = len(words) - at
        rule = f"a driver action must lie within the {left} words left"
        raise FormatError(rule, value=lengths[action], where="cmd_data", offset=4 * at)
    return lengths[action]


def _word_count(tag: int) -> int:
    return (tag >> 16) | ((tag >> 8) & 0xFF) << 16


def _accelerator(words: list[int], at: int, before: str) -> str:
    config = words[at]
    family, log2_macs = _FAMILY.get(config >> 28), config & 0xF
    if family is None or log2_macs not in _MACS[family]:
        value = f"product {config >> 28}, 2^{log2_macs} MACs"
        raise VersionError("must be made for a known NPU", value=value, where="cmd_data", offset=4 * at)
    name = f"ethos-{family}-{1 << log2_macs}"
    if before not in ("", name):
        raise FormatError("must be made for one NPU", value=f"{before} and {name}", where="cmd_data", offset=4 * at)
    return name


def _instructions(words: list[int], at: int, end: int, family: str) -> list[Instruction]:
    made = []
    while at < end:
        made.append(_instruction(words, at, end, family))
        at += 2 if made[-1].command.payload else 1
    return made


def _instruction(words: list[int], at: int, end: int, family: str) -> Instruction:
    word = words[at]
    code, size, parameter = word & 0x3FF, (word >> 14) & 3, word >> 16
    command = find(family, code, size == 1) if size < 2 and not word & 0x3C00 else None
    if command is None:
        rule = f"must be a command of an ethos-{family}"
        raise FormatError(rule, value=f"{word:#010x}", where="cmd_data", offset=4 * at)
    if command.payload and at + 1 >= end:
        raise FormatError(f"{command.name} must have a payload", where="cmd_data", offset=4 * at)
    return Instruction(4 * at, command, parameter, words[at + 1] if command.payload else 0)
