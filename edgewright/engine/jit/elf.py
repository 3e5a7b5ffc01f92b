"""Object files to machine code in memory, without LLVM in the process: an image that runs wherever it is put.

Objects are ELF and refer to nothing but themselves, by distances: linking is laying their sections one after another
and filling in the distances. What was compiled before then needs no compiler at all, neither its memory nor the time to
load it.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from edgewright.errors import EdgewrightError

_HEAD = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_RELOCATABLE = 1
_SYMBOLS, _WITH_ADDENDS, _NO_BITS = 2, 4, 8  # kinds of sections
_WRITABLE, _LOADED = 1, 2  # flags of sections
_GLOBAL = 1
_UNWINDING = ".eh_frame"
_LINE = 64


class CodegenError(EdgewrightError):
    """LLVM refused what the engine wrote, or made what it cannot use: a defect of the engine."""

    stage = "engine"
    exit_code = 70


class CodeImage(NamedTuple):
    """Code and constants, and where functions begin in them."""

    code: bytes
    symbols: Mapping[str, int]


def link(objects: Iterable[bytes]) -> CodeImage:
    """All functions of the objects in one image."""
    code, symbols = bytearray(), {}
    for data in objects:
        try:
            own = _Object(data)
            code += bytes(-len(code) % _LINE)
            symbols.update(own.place(code))
        except (struct.error, IndexError, ValueError) as error:
            raise _defect(f"cannot be read: {error}") from error
    return CodeImage(bytes(code), symbols)


def _defect(rule: str) -> CodegenError:
    return CodegenError("object code", rule, remedy="Please report this.")


class _Section(NamedTuple):
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int

    @property
    def wanted(self) -> bool:
        return bool(self.flags & _LOADED) and self.size > 0 and self.name != _UNWINDING


class _Object:
    """An object file, read."""

    def __init__(self, data: bytes) -> None:
        ident, kind, machine, _, _, _, table, _, _, _, _, size, count, names = _HEAD.unpack_from(data)
        known = machine in _FILLERS and (kind, size) == (_RELOCATABLE, _SECTION.size)
        if ident[:4] != b"\x7fELF" or not known:
            raise _defect("must be an object of ELF for x86-64 or AArch64")
        self.data, self._filler = data, _FILLERS[machine]
        rows = [_SECTION.unpack_from(data, table + size * k) for k in range(count)]
        text = rows[names][4]
        self.sections = [
            _Section(self._text(text + r[0]), r[1], r[2], r[4], r[5], r[6], r[7], max(r[8], 1)) for r in rows
        ]

    def _text(self, start: int) -> str:
        return self.data[start : self.data.index(b"\0", start)].decode()

    def place(self, code: bytearray) -> dict[str, int]:
        """Add the sections to ``code`` and fill in distances; where functions begin."""
        places: dict[int, int] = {}
        for at, section in enumerate(self.sections):
            if not section.wanted:
                continue
            if section.flags & _WRITABLE or section.kind == _NO_BITS:
                raise _defect(f"must have no variables, as in {section.name}")
            code += bytes(-len(code) % section.align)
            places[at] = len(code)
            code += self.data[section.offset : section.offset + section.size]
        found: dict[str, int] = {}
        for section in self.sections:
            if section.kind == _WITH_ADDENDS and section.info in places:
                self._fill(code, section, places)
            elif section.kind == _SYMBOLS:
                found.update(self._functions(section, places))
        return found

    def _symbol(self, table: _Section, at: int) -> tuple[int, ...]:
        return _SYMBOL.unpack_from(self.data, table.offset + _SYMBOL.size * at)

    def _functions(self, table: _Section, places: Mapping[int, int]) -> Iterable[tuple[str, int]]:
        names = self.sections[table.link].offset
        for k in range(table.size // _SYMBOL.size):
            name, info, _, section, value, _ = self._symbol(table, k)
            if info >> 4 == _GLOBAL and section in places:
                yield self._text(names + name), places[section] + value

    def _fill(self, code: bytearray, relocations: _Section, places: Mapping[int, int]) -> None:
        table, base = self.sections[relocations.link], places[relocations.info]
        for k in range(relocations.size // _RELOCATION.size):
            offset, info, addend = _RELOCATION.unpack_from(self.data, relocations.offset + _RELOCATION.size * k)
            name, _, _, section, value, _ = self._symbol(table, info >> 32)
            if section not in places:
                wanted = self._text(self.sections[table.link].offset + name)
                raise _defect(f"must define all that it uses, as {wanted or self.sections[section].name}")
            self._filler(code, info & 0xFFFFFFFF, base + offset, places[section] + value + addend)


# x86-64: how a distance is stored. 2 and 4 are of 32 bits, to data and to functions; 24 is of 64.
_DISTANCES = {2: "<i", 4: "<i", 24: "<q"}


def _fill_x86(code: bytearray, kind: int, here: int, there: int) -> None:
    if kind not in _DISTANCES:
        raise _defect(f"must refer to itself by distances, not by relocation {kind}")
    struct.pack_into(_DISTANCES[kind], code, here, there - here)


# AArch64: distances in data; of calls, in words; of pages. The place in a page is in units of what is loaded.
_PLAIN = {260: "<q", 261: "<i"}
_CALLS = (282, 283)
_PAGES = (275, 276)
_IN_PAGE = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}
_PAGE = 12  # bits; images start with a page


def _fill_arm(code: bytearray, kind: int, here: int, there: int) -> None:
    if kind in _PLAIN:
        struct.pack_into(_PLAIN[kind], code, here, there - here)
        return
    (word,) = struct.unpack_from("<I", code, here)
    if kind in _CALLS:
        word |= _fitting(there - here >> 2, 26)
    elif kind in _PAGES:
        pages = _fitting((there >> _PAGE) - (here >> _PAGE), 21)
        word |= (pages & 3) << 29 | (pages >> 2) << 5
    elif kind in _IN_PAGE:
        word |= ((there & (1 << _PAGE) - 1) >> _IN_PAGE[kind]) << 10
    else:
        raise _defect(f"must refer to itself by distances, not by relocation {kind}")
    struct.pack_into("<I", code, here, word)


def _fitting(distance: int, bits: int) -> int:
    if not -(1 << bits - 1) <= distance < 1 << bits - 1:
        raise _defect(f"must be near what it refers to, in {bits} bits")
    return distance & (1 << bits) - 1


_FILLERS = {62: _fill_x86, 183: _fill_arm}  # by ELF's number of the processor


class Library:
    """An image in executable memory; functions by name. The code lives as long as this does."""

    def __init__(self, image: CodeImage) -> None:
        self._symbols = image.symbols
        self._memory = mmap.mmap(-1, max(len(image.code), 1))
        self._memory[: len(image.code)] = image.code
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        _make_executable(self._base, len(self._memory))

    def address(self, name: str) -> int:
        if name not in self._symbols:
            rule = "must be defined by a module of that name"
            raise CodegenError(f"kernel {name!r}", rule, remedy="Please report this.")
        return self._base + self._symbols[name]


def _make_executable(address: int, size: int) -> None:
    """From writable to executable: memory is never both.

    On AArch64 instructions have a cache that does not see what was written. Linux clears it for pages that become
    executable; others are told.
    """
    if sys.platform == "win32":
        before = ctypes.c_uint32()
        done = ctypes.windll.kernel32.VirtualProtect(
            ctypes.c_void_p(address), ctypes.c_size_t(size), 0x20, ctypes.byref(before)
        )
        failed: Any = not done
    else:
        how = ctypes.c_int(mmap.PROT_READ | mmap.PROT_EXEC)
        failed = ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), how)
        if sys.platform == "darwin":
            ctypes.CDLL(None).sys_icache_invalidate(ctypes.c_void_p(address), ctypes.c_size_t(size))
    if failed:
        remedy = "Set EDGEWRIGHT_ENGINE=reference, or allow this process to make memory executable."
        raise CodegenError("machine code", "must be allowed to run from memory of this process", remedy=remedy)
