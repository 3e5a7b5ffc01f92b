"""A minimal ELF linker: relocatable objects to a position-independent image, without LLVM in the process.

LLVM compiles kernels with the PIC relocation model and without external symbols, so every relocation is relative to
the program counter. Linking therefore needs no load address: concatenate the allocated sections of all objects,
resolve each relocation as ``S + A - P`` (symbol, addend, place) in image offsets, and the result runs at any page
boundary. It can be cached on disk and mapped without loading a compiler. Objects with writable data, undefined symbols
or absolute relocations are rejected. See the System V ABI, chapter 4 (sections, symbols, relocation), and its
processor supplements for x86-64 and AArch64.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from edgewright.engine.jit.executable_memory import map_code
from edgewright.errors import EdgewrightError

_HEAD = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_RELOCATABLE = 1
_SYMTAB, _RELA, _NOBITS = 2, 4, 8  # sh_type
_WRITE, _ALLOC = 1, 2  # sh_flags
_GLOBAL = 1
_UNWIND_SECTION = ".eh_frame"
_ALIGNMENT = 64


class CodegenError(EdgewrightError):
    """LLVM rejected generated IR, or emitted an object the linker does not support: a defect of the engine."""

    stage = "engine"
    exit_code = 70


class CodeImage(NamedTuple):
    """Position-independent code and constants, and the offset of each function."""

    code: bytes
    symbols: Mapping[str, int]


def link(objects: Iterable[bytes]) -> CodeImage:
    """Link objects into one image."""
    code, symbols = bytearray(), {}
    for data in objects:
        try:
            object_file = _Object(data)
            code += bytes(-len(code) % _ALIGNMENT)
            symbols.update(object_file.link_into(code))
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
    def is_allocated(self) -> bool:
        return bool(self.flags & _ALLOC) and self.size > 0 and self.name != _UNWIND_SECTION


class _Object:
    """A parsed relocatable object file."""

    def __init__(self, data: bytes) -> None:
        ident, kind, machine, _, _, _, table, _, _, _, _, size, count, names = _HEAD.unpack_from(data)
        supported = machine in _RELOCATORS and (kind, size) == (_RELOCATABLE, _SECTION.size)
        if ident[:4] != b"\x7fELF" or not supported:
            raise _defect("must be an object of ELF for x86-64 or AArch64")
        self.data, self._relocator = data, _RELOCATORS[machine]
        rows = [_SECTION.unpack_from(data, table + size * k) for k in range(count)]
        text = rows[names][4]
        self.sections = [
            _Section(self._text(text + r[0]), r[1], r[2], r[4], r[5], r[6], r[7], max(r[8], 1)) for r in rows
        ]

    def _text(self, start: int) -> str:
        return self.data[start : self.data.index(b"\0", start)].decode()

    def link_into(self, code: bytearray) -> dict[str, int]:
        """Append the allocated sections to ``code`` and apply relocations; return the global symbols' offsets."""
        offsets: dict[int, int] = {}
        for at, section in enumerate(self.sections):
            if not section.is_allocated:
                continue
            if section.flags & _WRITE or section.kind == _NOBITS:
                raise _defect(f"must have no variables, as in {section.name}")
            code += bytes(-len(code) % section.align)
            offsets[at] = len(code)
            code += self.data[section.offset : section.offset + section.size]
        symbols: dict[str, int] = {}
        for section in self.sections:
            if section.kind == _RELA and section.info in offsets:
                self._relocate(code, section, offsets)
            elif section.kind == _SYMTAB:
                symbols.update(self._functions(section, offsets))
        return symbols

    def _symbol(self, table: _Section, at: int) -> tuple[int, ...]:
        return _SYMBOL.unpack_from(self.data, table.offset + _SYMBOL.size * at)

    def _functions(self, table: _Section, offsets: Mapping[int, int]) -> Iterable[tuple[str, int]]:
        names = self.sections[table.link].offset
        for k in range(table.size // _SYMBOL.size):
            name, info, _, section, value, _ = self._symbol(table, k)
            if info >> 4 == _GLOBAL and section in offsets:
                yield self._text(names + name), offsets[section] + value

    def _relocate(self, code: bytearray, relocations: _Section, offsets: Mapping[int, int]) -> None:
        table, base = self.sections[relocations.link], offsets[relocations.info]
        for k in range(relocations.size // _RELOCATION.size):
            offset, info, addend = _RELOCATION.unpack_from(self.data, relocations.offset + _RELOCATION.size * k)
            name, _, _, section, value, _ = self._symbol(table, info >> 32)
            if section not in offsets:
                symbol = self._text(self.sections[table.link].offset + name)
                raise _defect(f"must define all that it uses, as {symbol or self.sections[section].name}")
            self._relocator(code, info & 0xFFFFFFFF, base + offset, offsets[section] + value + addend)


# x86-64 relocations: R_X86_64_PC32 (2), R_X86_64_PLT32 (4) and R_X86_64_PC64 (24), with their field's format.
_X86_FORMATS = {2: "<i", 4: "<i", 24: "<q"}


def _relocate_x86(code: bytearray, kind: int, place: int, target: int) -> None:
    if kind not in _X86_FORMATS:
        raise _defect(f"must refer to itself by distances, not by relocation {kind}")
    struct.pack_into(_X86_FORMATS[kind], code, place, target - place)


# AArch64 relocations. PREL64 and PREL32 are plain differences. JUMP26 and CALL26 hold a distance in instructions. An
# address is formed by a pair: ADR_PREL_PG_HI21 holds the distance in 4 KiB pages, and ADD_ABS_LO12_NC or
# LDSTn_ABS_LO12_NC the offset within the page, scaled by the access size. Images start at a page boundary, so offsets
# within a page are known at link time.
_PREL = {260: "<q", 261: "<i"}
_BRANCH26 = (282, 283)
_PAGE_HI21 = (275, 276)
_PAGE_LO12 = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}
_PAGE = 12  # bits


def _relocate_aarch64(code: bytearray, kind: int, place: int, target: int) -> None:
    if kind in _PREL:
        struct.pack_into(_PREL[kind], code, place, target - place)
        return
    (instruction,) = struct.unpack_from("<I", code, place)
    if kind in _BRANCH26:
        instruction |= _signed_field(target - place >> 2, 26)
    elif kind in _PAGE_HI21:
        pages = _signed_field((target >> _PAGE) - (place >> _PAGE), 21)
        instruction |= (pages & 3) << 29 | (pages >> 2) << 5
    elif kind in _PAGE_LO12:
        instruction |= ((target & (1 << _PAGE) - 1) >> _PAGE_LO12[kind]) << 10
    else:
        raise _defect(f"must refer to itself by distances, not by relocation {kind}")
    struct.pack_into("<I", code, place, instruction)


def _signed_field(distance: int, bits: int) -> int:
    if not -(1 << bits - 1) <= distance < 1 << bits - 1:
        raise _defect(f"must be near what it refers to, in {bits} bits")
    return distance & (1 << bits) - 1


_RELOCATORS = {62: _relocate_x86, 183: _relocate_aarch64}  # by e_machine


class Library:
    """An image in executable memory; it is unmapped with this object."""

    def __init__(self, image: CodeImage) -> None:
        self._symbols = image.symbols
        try:
            self._base, self._owner = map_code(image.code)
        except OSError as error:
            remedy = "Set EDGEWRIGHT_ENGINE=reference, or allow this process to make memory executable."
            rule = "must be allowed to run from memory of this process"
            raise CodegenError("machine code", rule, remedy=remedy) from error

    def address(self, name: str) -> int:
        if name not in self._symbols:
            rule = "must be defined by a module of that name"
            raise CodegenError(f"kernel {name!r}", rule, remedy="Please report this.")
        return self._base + self._symbols[name]
