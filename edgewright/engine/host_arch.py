"""Which family of processors this is, as LLVM calls it, and what only the system knows of it."""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache

_NAMES = {"amd64": "x86_64", "arm64": "aarch64"}
ARCHITECTURES = ("x86_64", "aarch64")  # with machine code
_OTHERS_OWN_X18 = ("darwin", "win32")  # a register of AArch64 that the system may change at any time


@cache
def machine_name() -> str:
    """The processor family."""
    name = platform.machine().lower()
    return _NAMES.get(name, name)


def is_aarch64() -> bool:
    return machine_name() == "aarch64"


def target_triple() -> str:
    """Objects are ELF everywhere: ``image.py`` reads no other; functions are called as this system does."""
    if is_aarch64():
        return "aarch64-unknown-linux-gnu" if sys.platform == "linux" else "aarch64-unknown-none-elf"
    return {"win32": "x86_64-pc-windows-msvc-elf", "linux": "x86_64-unknown-linux-gnu"}.get(
        sys.platform, "x86_64-unknown-unknown-elf"
    )


# Where Linux (its auxiliary vector: entry, bit) and macOS say that a processor has a feature.
_SHOWN = {"dotprod": ((16, 20), b"hw.optional.arm.FEAT_DotProd"), "i8mm": ((26, 13), b"hw.optional.arm.FEAT_I8MM")}


def arm_features() -> dict[str, bool]:
    """What AArch64 processors may have beyond the least: as the system says, for LLVM knows few of them."""
    found = {name: _shown(*where) for name, where in _SHOWN.items()}
    return {"neon": True, **found, "reserve-x18": sys.platform in _OTHERS_OWN_X18}


def _shown(entry: tuple[int, int], name: bytes) -> bool:
    if sys.platform == "linux":
        auxiliary = ctypes.CDLL(None).getauxval
        auxiliary.restype, auxiliary.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
        return bool(auxiliary(entry[0]) >> entry[1] & 1)
    if sys.platform == "darwin":
        value, size = ctypes.c_int(0), ctypes.c_size_t(4)
        found = ctypes.CDLL(None).sysctlbyname(name, ctypes.byref(value), ctypes.byref(size), None, 0)
        return found == 0 and value.value != 0
    return False
