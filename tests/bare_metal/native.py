"""Runs ``model.o`` in this process, with every buffer between pages that may not be touched."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgewright.bare_metal.describe import Port
from edgewright.bare_metal.object_header import ObjectDescription

_PAGE = mmap.PAGESIZE
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_LIBC.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class GuardedMemory:
    """``size`` bytes that end (``at_end``) or start at a page that may not be touched, aligned to ``alignment``."""

    def __init__(self, size: int, alignment: int, at_end: bool) -> None:
        pages = -(-(size + alignment) // _PAGE) + 2
        base = _LIBC.mmap(None, pages * _PAGE, mmap.PROT_READ | mmap.PROT_WRITE, 0x22, -1, 0)  # private, anonymous
        last = base + (pages - 1) * _PAGE
        for page in (base, last):
            assert _LIBC.mprotect(page, _PAGE, 0) == 0
        self.address = (last - size) // alignment * alignment if at_end else base + _PAGE
        self.bytes = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(self.address))


class NativeModel:
    """``NAME.o`` as a shared library of this process."""

    def __init__(self, folder: Path, about: ObjectDescription, *sources: Path) -> None:
        library = folder / f"{about.name}.so"
        command = ["gcc", "-shared", "-fPIC", "-Wl,--no-undefined,-z,text", f"-I{folder}", "-o", library, *sources]
        subprocess.run([*command, folder / f"{about.name}.o"], check=True)
        self.library, self.about = ctypes.CDLL(str(library)), about
        self.function = self.library[f"{about.name}_run"]

    def call(self, inputs: Sequence[int | None], outputs: Sequence[int | None], arena: int) -> int:
        """Call it with addresses."""
        pointers = [(ctypes.c_void_p * max(1, len(side)))(*side) for side in (inputs, outputs)]
        return int(self.function(*pointers, ctypes.c_void_p(arena)))

    def run(self, inputs: Sequence[Any]) -> list[np.ndarray]:
        """The outputs, which must be the same bytes with garbage in the arena, and with buffers at either end of their
        pages, aligned for their elements only."""
        results = [self._run(inputs, at_end) for at_end in (True, False)]
        for first, second in zip(*results, strict=True):
            np.testing.assert_array_equal(first, second)
        return results[0]

    def _run(self, inputs: Sequence[np.ndarray], at_end: bool) -> list[np.ndarray]:
        about = self.about
        arena = GuardedMemory(max(1, about.object.arena_size), about.object.arena_alignment, at_end)
        arena.bytes[:] = np.random.default_rng(3).integers(0, 256, arena.bytes.size)
        sides = [[GuardedMemory(port.bytes, _itemsize(port.type), at_end) for port in ports]
                 for ports in (about.inputs, about.outputs)]  # fmt: skip
        for memory, x, port in zip(sides[0], inputs, about.inputs, strict=True):
            memory.bytes[:] = stored_bytes([x], [port])[0]
        addresses = [[memory.address for memory in side] for side in sides]
        for _ in range(2):
            assert self.call(*addresses, arena.address) == 0
        return [memory.bytes.copy() for memory in sides[1]]


def _itemsize(name: str) -> int:
    return 2 if name == "bfloat16" else np.dtype(name).itemsize


def stored_bytes(arrays: Sequence[Any], ports: Sequence[Port]) -> list[np.ndarray]:
    """Arrays as ``NativeModel.run`` returns outputs."""
    moved = (np.asarray(array).transpose(port.dim_order) for array, port in zip(arrays, ports, strict=True))
    return [np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8) for array in moved]
