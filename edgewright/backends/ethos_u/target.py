"""Ethos-U targets and the compile spec for Vela. Imports neither torch nor Vela."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edgewright.backends.ethos_u.vela_ini import check_section, lookup, read_ini, sections
from edgewright.backends.ethos_u.vela_options import SPEC, parse_flags
from edgewright.errors import UsageError
from edgewright.hints import not_among
from edgewright.logs import log_message
from edgewright.units import parse_size

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
    """Target names with one-line descriptions."""
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
# Memory modes of Arm's vela.ini, with the fast memory of the NPU in bytes (None: unlimited).
MEMORY_MODES: dict[str, int | None] = {
    "Sram_Only": None,
    "Shared_Sram": None,
    "Dedicated_Sram": None,
    "Dedicated_Sram_256KB": 262144,
    "Dedicated_Sram_384KB": 393216,
    "Dedicated_Sram_512KB": 524288,
}
# ExecuTorch's defaults by family.
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


class DebugMode(enum.Enum):
    """Where debugging information goes; numbered as in ExecuTorch."""

    JSON = 1
    TOSA = 2


@dataclass(frozen=True)
class EthosUCompileSpec:
    """Target, system configuration and Vela options of a compilation.

    ``system_config`` and ``memory_mode`` name sections of Arm's vela.ini, or of the file ``config_ini``; the defaults
    are ExecuTorch's. ``extra_flags``: Vela command line options, as a string or a list.

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
    debug_mode: DebugMode | None = field(default=None, init=False, compare=False, repr=False)
    output_order_workaround: bool = field(default=False, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        flags = parse_flags(self.extra_flags)
        flag_values = {f.option.location[0]: f.value for f in flags if f.option.handling == SPEC}
        self._set("target", check_choice("accelerator", _text("target", self.target).lower(), ACCELERATORS))
        self._set("extra_flags", tuple(f.argument for f in flags if f.option.handling != SPEC))
        for name in ("target", "system_config", "memory_mode", "config_ini"):
            self._set(name, _merge_flag(name, getattr(self, name), flag_values.get(name)))
        self._set("config_ini", os.fspath(self.config_ini or ARM_INI))
        systems: Iterable[str] = SYSTEM_CONFIGS
        modes: Iterable[str] = MEMORY_MODES
        if self.config_ini != ARM_INI:
            self._set("config_text", read_ini(self.config_ini))
            systems, modes = (sections(self.config_text, kind) for kind in ("System_Config", "Memory_Mode"))
        default = DEFAULTS[self.family]
        self._set("system_config", check_choice("system_config", self.system_config or default[0], systems))
        self._set("memory_mode", check_choice("memory_mode", self.memory_mode or default[1], modes))
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
    def limits_arena(self) -> bool:
        """Whether ``arena_limit`` was passed, and is not the default of Arm's memory mode."""
        return self._arena_flag is not None or bool(self.config_text)

    @property
    def _arena_flag(self) -> int | None:
        flags = parse_flags(self.extra_flags)
        return next((int(flag.value) for flag in flags if flag.option.name == "--arena-cache-size"), None)

    @property
    def arena_limit(self) -> int:
        """Bytes that Vela should allocate at most in the arena or, in dedicated modes, in fast memory."""
        if self._arena_flag is not None:
            return self._arena_flag
        if self.config_text:
            limit: Any = lookup(self.config_text, f"Memory_Mode.{self.memory_mode}", "arena_cache_size")
        else:
            limit = MEMORY_MODES[self.memory_mode]
        return 1 << _ADDRESS_BITS[self.family] if limit is None else int(limit)

    @property
    def compile_flags(self) -> list[str]:
        """Vela's flags in ExecuTorch's order.

        A user's vela.ini appears by file name only, so that the output does not depend on the folder.
        """
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
        """The compile specs in the ``.pte``, equal to ExecuTorch's."""
        return {
            "tosa_spec": _TOSA[self.family].encode(),
            "compile_flags": " ".join(self.compile_flags).encode(),
            "output_format": b"vela",
            "preserve_io_quantization": b"False",
            "target": self.target.encode(),
        }

    def with_allocator(self, allocator: str) -> EthosUCompileSpec:
        """The same spec with another of Vela's tensor allocators."""
        option = "--tensor-allocator="
        flags = [flag for flag in self.extra_flags if not flag.startswith(option)]
        return replace(self, extra_flags=[*flags, option + allocator])

    def without_artifacts(self) -> EthosUCompileSpec:
        """The same spec, without files beside the program."""
        return replace(self, intermediates=None)

    def dump_intermediate_artifacts_to(self, output_path: str | os.PathLike[str] | None) -> EthosUCompileSpec:
        """Write the TOSA graph of every delegate to a folder; None for none. Changes this spec, as in ExecuTorch, and
        returns it."""
        self._set("intermediates", None if output_path is None else os.fspath(output_path))
        return self

    def dump_debug_info(self, debug_mode: DebugMode | None) -> EthosUCompileSpec:
        """Write which node, module and line of the model each operator of a delegate comes from: in a file beside its
        TOSA graph (``DebugMode.JSON``), or in the graph, as the operators' locations (``DebugMode.TOSA``). Changes this
        spec and returns it."""
        if debug_mode is not None and not isinstance(debug_mode, DebugMode):
            rule = "must be DebugMode.JSON, DebugMode.TOSA or None"
            raise UsageError("dump_debug_info", rule, value=debug_mode)
        self._set("debug_mode", debug_mode)
        return self

    def get_output_order_workaround(self) -> bool:
        """What ``set_output_order_workaround`` set."""
        return self.output_order_workaround

    def set_output_order_workaround(self, output_order_workaround: bool) -> None:
        """ExecuTorch 1.1 and 1.2 work around Vela's order of results this way. It makes no difference here: results are
        in the model's order, whatever the order in which Vela returns them."""
        if not isinstance(output_order_workaround, bool):
            raise UsageError("set_output_order_workaround", "must be True or False", value=output_order_workaround)
        self._set("output_order_workaround", output_order_workaround)
        if output_order_workaround:
            reason = "makes no difference: results are in the model's order without it"
            log_message("warning", "backends.ethos_u", "set_output_order_workaround %s", reason)

    def set_pass_pipeline_config(self, config: Any) -> None:
        """Accept ExecuTorch's choices of its passes, and log why each of them makes no difference here."""
        for sentence in config.differences():
            log_message("warning", "backends.ethos_u", "ArmPassPipelineConfig: %s", sentence)


EthosUCompileSpec.DebugMode = DebugMode  # type: ignore[attr-defined]  # where ExecuTorch's scripts look for it


def read_spec(spec: object) -> tuple[str, bool] | None:
    """The accelerator of a compile spec; None for anything else."""
    return (spec.target, False) if isinstance(spec, EthosUCompileSpec) else None


# Options of recipes and of the command line, and what they are.
OPTIONS = {
    "system_config": "clock and memories: a section of vela.ini",
    "memory_mode": "where weights and activations are: a section of vela.ini",
    "vela_ini": "the vela.ini, in place of Arm's",
    "optimise": "size or performance",
    "arena_cache_size": "memory that activations should fit, in bytes or as 256K; a warning says if they do not",
    "vela_flags": "further options of Vela's command line",
}

_GOALS = {"size": "Size", "performance": "Performance"}


def make_spec(target: str, options: Mapping[str, Any]) -> EthosUCompileSpec:
    """The compile spec of a target and options by name.

    >>> make_spec("ethos-u55-128", {"optimise": "size", "arena_cache_size": "256K"}).extra_flags
    ('--optimise=Size', '--arena-cache-size=262144')
    """
    for name in options:
        if name not in OPTIONS:
            raise not_among(f"{target}: option", name, OPTIONS)
    flags = [f.argument for f in parse_flags(options.get("vela_flags"))]
    if (goal := options.get("optimise")) is not None:
        flags.append(f"--optimise={_GOALS[check_choice('optimise', str(goal).lower(), _GOALS)]}")
    if (limit := options.get("arena_cache_size")) is not None:
        flags.append(f"--arena-cache-size={_parse_bytes(limit)}")
    given = [flag.partition("=")[0] for flag in flags]
    if len(set(given)) != len(given):
        raise UsageError(f"{target}: vela_flags", "must not repeat another option", value=" ".join(flags))
    fields = {key: options.get(key) for key in ("system_config", "memory_mode")}
    return EthosUCompileSpec(target, **fields, extra_flags=flags or None, config_ini=options.get("vela_ini"))


def _parse_bytes(value: Any) -> int:
    try:
        count = value if isinstance(value, int) and not isinstance(value, bool) else parse_size(str(value))
    except ValueError as error:
        raise UsageError("arena_cache_size", str(error), value=value) from None
    if count <= 0:
        raise UsageError("arena_cache_size", "must be more than 0 bytes", value=value)
    return int(count)


class ArmCompileSpecBuilder:
    """Builder of compile specs: ``ArmCompileSpecBuilder().ethosu_compile_spec("ethos-u55-128").build()``."""

    def __init__(self) -> None:
        self._spec: EthosUCompileSpec | None = None
        self._folder: str | os.PathLike[str] | None = None
        self._debug_mode: DebugMode | None = None

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

    def dump_debug_info(self, debug_mode: DebugMode | None) -> ArmCompileSpecBuilder:
        """Write where the operators of every delegate come from, beside its TOSA graph or in it."""
        self._debug_mode = debug_mode
        return self

    def build(self) -> EthosUCompileSpec:
        if self._spec is None:
            raise UsageError("build", "needs a target", remedy="Call ethosu_compile_spec first.")
        return self._spec.dump_intermediate_artifacts_to(self._folder).dump_debug_info(self._debug_mode)


def check_choice(subject: str, name: str, valid: Iterable[str]) -> str:
    """``name`` if it is one of ``valid``; otherwise raise."""
    names = list(valid)
    if _text(subject, name) not in names:
        raise not_among(subject, name, names)
    return name


def _text(subject: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(subject, "must be a string", value=value)
    return value


def _merge_flag(name: str, argument: Any, flag_value: Any) -> Any:
    """Combine an argument with a flag that sets the same field; raise if they differ."""
    if flag_value is None or argument is None:
        return argument if flag_value is None else flag_value
    if os.fspath(argument) != flag_value:
        option = {"target": "--accelerator-config", "config_ini": "--config"}.get(name, f"--{name.replace('_', '-')}")
        raise UsageError(f"extra_flags: {option}", f"must be the {name} of the spec, {argument}", value=flag_value)
    return argument
