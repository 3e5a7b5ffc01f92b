"""Host architecture, target triple, and AArch64 features that only the operating system reports."""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache

_NAMES = {"amd64": "x86_64", "arm64": "aarch64"}
ARCHITECTURES = ("x86_64", "aarch64")  # that the engine runs on
ARCHITECTURES_32 = ("arm",)  # with 32-bit pointers: the engine writes object files for them
_X18_RESERVED = ("darwin", "win32")  # platforms whose ABI reserves x18


@cache
def machine_name() -> str:
    """The architecture under LLVM's name."""
    name = platform.machine().lower()
    return _NAMES.get(name, name)


def is_aarch64() -> bool:
    return machine_name() == "aarch64"


def target_triple() -> str:
    """The target triple: always ELF, which ``jit/elf.py`` links, with this platform's calling convention."""
    if is_aarch64():
        return "aarch64-unknown-linux-gnu" if sys.platform == "linux" else "aarch64-unknown-none-elf"
    return {"win32": "x86_64-pc-windows-msvc-elf", "linux": "x86_64-unknown-linux-gnu"}.get(
        sys.platform, "x86_64-unknown-unknown-elf"
    )


# Where Linux (auxiliary vector entry, bit) and macOS (sysctl) report a feature.
_FEATURE_SOURCES = {
    "dotprod": ((16, 20), b"hw.optional.arm.FEAT_DotProd"),
    "i8mm": ((26, 13), b"hw.optional.arm.FEAT_I8MM"),
}


def arm_features() -> dict[str, bool]:
    """Optional AArch64 features, as the operating system reports them; LLVM detects few of them."""
    features = {name: _has_feature(*source) for name, source in _FEATURE_SOURCES.items()}
    return {"neon": True, **features, "reserve-x18": sys.platform in _X18_RESERVED}


def _has_feature(entry: tuple[int, int], name: bytes) -> bool:
    if sys.platform == "linux":
        auxiliary = ctypes.CDLL(None).getauxval
        auxiliary.restype, auxiliary.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
        return bool(auxiliary(entry[0]) >> entry[1] & 1)
    if sys.platform == "darwin":
        value, size = ctypes.c_int(0), ctypes.c_size_t(4)
        found = ctypes.CDLL(None).sysctlbyname(name, ctypes.byref(value), ctypes.byref(size), None, 0)
        return found == 0 and value.value != 0
    return False
