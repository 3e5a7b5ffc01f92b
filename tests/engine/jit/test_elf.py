"""Objects become code that runs wherever it lies, without LLVM; what cannot be linked is refused."""

from __future__ import annotations

import ctypes
import struct

import pytest

from edgewright.engine.jit.build import build_objects, compile_all
from edgewright.engine.jit.elf import CodegenError, Library, link

TABLE = """@table = internal constant [4 x i64] [i64 3, i64 5, i64 7, i64 11], align 64
define internal i64 @square(i64 %x) noinline {
  %r = mul i64 %x, %x
  ret i64 %r
}
define i64 @NAME(i64 %i) {
  %p = getelementptr i64, ptr @table, i64 %i
  %v = load i64, ptr %p
  %r = call i64 @square(i64 %v)
  %s = add i64 %r, ADDED
  ret i64 %s
}
"""


def text(name: str, added: int) -> str:
    return TABLE.replace("NAME", name).replace("ADDED", str(added))


def call(library: Library, name: str, at: int) -> int:
    return int(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library.address(name))(at))


def test_functions_constants_and_calls() -> None:
    library = Library(link(build_objects([text("first", 0), text("second", 100)], "", "")))
    assert [call(library, "first", k) for k in range(4)] == [9, 25, 49, 121]
    assert [call(library, "second", k) for k in range(4)] == [109, 125, 149, 221]


def test_the_same_objects_make_the_same_image() -> None:
    objects = build_objects([text("first", 0), text("second", 1)], "", "")
    assert link(objects) == link(objects)


def test_an_unknown_function_is_named() -> None:
    with pytest.raises(CodegenError, match="'third': must be defined"):
        Library(link(build_objects([text("first", 0)], "", ""))).address("third")


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("declare void @elsewhere()\ndefine void @f() {\n  call void @elsewhere()\n  ret void\n}", "as elsewhere"),
        ("@v = global i64 3\ndefine i64 @f() {\n  %x = load i64, ptr @v\n  ret i64 %x\n}", "no variables"),
        ("@v = global i64 0\ndefine i64 @f() {\n  %x = load i64, ptr @v\n  ret i64 %x\n}", "no variables"),
    ],
)
def test_what_is_not_code_alone_is_refused(source: str, rule: str) -> None:
    with pytest.raises(CodegenError, match=rule):
        link(compile_all([source], "", ""))


@pytest.mark.parametrize("spoil", [lambda d: b"", lambda d: d[:40], lambda d: b"MZ" + d[2:], lambda d: d[:-100]])
def test_what_is_no_object_is_refused(spoil: object) -> None:
    (made,) = build_objects([text("first", 0)], "", "")
    with pytest.raises(CodegenError, match="object code"):
        link([spoil(made)])  # type: ignore[operator]


def test_absolute_addresses_are_refused() -> None:
    (made,) = build_objects([text("first", 0)], "", "")
    table, size, count = struct.unpack_from("<Q", made, 40)[0], 64, struct.unpack_from("<H", made, 60)[0]
    spoiled = bytearray(made)
    for k in range(count):
        kind, offset = struct.unpack_from("<I", made, table + size * k + 4)[0], table + size * k + 24
        if kind == 4:
            (start,) = struct.unpack_from("<Q", made, offset)
            struct.pack_into("<I", spoiled, start + 8, 1)
    with pytest.raises(CodegenError, match="distances, not by relocation 1"):
        link([bytes(spoiled)])
