"""Command stream container (COP1 and COP2): driver actions and NPU commands, decoded and validated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.npu.commands import Command, find_command
from edgewright.engine.jit.cache import cache_key
from edgewright.errors import FormatError, VersionError
from edgewright.formats.layer_table import DelegateLayers
from edgewright.ir.graph import Origin

_COP2 = int.from_bytes(b"COP2", "little")
_METADATA = int.from_bytes(b"VEUM", "little")
_CONFIG, _COMMANDS, _READ, _DUMP, _NOP = 1, 2, 3, 4, 5
_FAMILY = {0: "u55", 1: "u65", 2: "u85"}
_PASSES = ("CONV", "DEPTHWISE", "POOL", "RESIZE", "ELEMENTWISE", "DMA_START")
_MACS = {"u55": (5, 6, 7, 8), "u65": (8, 9), "u85": (7, 8, 9, 10, 11)}


@dataclass(frozen=True)
class Instruction:
    """One command of a stream. ``offset``: its byte offset in the file."""

    offset: int
    command: Command
    parameter: int
    payload: int = 0

    @property
    def is_pass(self) -> bool:
        """Whether it computes or copies something, rather than setting a register or waiting."""
        return self.command.is_operation and self.command.name in _PASSES

    def field(self, name: str) -> int:
        return next(f for f in self.command.fields if f.name == name).of(self.parameter)


@dataclass(frozen=True)
class CommandStream:
    """A validated command stream and the NPU it is compiled for (``"ethos-u55-128"``)."""

    accelerator: str
    instructions: tuple[Instruction, ...]
    # Unpacked weights, shared by runs
    unpacked: dict[Any, np.ndarray[Any, Any]] = field(default_factory=dict, compare=False, repr=False)
    digest: str = field(default="", compare=False, repr=False)  # hash of the file and of the names of layers
    # Where the passes come from in the user's model, by offset
    origins: Mapping[int, Origin] = field(default_factory=dict, compare=False, repr=False)
    # The compiled form of the last run
    cache: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)


def decode(data: bytes, layers: DelegateLayers | None = None) -> CommandStream:
    """Decode a ``COP1`` or ``COP2`` file. ``layers``: the origins of its passes."""
    words = _words(data)
    accelerator, segments = _segments(words)
    family = accelerator.split("-")[1]
    instructions = tuple(i for start, end in segments for i in _instructions(words, start, end, family))
    found = layers or DelegateLayers()
    offsets = [i.offset for i in instructions if i.is_pass]
    named = found.ordered and len(offsets) == len(found.origins)
    origins = dict(zip(offsets, found.origins, strict=True)) if named else {}
    digest = cache_key(data, found.key()) if origins else cache_key(data)
    return CommandStream(accelerator, instructions, digest=digest, origins=origins)


def accelerator_of(data: bytes) -> str:
    """The NPU a file is compiled for, whether or not its commands are supported here."""
    return _segments(_words(data))[0]


def without_commands(accelerator: str) -> bytes:
    """A file that names its NPU and has no commands.

    >>> accelerator_of(without_commands("ethos-u85-256"))
    'ethos-u85-256'
    """
    _, family, macs = accelerator.split("-")
    product = next(number for number, name in _FAMILY.items() if name == family)
    return b"COP1" + np.asarray([_CONFIG, product << 28 | int(macs).bit_length() - 1, 0], "<u4").tobytes()


def _words(data: bytes) -> list[int]:
    if data[:4] not in (b"COP1", b"COP2"):
        raise FormatError("must begin with COP1 or COP2", value=bytes(data[:4]), where="cmd_data", offset=0)
    if len(data) % 4:
        raise FormatError("must be a multiple of 4 bytes", value=f"{len(data)} bytes", where="cmd_data")
    words: list[int] = np.frombuffer(data, "<u4").tolist()
    return words


def _segments(words: list[int]) -> tuple[str, list[tuple[int, int]]]:
    """The NPU, and the (begin, end) word ranges of its commands."""
    name, segments = "", list[tuple[int, int]]()
    for config, start, end in _records(words) if words[0] == _COP2 else _actions(words):
        if config:
            name = _accelerator(words, config, name)
        if not name:
            raise FormatError("must name its NPU before its commands", where="cmd_data", offset=4 * start)
        segments.append((start, end))
    if not name:
        raise FormatError("must name its NPU before its end", where="cmd_data", offset=4 * len(words))
    return name, segments


def _actions(words: list[int]) -> Iterator[tuple[int, int, int]]:
    """COP1: driver actions, each a tag word and its operands. Yields (config, begin, end) word offsets."""
    at = 1
    while at < len(words):
        action = words[at] & 0xFF
        end = at + _action_length(words, at, action)
        if action == _CONFIG:
            yield at + 1, end, end
        if action == _COMMANDS:
            yield 0, at + 1, end
        at = end


def _records(words: list[int]) -> Iterator[tuple[int, int, int]]:
    """COP2: records of type, length, NPU metadata and commands; lengths in bytes. Yields like ``_actions``."""
    if len(words) < 4 or words[1] != 1:
        raise VersionError("COP2 must be of version 1", value=words[1:2], where="cmd_data", offset=4)
    last = len(words)
    if _check_length(4, last, words[2]) != 4 * (last - 4):
        raise FormatError(
            f"must hold the {words[2]} bytes its header declares", value=4 * (last - 4), where="cmd_data", offset=8
        )
    at = 4
    while at < last:
        _check_length(at, last, 12)
        kind, end = words[at], at + 2 + _check_length(at + 2, last, words[at + 1]) // 4
        metadata = _check_length(at + 3, end, words[at + 2]) // 4
        if kind != 1 or metadata < 5 or words[at + 3 : at + 5] != [_METADATA, 1]:
            raise FormatError("must be a record of commands", value=kind, where="cmd_data", offset=4 * at)
        yield at + 6, at + 3 + metadata, end
        at = end


def _check_length(at: int, end: int, length: int) -> int:
    """``length`` if it is a multiple of four bytes and fits between words ``at`` and ``end``."""
    left = 4 * max(end - at, 0)
    if length % 4 or length > left:
        rule = f"a length must be a multiple of 4 and at most the {left} bytes left"
        raise FormatError(rule, value=length, where="cmd_data", offset=4 * at)
    return length


def _action_length(words: list[int], at: int, action: int) -> int:
    """Length of a driver action in words, tag included."""
    lengths = {_CONFIG: 3, _COMMANDS: 1 + _word_count(words[at]), _READ: 1, _DUMP: 1, _NOP: 1}
    if action not in lengths:
        raise FormatError("must be a known driver action", value=action, where="cmd_data", offset=4 * at)
    if at + lengths[action] > len(words):
        left = len(words) - at
        rule = f"a driver action must fit the {left} words left"
        raise FormatError(rule, value=lengths[action], where="cmd_data", offset=4 * at)
    return lengths[action]


def _word_count(tag: int) -> int:
    return (tag >> 16) | ((tag >> 8) & 0xFF) << 16


def _accelerator(words: list[int], at: int, previous: str) -> str:
    config = words[at]
    family, log2_macs = _FAMILY.get(config >> 28), config & 0xF
    if family is None or log2_macs not in _MACS[family]:
        value = f"product {config >> 28}, 2^{log2_macs} MACs"
        raise VersionError("must be compiled for a known NPU", value=value, where="cmd_data", offset=4 * at)
    name = f"ethos-{family}-{1 << log2_macs}"
    if previous not in ("", name):
        raise FormatError(
            "must be compiled for one NPU", value=f"{previous} and {name}", where="cmd_data", offset=4 * at
        )
    return name


def _instructions(words: list[int], at: int, end: int, family: str) -> list[Instruction]:
    instructions = []
    while at < end:
        instructions.append(_instruction(words, at, end, family))
        at += 2 if instructions[-1].command.payload else 1
    return instructions


def _instruction(words: list[int], at: int, end: int, family: str) -> Instruction:
    word = words[at]
    code, size, parameter = word & 0x3FF, (word >> 14) & 3, word >> 16
    command = find_command(family, code, size == 1) if size < 2 and not word & 0x3C00 else None
    if command is None:
        rule = f"must be a command of an ethos-{family}"
        raise FormatError(rule, value=f"{word:#010x}", where="cmd_data", offset=4 * at)
    if command.payload and at + 1 >= end:
        raise FormatError(f"{command.name} must have a payload", where="cmd_data", offset=4 * at)
    return Instruction(4 * at, command, parameter, words[at + 1] if command.payload else 0)
