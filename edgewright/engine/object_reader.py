"""Sizes and undefined symbols of the relocatable objects that LLVM writes: ELF, and Apple's Mach-O."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from edgewright.engine.jit.elf import CodegenError


@dataclass(frozen=True)
class ObjectContents:
    """Bytes of machine code and of constants, and the symbols that a linker must find elsewhere, as C names them."""

    code_size: int
    constants_size: int
    undefined: frozenset[str]


def read_object(data: bytes) -> ObjectContents:
    if data[:4] == b"\x7fELF":
        elf = _Elf(data)
        sizes = [sum(size for name, size in elf.section_sizes.items() if name.startswith(kind))
                 for kind in (".text", ".rodata")]  # fmt: skip
        return ObjectContents(sizes[0], sizes[1], frozenset(elf.undefined()))
    if data[:4] == struct.pack("<I", _MACH_O_64):
        return _read_mach_o(data)
    raise CodegenError("object file", "must be ELF or Mach-O", remedy="Please report this.")


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()


# ----------------------------------------------------------------------------------------------------------------- ELF


class _Elf:
    """An object of 32 or 64 bits (System V ABI, chapter 4)."""

    _FORMATS: Mapping[int, tuple[str, str, str]] = {  # header, section header, symbol
        1: ("<16sHHIIIIIHHHHHH", "<IIIIIIIIII", "<IIIBBH"),
        2: ("<16sHHIQQQIHHHHHH", "<IIQQQQIIQQ", "<IBBHQQ"),
    }

    def __init__(self, data: bytes) -> None:
        self.data = data
        header, section, self.symbol = self._FORMATS[data[4]]
        fields = struct.unpack_from(header, data)
        offset, size, count, names = fields[6], fields[11], fields[12], fields[13]
        self.rows = [struct.unpack_from(section, data, offset + size * k) for k in range(count)]
        base = self.rows[names][4]
        self.section_sizes = {_text(data, base + row[0]): row[5] for row in self.rows[1:]}
        # Offsets of each section's header, and of its contents.
        self.section_offsets = {
            _text(data, base + row[0]): (offset + size * k, row[4]) for k, row in enumerate(self.rows)
        }

    def undefined(self) -> Iterator[str]:
        step, section = struct.calcsize(self.symbol), 5 if self.symbol == "<IIIBBH" else 3
        for row in self.rows:
            if row[1] == 2:  # SHT_SYMTAB
                strings = self.rows[row[6]][4]
                for at in range(row[4] + step, row[4] + row[5], step):
                    fields = struct.unpack_from(self.symbol, self.data, at)
                    if fields[section] == 0 and fields[0]:
                        yield _text(self.data, strings + fields[0])


_VFP_ARGUMENTS, _NEITHER = 28, 3  # Tag_ABI_VFP_args, compatible with both


def mark_float_abi(data: bytes) -> bytes:
    """State that no function takes or returns floating point, so that the object links with either calling convention
    (Addenda to the ABI for the Arm Architecture, build attributes). The section is written again at the file's end."""
    about = _Elf(data)
    header, offset = about.section_offsets[".ARM.attributes"]
    attributes = bytearray(data[offset : offset + about.section_sizes[".ARM.attributes"]])
    attributes += bytes((_VFP_ARGUMENTS, _NEITHER))
    file_scope = attributes.index(b"\0", 5) + 1  # after the vendor's name: Tag_File and its length
    for at in (1, file_scope + 1):
        struct.pack_into("<I", attributes, at, struct.unpack_from("<I", attributes, at)[0] + 2)
    result = bytearray(data)
    struct.pack_into("<II", result, header + 16, len(data), len(attributes))  # sh_offset, sh_size
    return bytes(result + attributes)


# -------------------------------------------------------------------------------------------------------------- Mach-O

_MACH_O_64 = 0xFEEDFACF
_SEGMENT_64, _SYMTAB = 0x19, 0x2  # load commands
_STAB, _TYPE = 0xE0, 0x0E  # masks of n_type; a type of 0 is undefined


def _read_mach_o(data: bytes) -> ObjectContents:
    """An object of 64 bits, in Apple's format (<mach-o/loader.h>, <mach-o/nlist.h>)."""
    count, at = struct.unpack_from("<I", data, 16)[0], 32
    sizes, undefined = dict[str, int](), set[str]()
    for _ in range(count):
        command, length = struct.unpack_from("<II", data, at)
        if command == _SEGMENT_64:
            for k in range(struct.unpack_from("<I", data, at + 64)[0]):
                section, segment, _, size = struct.unpack_from("<16s16sQQ", data, at + 72 + 80 * k)
                name = ",".join(part.rstrip(b"\0").decode() for part in (segment, section))
                sizes[name] = sizes.get(name, 0) + size
        elif command == _SYMTAB:
            symbols, number, strings, _ = struct.unpack_from("<IIII", data, at + 8)
            for k in range(number):
                name_at, kind, _, _, _ = struct.unpack_from("<IBBHQ", data, symbols + 16 * k)
                if not kind & (_STAB | _TYPE):
                    undefined.add(_text(data, strings + name_at).removeprefix("_"))
        at += length
    code = sizes.get("__TEXT,__text", 0)
    constants = sum(size for name, size in sizes.items() if name.startswith(("__TEXT,__const", "__TEXT,__literal")))
    return ObjectContents(code, constants, frozenset(undefined))
