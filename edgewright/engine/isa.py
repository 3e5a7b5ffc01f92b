"""Instruction sets that code is generated for.

One description serves every x86 with AVX2 or more, and AArch64: the vector width is a number. ``EDGEWRIGHT_CPU``
(``avx2``, ``avxvnni`` or ``avx512``; ``neon``, ``dotprod`` or ``i8mm``) selects a lower level than the machine has.
A new architecture needs an ``ISA`` and the few functions of ``codegen/vector.py`` that name an instruction.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from functools import cache

from edgewright.engine.host_arch import arm_features, is_aarch64, machine_name
from edgewright.engine.jit.build import FINGERPRINT, host_cpu
from edgewright.engine.jit.cache import cache_key, default_cache
from edgewright.errors import MissingError, UsageError
from edgewright.hints import not_among

CPU_VARIABLE = "EDGEWRIGHT_CPU"
BF16_VARIABLE = "EDGEWRIGHT_BF16"


@dataclass(frozen=True)
class ISA:
    """An instruction set: vectors of ``lanes`` float32, ``registers`` vector registers."""

    name: str
    lanes: int
    registers: int
    dot: bool  # int8 dot product of four into int32 in one instruction
    permute_bytes: bool  # byte permute of two vectors in one instruction (VBMI)
    cpu: str  # as LLVM names it
    features: str
    signed: bool = False  # the dot product takes signed operands only
    bf16: bool = False  # float32 products may be rounded to bf16
    arch: str = field(default_factory=machine_name)  # as LLVM names it
    compact: bool = False  # little memory: algorithms that trade memory for speed are not used
    dsp: bool = False  # Arm's DSP extension: products of two int16 pairs, accumulated in one instruction (SMLAD)
    helium: bool = False  # Arm's M-profile vectors: dot products of 16 int8 accumulated in a scalar (VMLADAVA)

    @property
    def bytes(self) -> int:
        return 4 * self.lanes

    @property
    def dot_bytes(self) -> int:
        """Bytes of a pixel that the int8 gemm multiplies at once, by those of each output channel."""
        return 16 if self.helium else 4


_AVX512 = ("avx512f", "avx512bw", "avx512vl", "avx512dq")
_AVX2 = ("avx2", "fma")
X86_LEVELS = ("avx2", "avxvnni", "avx512")
ARM_LEVELS = ("neon", "dotprod", "i8mm")  # each includes those before it


def _without(features: dict[str, bool], *names: str) -> dict[str, bool]:
    return {name: on and not name.startswith(names) for name, on in features.items()}


def _feature_string(features: dict[str, bool]) -> str:
    return ",".join(("+" if on else "-") + name for name, on in sorted(features.items()))


@cache
def _machine() -> tuple[str, dict[str, bool]]:
    """The host CPU and its features as LLVM reports them, cached by /proc/cpuinfo."""
    store, cpuinfo = default_cache(), _cpuinfo()
    key = cache_key("processor", cpuinfo, FINGERPRINT)
    if cpuinfo and (known := store.get(key)) is not None:
        cpu, features = json.loads(known)
        return cpu, features
    cpu, features = host_cpu()
    if cpuinfo:
        store.put(key, json.dumps([cpu, features]).encode())
    return cpu, features


def _cpuinfo() -> str:
    """The stable fields of /proc/cpuinfo's first core; empty elsewhere."""
    try:
        with open("/proc/cpuinfo") as file:
            lines = file.read(16384).partition("\n\n")[0].splitlines()
    except OSError:
        return ""
    stable = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU ")
    return "\n".join(line for line in lines if line.startswith(stable))


def host_isa(requested: str | None = None) -> ISA:
    """The best instruction set of this machine, or the requested lower level."""
    requested = requested or os.environ.get(CPU_VARIABLE, "")
    levels = ARM_LEVELS if is_aarch64() else X86_LEVELS
    if requested not in ("", *levels):
        raise not_among(CPU_VARIABLE, requested, levels)
    return replace(_arm(requested) if is_aarch64() else _x86(requested), bf16=_use_bf16(requested))


def _use_bf16(requested: str) -> bool:
    """Whether float32 products are rounded to bf16; off by default."""
    setting = os.environ.get(BF16_VARIABLE, "")
    if setting not in ("", "0", "1"):
        raise UsageError(BF16_VARIABLE, "must be 0 or 1", value=setting)
    if setting != "1":
        return False
    if is_aarch64() or requested not in ("", "avx512") or not _machine()[1].get("avx512bf16"):
        raise UsageError(
            BF16_VARIABLE, "needs a processor with AVX512_BF16", value="1", remedy=f"Unset {BF16_VARIABLE}."
        )
    return True


def _arm(requested: str) -> ISA:
    """``dotprod``: int8 by int8 dot products; ``i8mm``: also uint8 by int8."""
    cpu, features = _machine()
    detected = arm_features()
    if requested and not detected[requested]:
        raise UsageError(CPU_VARIABLE, "must be one that this machine has", value=requested, remedy="Use neon.")
    name = requested or next(name for name in reversed(ARM_LEVELS) if detected[name])
    enabled = {
        feature: detected[feature] and ARM_LEVELS.index(feature) <= ARM_LEVELS.index(name) for feature in ARM_LEVELS
    }
    flags = _feature_string({**features, **detected, **enabled})
    return ISA(name, 4, 32, enabled["dotprod"], False, cpu, flags, signed=enabled["dotprod"] and not enabled["i8mm"])


def _x86(requested: str) -> ISA:
    cpu, features = _machine()
    if not all(features.get(name) for name in _AVX2):
        raise MissingError("engine", "needs AVX2 and FMA", value=cpu, remedy="Set EDGEWRIGHT_ENGINE=reference.")
    avx512, vnni = all(features.get(name) for name in _AVX512), bool(features.get("avx512vnni"))
    supported = {"avx2": True, "avxvnni": bool(features.get("avxvnni")) or (avx512 and vnni), "avx512": avx512}
    if requested and not supported[requested]:
        raise UsageError(CPU_VARIABLE, "must be one that this machine has", value=requested, remedy="Use avx2.")
    name = requested or next(name for name in reversed(X86_LEVELS) if supported[name])
    if name == "avx512":
        flags = _feature_string({**features, "prefer-256-bit": False})
        return ISA(name, 16, 32, vnni, bool(features.get("avx512vbmi")), cpu, flags)
    if name == "avx2":
        return ISA(
            name, 8, 16, False, False, "x86-64-v3", _feature_string(_without(features, "avx512", "avx10", "avxvnni"))
        )
    # 256-bit VNNI: the AVX-VNNI extension, or AVX-512 VNNI where a lower level is requested.
    level_features = (
        _without(features, "avx512", "avx10") if features.get("avxvnni") else {**features, "prefer-256-bit": True}
    )
    return ISA(name, 8, 16, True, False, "x86-64-v3", _feature_string(level_features))
