"""Neutron targets and the compile spec: options for NXP's converter that are stored in the program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgewright.backends.nxp import sdk
from edgewright.backends.nxp.dialect.numerics import NUMERICS
from edgewright.errors import UsageError
from edgewright.formats.schema import CompileSpec
from edgewright.hints import not_among

DEFAULT = "imxrt700"
SIMULATED = " (simulation only: will not run on the chip)"
FLAVOR, SIMULATE, ROUNDING = "neutron_converter_flavor", "simulate_only", "numerics"
_FLAGS = ("use_neutron_for_format_conversion", "fetch_constants_to_sram", "dump_kernel_selection_code", "use_profiling")


@dataclass(frozen=True)
class NpuInfo:
    """Hardware parameters of an NPU."""

    subsystem: bool
    units: int
    pipes: int
    macs: int  # of each pipeline, per cycle
    version: int
    clock: float = 325e6  # Hz
    product: str = field(default="NXP", kw_only=True)


# Sources: NXP's public data sheet, and the configuration of its simulator.
TARGETS = {DEFAULT: NpuInfo(False, 1, 8, 8, 2, product="NXP i.MX RT700")}


def targets() -> dict[str, str]:
    """Target names with a one-line description."""
    return {
        name: f"{info.product}, eIQ Neutron, {info.units * info.pipes * info.macs} multiply-accumulates per cycle"
        for name, info in TARGETS.items()
    }


class NeutronTargetSpec:
    """A chip, by name. Other chips than those in ``TARGETS`` are looked up in NXP's SDK, if it is installed.

    >>> NeutronTargetSpec("imxrt700").get_num_macs()
    8
    """

    def __init__(self, target: str = DEFAULT) -> None:
        if not isinstance(target, str):
            raise UsageError("Neutron target", "must be a name", value=target)
        self.name = target
        info = TARGETS.get(target) or _query_sdk(target)
        if info is None:
            remedy = f"Other chips require NXP's SDK: {sdk.INSTALL}"
            raise not_among("Neutron target", target, TARGETS, remedy=remedy)
        self.neutron_target_info = info

    def get_name(self) -> str:
        return self.name

    def is_subsystem(self) -> bool:
        return self.neutron_target_info.subsystem

    def get_num_units(self) -> int:
        return self.neutron_target_info.units

    def get_num_pipes(self) -> int:
        return self.neutron_target_info.pipes

    def get_num_macs(self) -> int:
        return self.neutron_target_info.macs

    def get_hw_version(self) -> int:
        return self.neutron_target_info.version

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NeutronTargetSpec) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


def _query_sdk(target: str) -> NpuInfo | None:
    description = sdk.target_object(target)
    if description is None:
        return None
    npu = getattr(description, "npu", description)
    names = ("subsystem", "numUnits", "numPipes", "numMacs", "hwVersion")
    subsystem, *numbers = (getattr(npu, name) for name in names)
    return NpuInfo(bool(subsystem), *(int(getattr(n, "value", n)) for n in numbers))


@dataclass(frozen=True)
class NeutronOptions:
    """A parsed compile spec."""

    target: str = DEFAULT
    flags: str = ""
    intermediates_dir: str | None = None
    operators_not_to_delegate: tuple[str, ...] = ()
    use_neutron_for_format_conversion: bool = True
    fetch_constants_to_sram: bool = False
    dump_kernel_selection_code: bool = False
    use_profiling: bool = False
    flavor: str | None = None
    simulate_only: bool = False


def generate_neutron_compile_spec(
    config: str = DEFAULT, system_config: str | None = None, extra_flags: str | None = None,
    intermediates_dir: str | None = None, operators_not_to_delegate: Sequence[str] | None = None,
    use_neutron_for_format_conversion: bool = True, fetch_constants_to_sram: bool = False,
    dump_kernel_selection_code: bool = False, use_profiling: bool = False, *,
    neutron_converter_flavor: str | None = None, simulate_only: bool = False, numerics: str = "tflite",
) -> list[CompileSpec]:  # fmt: skip
    """Compile spec for a chip. ``system_config`` is ExecuTorch's, has no effect there, and is rejected here: Neutron
    has no system configurations.

    ``extra_flags``: further options of NXP's converter, such as ``--min-num-ops-per-graph=2 --verbose``: each sets the
    option of that name among the converter's ``compilationOpts`` (``minNumOpsPerGraph``, ``verbose``). ExecuTorch
    writes them to the compile spec only.
    ``simulate_only``: compile without NXP's converter; the program runs on the host and never on the chip.
    ``neutron_converter_flavor``: use the package ``neutron_converter_<flavor>`` of older releases.
    ``numerics``: rounding on the host, of LiteRT's reference kernels (``tflite``) or of ``xnnpack``.

    >>> [spec.key for spec in generate_neutron_compile_spec("imxrt700")][:3]
    ['output_format', 'compile_flags', 'target']
    """
    NeutronTargetSpec(config)
    flags = {
        "use_neutron_for_format_conversion": use_neutron_for_format_conversion,
        "fetch_constants_to_sram": fetch_constants_to_sram,
        "dump_kernel_selection_code": dump_kernel_selection_code,
        "use_profiling": use_profiling,
        SIMULATE: simulate_only,
    }
    _check_options(flags, numerics)
    if system_config:
        rule = "has no effect: Neutron has no system configurations"
        raise UsageError("system_config", rule, value=system_config, remedy="Leave it out.")
    converter_options(extra_flags or "")
    excluded = [] if operators_not_to_delegate is None else list(operators_not_to_delegate)
    specs: dict[str, str] = {
        "output_format": "tflite",
        "compile_flags": extra_flags or "",
        "target": config + (SIMULATED if simulate_only else ""),
        "intermediates_dir": str(intermediates_dir),
        "operators_not_to_delegate": ",".join(excluded).replace("::", "_"),
        **{name: str(flags[name]) for name in _FLAGS},
    }
    if neutron_converter_flavor is not None:
        specs[FLAVOR] = neutron_converter_flavor
    if numerics != "tflite":
        specs[ROUNDING] = numerics
    return [CompileSpec(key=key, value=value.encode()) for key, value in specs.items()]


def converter_options(flags: str) -> dict[str, bool | int | str]:
    """Options of NXP's converter by name, from flags.

    >>> converter_options("--min-num-ops-per-graph=2 --verbose")
    {'minNumOpsPerGraph': 2, 'verbose': True}
    """
    if not isinstance(flags, str):
        raise UsageError("extra_flags", "must be a string", value=flags)
    options: dict[str, bool | int | str] = {}
    for flag in flags.split():
        name, assigned, text = flag.removeprefix("--").partition("=")
        if re.fullmatch(r"[A-Za-z][\w-]{0,63}", name) is None:
            rule = "must be options of NXP's converter: --name or --name=value, separated by spaces"
            raise UsageError("extra_flags", rule, value=flag)
        first, *rest = re.split("[-_]", name)
        named = first + "".join(part[:1].upper() + part[1:] for part in rest)
        if named in _SET_BY_NAME:
            rule, remedy = "must not set what the compile spec has", f"Pass {_SET_BY_NAME[named]}=True instead."
            raise UsageError("extra_flags", rule, value=flag, remedy=remedy)
        options[named] = _parse_value(text) if assigned else True
    return options


_SET_BY_NAME = {
    "fetchConstantsToSRAM": "fetch_constants_to_sram", "fetchConstantsToSram": "fetch_constants_to_sram",
    "dumpKernelSelectionCode": "dump_kernel_selection_code", "useProfiling": "use_profiling",
}  # fmt: skip


def _parse_value(text: str) -> bool | int | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if re.fullmatch(r"[+-]?\d{1,18}", text) else text


def _check_options(flags: Mapping[str, Any], numerics: str) -> None:
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise UsageError(name, "must be True or False", value=flag)
    if numerics not in NUMERICS:
        raise UsageError(ROUNDING, f"must be {' or '.join(NUMERICS)}", value=numerics)


class NeutronCompileSpecBuilder:
    """Builder interface: ``NeutronCompileSpecBuilder().neutron_compile_spec("imxrt700").build()``."""

    def __init__(self) -> None:
        self._specs: list[CompileSpec] | None = None

    def neutron_compile_spec(
        self, config: str = DEFAULT, intermediates_dir: str | None = None, extra_flags: str | None = None,
        operators_not_to_delegate: Sequence[str] | None = None, use_neutron_for_format_conversion: bool = True,
        fetch_constants_to_sram: bool = False, dump_kernel_selection_code: bool = False, use_profiling: bool = False,
        **options: Any,
    ) -> NeutronCompileSpecBuilder:  # fmt: skip
        """Set the options; those of ``generate_neutron_compile_spec``, in ExecuTorch's order."""
        self._specs = generate_neutron_compile_spec(
            config, None, extra_flags, intermediates_dir, operators_not_to_delegate,
            use_neutron_for_format_conversion, fetch_constants_to_sram, dump_kernel_selection_code, use_profiling,
            **options,
        )  # fmt: skip
        return self

    def build(self) -> list[CompileSpec]:
        if self._specs is None:
            raise UsageError("NeutronCompileSpecBuilder", "needs neutron_compile_spec(...) before build()")
        return self._specs


def read_options(specs: Iterable[Any]) -> NeutronOptions:
    """Parse a compile spec, created here or by ExecuTorch."""
    try:
        values = {str(spec.key): bytes(spec.value).decode() for spec in specs}
    except (AttributeError, TypeError, UnicodeDecodeError) as error:
        remedy = 'Make one: generate_neutron_compile_spec("imxrt700").'
        raise UsageError("compile_spec", "must be a list of keys and values", value=specs, remedy=remedy) from error
    if values.get("output_format", "tflite") != "tflite":
        raise UsageError("output_format", "must be tflite", value=values["output_format"])
    target = values.get("target", DEFAULT)
    excluded = values.get("operators_not_to_delegate", "")
    folder = values.get("intermediates_dir", "None")
    flags = {name: values[name] == "True" for name in _FLAGS if name in values}
    return NeutronOptions(
        target.removesuffix(SIMULATED), values.get("compile_flags", ""), None if folder == "None" else folder,
        tuple(n for n in excluded.split(",") if n), **flags, flavor=values.get(FLAVOR),
        simulate_only=target.endswith(SIMULATED),
    )  # fmt: skip


def read_spec(specs: object) -> tuple[str, bool] | None:
    """The chip of a compile spec, and whether it is for simulation only; None for anything else."""
    keys = [getattr(spec, "key", None) for spec in specs] if isinstance(specs, Sequence) else []
    if not {"target", "operators_not_to_delegate"} <= set(keys):
        return None
    options = read_options(specs)  # type: ignore[arg-type]
    return options.target, options.simulate_only


def for_simulation(specs: Iterable[Any]) -> list[CompileSpec]:
    """The same compile spec, for a program that runs on the host only."""
    mark = SIMULATED.encode()
    return [
        CompileSpec(key=s.key, value=bytes(s.value).removesuffix(mark) + mark if s.key == "target" else bytes(s.value))
        for s in specs
    ]


@dataclass
class CustomDelegationOptions:
    """``allow_no_op_partitions``: also delegate partitions of data movement only."""

    allow_no_op_partitions: bool = False
