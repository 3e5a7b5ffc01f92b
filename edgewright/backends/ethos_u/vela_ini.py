"""Reads a user's vela.ini. In-process Vela parses invalid numbers as zero, so numbers are checked here."""

from __future__ import annotations

import configparser
import math
import re
from collections.abc import Iterator
from functools import lru_cache

from edgewright.errors import FileAccessError, UsageError
from edgewright.hints import not_among

_MAX_BYTES = 1 << 20
_MEMORIES = ("Sram", "Dram", "OnChipFlash", "OffChipFlash")
_PORTS = ("Axi0", "Axi1")
_INTEGER = re.compile(r"\d{1,15}")
# Valid values by key: one of a set, a positive number, or a count.
_CHOICES = ((re.compile(r"axi\d_port"), _MEMORIES), (re.compile(r"\w+_mem_area"), _PORTS))
_POSITIVE = re.compile(r"core_clock|\w+_clock_scale")
_COUNTS = re.compile(r"\w+_(burst_length|latency|ports_used)|arena_cache_size")


def read_ini(path: str) -> str:
    """Read the text of an .ini file."""
    try:
        with open(path, "rb") as file:
            raw = file.read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            raise FileAccessError(path, f"must be at most {_MAX_BYTES} bytes")
        text = raw.decode()
        _parser(text)
    except OSError as error:
        remedy = "Give the path of a vela.ini."
        raise FileAccessError(path, f"cannot be read: {error.strerror}", remedy=remedy) from error
    except (UnicodeDecodeError, configparser.Error) as error:
        raise UsageError(path, f"must be an .ini file: {str(error).splitlines()[0]}") from error
    return text


@lru_cache(maxsize=8)
def _parser(text: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    return parser


def sections(text: str, kind: str) -> list[str]:
    """Names of all sections ``kind.name``."""
    return [name[len(kind) + 1 :] for name in _parser(text).sections() if name.startswith(f"{kind}.")]


def _ancestors(parser: configparser.ConfigParser, section: str) -> Iterator[str]:
    """A section and those it inherits from, each once."""
    seen: set[str] = set()
    while section and section not in seen and parser.has_section(section):
        seen.add(section)
        yield section
        section = parser.get(section, "inherit", fallback="")


def lookup(text: str, section: str, key: str) -> str | None:
    """Value of a key in a section or in those it inherits from."""
    parser = _parser(text)
    values = (parser.get(name, key) for name in _ancestors(parser, section) if parser.has_option(name, key))
    return next(values, None)


def check_section(path: str, text: str, section: str) -> None:
    """Raise unless a section and its ancestors hold values that Vela accepts."""
    parser = _parser(text)
    chain = list(_ancestors(parser, section))
    last = parser.get(chain[-1], "inherit", fallback="")
    if last:  # unknown section, or a cycle
        raise UsageError(f"{path}: [{chain[-1]}] inherit", "must name another section, without a loop", value=last)
    for name in chain:
        for key, value in parser.items(name):
            _check(f"{path}: [{name}] {key}", key, value)


def _check(subject: str, key: str, value: str) -> None:
    for pattern, choices in _CHOICES:
        if pattern.fullmatch(key) and value not in choices:
            raise not_among(subject, value, choices)
    if _POSITIVE.fullmatch(key) and not _number(value) > 0:
        raise UsageError(subject, "must be a number above zero", value=value)
    if _COUNTS.fullmatch(key) and not _INTEGER.fullmatch(value):
        raise UsageError(subject, "must be an integer", value=value)


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan
