"""What an Ethos-U is and how Vela is to compile for it: the compile spec. Needs neither torch nor Vela."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edgewright.backends.ethos_u.vela_ini import check_section, lookup, read_ini, sections
from edgewright.backends.ethos_u.vela_options import SPEC, parse_flags
from edgewright.errors import UsageError
from edgewright.hints import not_among

# Accelerator: family, multiply-accumulates per cycle and core, cores.
ACCELERATORS = {
    "ethos-u55-32": ("u55", 32, 1),
    "ethos-u55-64": ("u55", 64, 1),
    "ethos-u55-128": ("u55", 128, 1),
    "ethos-u55-256": ("u55", 256, 1),
    "ethos-u65-256": ("u65", 256, 1),
    "ethos-u65-512": ("u65", 256, 2),
    "ethos-u85-128": ("u85", 128, 1),
    "ethos-u85-256": ("u85", 256, 1),
    "ethos-u85-512": ("u85", 512, 1),
    "ethos-u85-1024": ("u85", 1024, 1),
    "ethos-u85-2048": ("u85", 2048, 1),
}


def targets() -> dict[str, str]:
    """What there is to compile for, each in a line."""
    return {
        name: f"Arm Ethos-{family.upper()}, {macs * cores} multiply-accumulates per cycle"
        for name, (family, macs, cores) in ACCELERATORS.items()
    }


# System configurations of Arm's vela.ini.
SYSTEM_CONFIGS = (
    "Ethos_U55_Deep_Embedded", "Ethos_U55_High_End_Embedded", "Ethos_U65_Embedded", "Ethos_U65_Mid_End",
    "Ethos_U65_High_End", "Ethos_U65_Client_Server", "Ethos_U85_SYS_Flash_Low", "Ethos_U85_SYS_Flash_High",
    "Ethos_U85_SYS_DRAM_Low", "Ethos_U85_SYS_DRAM_Mid", "Ethos_U85_SYS_DRAM_High",
)  # fmt: skip
# Memory modes of Arm's vela.ini, with the bytes of fast memory that each leaves to the NPU (None: all there is).
MEMORY_MODES: dict[str, int | None] = {
    "Sram_Only": None,
    "Shared_Sram": None,
    "Dedicated_Sram": None,
    "Dedicated_Sram_256KB": 262144,
    "Dedicated_Sram_384KB": 393216,
    "Dedicated_Sram_512KB": 524288,
}
# What ExecuTorch chooses for a family if nothing is said.
DEFAULTS = {
    "u55": ("Ethos_U55_High_End_Embedded", "Shared_Sram"),
    "u65": ("Ethos_U65_High_End", "Dedicated_Sram_384KB"),
    "u85": ("Ethos_U85_SYS_DRAM_Mid", "Sram_Only"),
}
ARM_INI = "Arm/vela.ini"
_TOSA = {
    "u55": "TOSA-1.0+INT+int16+int4+u55",
    "u65": "TOSA-1.0+INT+int16+int4+u55",
    "u85": "TOSA-1.0+INT+int16+int4+cf",
}
_ADDRESS_BITS = {"u55": 32, "u65": 40, "u85": 40}


@dataclass(frozen=True)
class EthosUCompileSpec:
    """A target, the system around it, and what else Vela is told.

    ``system_config`` and ``memory_mode`` name sections of Arm's vela.ini, or of the file at ``config_ini``; left out,
    they are what ExecuTorch chooses. ``extra_flags``: Vela's own options, as a string or a list.

    >>> spec = EthosUCompileSpec("ethos-u55-128", extra_flags="--optimise=Size --debug-force-regor")
    >>> spec.family, spec.macs, spec.system_config, spec.memory_mode, spec.extra_flags
    ('u55', 128, 'Ethos_U55_High_End_Embedded', 'Shared_Sram', ('--optimise=Size', '--debug-force-regor'))
    """

    target: str
    system_config: Any = None
    memory_mode: Any = None
    extra_flags: Any = None
    config_ini: Any = None
    intermediates: str | None = field(default=None, compare=False)
    config_text: str = field(default="", init=False, repr=False)  # the user's own vela.ini; "" for Arm's

    def __post_init__(self) -> None:
        flags = parse_flags(self.extra_flags)
        said = {f.option.place[0]: f.value for f in flags if f.option.how == SPEC}
        self._set("target", choose("accelerator", _text("target", self.target).lower(), ACCELERATORS))
        self._set("extra_flags", tuple(f.given for f in flags if f.option.how != SPEC))
        for name in ("target", "system_config", "memory_mode", "config_ini"):
            self._set(name, _agree(name, getattr(self, name), said.get(name)))
        self._set("config_ini", os.fspath(self.config_ini or ARM_INI))
        systems: Iterable[str] = SYSTEM_CONFIGS
        modes: Iterable[str] = MEMORY_MODES
        if self.config_ini != ARM_INI:
            self._set("config_text", read_ini(self.config_ini))
            systems, modes = (sections(self.config_text, kind) for kind in ("System_Config", "Memory_Mode"))
        default = DEFAULTS[self.family]
        self._set("system_config", choose("system_config", self.system_config or default[0], systems))
        self._set("memory_mode", choose("memory_mode", self.memory_mode or default[1], modes))
        if self.config_text:
            for section in (f"System_Config.{self.system_config}", f"Memory_Mode.{self.memory_mode}"):
                check_section(self.config_ini, self.config_text, section)
        if self.arena_limit > 1 << _ADDRESS_BITS[self.family]:
            rule = f"must fit the {_ADDRESS_BITS[self.family]}-bit addresses of {self.target}"
            raise UsageError("arena_cache_size", rule, value=self.arena_limit)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def accelerator(self) -> str:
        return self.target

    @property
    def family(self) -> str:
        """``u55``, ``u65`` or ``u85``."""
        return ACCELERATORS[self.target][0]

    @property
    def macs(self) -> int:
        """Multiply-accumulates per cycle, of all cores."""
        _, macs, cores = ACCELERATORS[self.target]
        return macs * cores

    @property
    def cores(self) -> int:
        return ACCELERATORS[self.target][2]

    @property
    def arena_limit(self) -> int:
        """Bytes that Vela may plan in the arena or, in the dedicated modes, in fast memory."""
        for flag in parse_flags(self.extra_flags):
            if flag.option.name == "--arena-cache-size":
                return int(flag.value)
        if self.config_text:
            said: Any = lookup(self.config_text, f"Memory_Mode.{self.memory_mode}", "arena_cache_size")
        else:
            said = MEMORY_MODES[self.memory_mode]
        return 1 << _ADDRESS_BITS[self.family] if said is None else int(said)

    @property
    def compile_flags(self) -> list[str]:
        """All of Vela's flags, in the order stock writes them. A user's vela.ini goes by its name, without the folder:
        the same model gives the same file wherever it is compiled."""
        config = self.config_ini if self.config_ini == ARM_INI else Path(self.config_ini).name
        return [
            *self.extra_flags,
            f"--accelerator-config={self.target}",
            f"--config={config}",
            *([] if "--output-format=raw" in self.extra_flags else ["--output-format=raw"]),
            f"--system-config={self.system_config}",
            f"--memory-mode={self.memory_mode}",
        ]

    def to_compile_specs(self) -> dict[str, bytes]:
        """The specs that go into the ``.pte``: the same as stock's."""
        return {
            "tosa_spec": _TOSA[self.family].encode(),
            "compile_flags": " ".join(self.compile_flags).encode(),
            "output_format": b"vela",
            "preserve_io_quantization": b"False",
            "target": self.target.encode(),
        }

    def dump_intermediate_artifacts_to(self, path: str | os.PathLike[str]) -> EthosUCompileSpec:
        """The same spec, with the TOSA graph of every delegate written to a folder."""
        return replace(self, intermediates=os.fspath(path))


class ArmCompileSpecBuilder:
    """Makes compile specs step by step: ``ArmCompileSpecBuilder().ethosu_compile_spec("ethos-u55-128").build()``."""

    def __init__(self) -> None:
        self._spec: EthosUCompileSpec | None = None
        self._folder: str | os.PathLike[str] | None = None

    def ethosu_compile_spec(
        self,
        target: str,
        system_config: str | None = None,
        memory_mode: str | None = None,
        extra_flags: str | Iterable[str] | None = None,
        config_ini: str | os.PathLike[str] | None = None,
    ) -> ArmCompileSpecBuilder:
        """Compile for an Ethos-U."""
        if self._spec is not None:
            raise UsageError("ethosu_compile_spec", "must be called once", value=target)
        self._spec = EthosUCompileSpec(target, system_config, memory_mode, extra_flags, config_ini)
        return self

    def dump_intermediate_artifacts_to(self, output_path: str | os.PathLike[str]) -> ArmCompileSpecBuilder:
        """Write the TOSA graph of every delegate to a folder."""
        self._folder = output_path
        return self

    def build(self) -> EthosUCompileSpec:
        if self._spec is None:
            raise UsageError("build", "needs a target", remedy="Call ethosu_compile_spec first.")
        return self._spec if self._folder is None else self._spec.dump_intermediate_artifacts_to(self._folder)


def choose(what: str, name: str, valid: Iterable[str]) -> str:
    """``name``, which must be one of ``valid``."""
    names = list(valid)
    if _text(what, name) not in names:
        raise not_among(what, name, names)
    return name


def _text(what: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(what, "must be text", value=value)
    return value


def _agree(name: str, given: Any, flagged: Any) -> Any:
    """What an argument and a flag say together; a flag may say what the argument leaves open."""
    if flagged is None or given is None:
        return given if flagged is None else flagged
    if os.fspath(given) != flagged:
        option = {"target": "--accelerator-config", "config_ini": "--config"}.get(name, f"--{name.replace('_', '-')}")
        raise UsageError(f"extra_flags: {option}", f"must be the {name} of the spec, {given}", value=flagged)
    return given
