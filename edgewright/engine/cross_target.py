"""Processors that object files are written for, other than this machine's: triple, instruction set, tile parameters."""

from __future__ import annotations

from dataclasses import dataclass

from edgewright.engine.isa import ISA
from edgewright.hints import not_among


@dataclass(frozen=True)
class CrossTarget:
    """A processor under LLVM's names. ``summary``: what it must have for the code to run."""

    name: str
    triple: str
    isa: ISA
    summary: str

    @property
    def pointer_bytes(self) -> int:
        return 4 if self.isa.arch == "arm" else 8

    @property
    def microcontroller(self) -> bool:
        return self.isa.compact

    @property
    def apple(self) -> bool:
        """Whether the object file is Mach-O, instead of ELF."""
        return "-apple-" in self.triple


def _x86(name: str, level: str, lanes: int, registers: int) -> CrossTarget:
    features = "-prefer-256-bit" if lanes == 16 else ""
    isa = ISA(level, lanes, registers, False, False, name, features, arch="x86_64")
    summary = {8: "AVX2 and FMA", 16: "AVX-512 (F, BW, CD, DQ, VL)"}[lanes]
    return CrossTarget(name, "x86_64-unknown-linux-gnu", isa, summary)


_AARCH64_SYSTEMS = {
    "linux": "aarch64-unknown-linux-gnu", "android": "aarch64-unknown-linux-android",
    "apple": "arm64-apple-macosx11.0.0", "ios": "arm64-apple-ios14.0.0",
}  # fmt: skip
_APPLE_SYSTEMS = {"apple": ", macOS 11 or later (Mach-O)", "ios": ", iOS 14 or later (Mach-O)"}


def _aarch64(system: str, level: str) -> CrossTarget:
    features = {"neon": "+neon", "dotprod": "+neon,+dotprod", "i8mm": "+neon,+dotprod,+i8mm"}[level]
    isa = ISA(level, 4, 32, level != "neon", False, "generic", features, signed=level == "dotprod", arch="aarch64")
    triple = _AARCH64_SYSTEMS[system]
    name = f"aarch64-{system}" + ("" if level == "neon" else f"+{level}")
    summary = {"neon": "Armv8-A", "dotprod": "Armv8.2-A with dotprod", "i8mm": "Armv8.6-A"}[level]
    return CrossTarget(name, triple, isa, summary + _APPLE_SYSTEMS.get(system, ""))


def _cortex_m(name: str, architecture: str, features: str, summary: str, helium: bool = False) -> CrossTarget:
    # Vectors of four lanes in general-purpose or scalar floating-point registers, without Helium: 13 and 32 of them.
    isa = ISA(
        name, 4, 8 if helium else 6, False, False, name, features, arch="arm", compact=True, dsp=not helium,
        helium=helium,
    )  # fmt: skip
    return CrossTarget(name, f"thumb{architecture}-none-eabihf", isa, summary)


_TARGETS = (
    _x86("x86-64-v3", "avx2", 8, 16),
    _x86("x86-64-v4", "avx512", 16, 32),
    *(_aarch64(system, level) for system in _AARCH64_SYSTEMS for level in ("neon", "dotprod", "i8mm")),
    _cortex_m("cortex-m4", "v7em", "", "FPU (FPv4-SP) and DSP extension"),
    _cortex_m("cortex-m7", "v7em", "-fp64", "FPU (FPv5-SP)"),
    _cortex_m("cortex-m33", "v8m.main", "", "FPU (FPv5-SP) and DSP extension"),
    _cortex_m("cortex-m55", "v8.1m.main", "", "Helium (MVE) with floating point", helium=True),
    _cortex_m("cortex-m85", "v8.1m.main", "", "Helium (MVE) with floating point", helium=True),
)
CROSS_TARGETS = {target.name: target for target in _TARGETS}


def find_cross_target(name: str) -> CrossTarget:
    if name not in CROSS_TARGETS:
        raise not_among("target of an object file", name, CROSS_TARGETS)
    return CROSS_TARGETS[name]
