"""Memory that machine code runs from: written first, then executable, and never both (W^X)."""

from __future__ import annotations

import ctypes
import mmap
import sys
import weakref
from typing import Any

# Constants of Windows' memory functions.
_COMMIT_AND_RESERVE, _RELEASE = 0x3000, 0x8000
_READ_WRITE, _EXECUTE_READ = 0x04, 0x20


def map_code(code: bytes) -> tuple[int, Any]:
    """Copy code to executable pages: their address, and the object that they live as long as.

    Raises OSError if the system does not allow it.
    """
    if sys.platform == "win32":
        pages = WindowsPages(code, ctypes.WinDLL("kernel32", use_last_error=True))
        return pages.address, pages
    # Pages of this process alone: some systems forbid code in shared memory, which is Python's default.
    memory = mmap.mmap(-1, max(len(code), 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[: len(code)] = code
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    library = ctypes.CDLL(None, use_errno=True)
    protection = ctypes.c_int(mmap.PROT_READ | mmap.PROT_EXEC)
    if library.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(len(memory)), protection):
        raise OSError(ctypes.get_errno(), "mprotect")
    if sys.platform == "darwin":  # Linux synchronizes AArch64's instruction cache when pages become executable
        library.sys_icache_invalidate(ctypes.c_void_p(address), ctypes.c_size_t(len(memory)))
    return address, memory


class WindowsPages:
    """Pages of Windows' own allocator: a mapping of Python's mmap module cannot become executable there."""

    def __init__(self, code: bytes, kernel: Any) -> None:
        size = ctypes.c_size_t(max(len(code), 1))
        kernel.VirtualAlloc.restype = ctypes.c_void_p  # by default the upper half of an address is lost
        kernel.GetCurrentProcess.restype = ctypes.c_void_p
        found = kernel.VirtualAlloc(None, size, _COMMIT_AND_RESERVE, _READ_WRITE)
        if not found:
            raise OSError("VirtualAlloc")
        self.address: int = found
        start = ctypes.c_void_p(self.address)
        release = weakref.finalize(self, kernel.VirtualFree, start, ctypes.c_size_t(0), _RELEASE)
        release.atexit = False  # threads may still run the code when the process ends
        ctypes.memmove(self.address, code, len(code))
        before = ctypes.c_uint32()
        if not kernel.VirtualProtect(start, size, _EXECUTE_READ, ctypes.byref(before)):
            raise OSError("VirtualProtect")
        kernel.FlushInstructionCache(ctypes.c_void_p(kernel.GetCurrentProcess()), start, size)
