"""What the machine can do, as far as generated code depends on it.

One description serves every x86 with AVX2 or more, and AArch64: the vector width is a number. ``EDGEWRIGHT_CPU``
(``avx2``, ``avxvnni`` or ``avx512``; ``neon``, ``dotprod`` or ``i8mm``) asks for a lower one than the machine has.
Other architectures plug in here: a new ``ISA`` and the few functions of ``vector.py`` that name an instruction.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from functools import cache

from edgewright.engine.host_arch import arm_features, is_aarch64
from edgewright.engine.jit.build import FINGERPRINT, host_cpu
from edgewright.engine.jit.cache import cache_key, default_cache
from edgewright.errors import MissingError, UsageError
from edgewright.hints import not_among

CPU_VARIABLE = "EDGEWRIGHT_CPU"
BF16_VARIABLE = "EDGEWRIGHT_BF16"


@dataclass(frozen=True)
class ISA:
    """``lanes`` floats make a vector, ``registers`` of which there are."""

    name: str
    lanes: int
    registers: int
    dot: bool  # four bytes by four bytes into 32 bits, in one instruction
    permute_bytes: bool  # any byte of two vectors by index, in one instruction
    cpu: str  # as LLVM names it
    features: str
    signed: bool = False  # of such an instruction: both operands are signed
    bf16: bool = False  # products of real numbers may be those of numbers rounded to 16 bits

    @property
    def bytes(self) -> int:
        return 4 * self.lanes


_AVX512 = ("avx512f", "avx512bw", "avx512vl", "avx512dq")
_AVX2 = ("avx2", "fma")
X86_LEVELS = ("avx2", "avxvnni", "avx512")
ARM_LEVELS = ("neon", "dotprod", "i8mm")  # each with all before it


def _without(features: dict[str, bool], *names: str) -> dict[str, bool]:
    return {name: on and not name.startswith(names) for name, on in features.items()}


def _flat(features: dict[str, bool]) -> str:
    return ",".join(("+" if on else "-") + name for name, on in sorted(features.items()))


@cache
def _machine() -> tuple[str, dict[str, bool]]:
    """What LLVM says of this processor; what it said before, if the system shows the same one."""
    store, shown = default_cache(), _shown()
    key = cache_key("processor", shown, FINGERPRINT)
    if shown and (known := store.get(key)) is not None:
        cpu, features = json.loads(known)
        return cpu, features
    cpu, features = host_cpu()
    if shown:
        store.put(key, json.dumps([cpu, features]).encode())
    return cpu, features


def _shown() -> str:
    """How Linux describes the first core, without its changing clock; empty elsewhere."""
    try:
        with open("/proc/cpuinfo") as file:
            lines = file.read(16384).partition("\n\n")[0].splitlines()
    except OSError:
        return ""
    kept = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU ")
    return "\n".join(line for line in lines if line.startswith(kept))


def host_isa(wanted: str | None = None) -> ISA:
    """The best instruction set this machine has, or the lower one that was asked for."""
    wanted = wanted or os.environ.get(CPU_VARIABLE, "")
    known = ARM_LEVELS if is_aarch64() else X86_LEVELS
    if wanted not in ("", *known):
        raise not_among(CPU_VARIABLE, wanted, known)
    return replace(_arm(wanted) if is_aarch64() else _x86(wanted), bf16=_brain(wanted))


def _brain(wanted: str) -> bool:
    """Whether products are to be rounded to 16 bits, which is nobody's default."""
    asked = os.environ.get(BF16_VARIABLE, "")
    if asked not in ("", "0", "1"):
        raise UsageError(BF16_VARIABLE, "must be 0 or 1", value=asked)
    if asked != "1":
        return False
    if is_aarch64() or wanted not in ("", "avx512") or not _machine()[1].get("avx512bf16"):
        raise UsageError(
            BF16_VARIABLE, "needs a processor with AVX512_BF16", value="1", remedy=f"Unset {BF16_VARIABLE}."
        )
    return True


def _arm(wanted: str) -> ISA:
    """``dotprod``: signed bytes by signed ones, four at a time; ``i8mm``: unsigned ones by signed ones too."""
    cpu, features = _machine()
    own = arm_features()
    if wanted and not own[wanted]:
        raise UsageError(CPU_VARIABLE, "must be one that this machine has", value=wanted, remedy="Use neon.")
    name = wanted or next(name for name in reversed(ARM_LEVELS) if own[name])
    have = {feature: own[feature] and ARM_LEVELS.index(feature) <= ARM_LEVELS.index(name) for feature in ARM_LEVELS}
    told = _flat({**features, **own, **have})
    return ISA(name, 4, 32, have["dotprod"], False, cpu, told, signed=have["dotprod"] and not have["i8mm"])


def _x86(wanted: str) -> ISA:
    cpu, features = _machine()
    if not all(features.get(name) for name in _AVX2):
        raise MissingError("engine", "needs AVX2 and FMA", value=cpu, remedy="Set EDGEWRIGHT_ENGINE=reference.")
    wide, vnni = all(features.get(name) for name in _AVX512), bool(features.get("avx512vnni"))
    have = {"avx2": True, "avxvnni": bool(features.get("avxvnni")) or (wide and vnni), "avx512": wide}
    if wanted and not have[wanted]:
        raise UsageError(CPU_VARIABLE, "must be one that this machine has", value=wanted, remedy="Use avx2.")
    name = wanted or next(name for name in reversed(X86_LEVELS) if have[name])
    if name == "avx512":
        told = _flat({**features, "prefer-256-bit": False})
        return ISA(name, 16, 32, vnni, bool(features.get("avx512vbmi")), cpu, told)
    if name == "avx2":
        return ISA(name, 8, 16, False, False, "x86-64-v3", _flat(_without(features, "avx512", "avx10", "avxvnni")))
    # Byte products of 256 bits: an extension of AVX2, or a part of AVX-512 where a lower set was asked for.
    own = _without(features, "avx512", "avx10") if features.get("avxvnni") else {**features, "prefer-256-bit": True}
    return ISA(name, 8, 16, True, False, "x86-64-v3", _flat(own))
