"""Calls ``model_run`` of an AArch64 object file in this (Arm) Python, for each of the inputs in a file; writes the
outputs alike. With ``offset``, the file is a position-independent image, and the function is there."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

from edgewright.engine.jit.elf import CodeImage, Library, link


def main(
    model: str, arena_size: str, inputs: str, outputs: str, count: str, output_size: str, offset: str = ""
) -> None:  # fmt: skip
    code = Path(model).read_bytes()
    library = Library(CodeImage(code, {"model_run": int(offset)}) if offset else link([code]))
    run = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3)(library.address("model_run"))
    data, n = Path(inputs).read_bytes(), int(count)
    size, found = len(data) // n, b""
    memory = ctypes.create_string_buffer(b"\x5a" * (int(arena_size) + 64))
    arena = -(-ctypes.addressof(memory) // 64) * 64
    for k in range(n):
        x = ctypes.create_string_buffer(data[k * size : (k + 1) * size], size)
        y = ctypes.create_string_buffer(int(output_size))
        pointers = [(ctypes.c_void_p * 1)(ctypes.addressof(buffer)) for buffer in (x, y)]
        assert run(ctypes.addressof(pointers[0]), ctypes.addressof(pointers[1]), arena) == 0
        found += y.raw
    Path(outputs).write_bytes(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
