"""What an Exynos chip is to the compiler, and the compile spec: options that go to AI LiteCore and into the file."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from edgewright.backends.samsung.options import KEY, EnnOptions, read_options, write_options
from edgewright.errors import FormatError, UsageError
from edgewright.formats.schema import CompileSpec
from edgewright.hints import did_you_mean, not_among

ENN_COMPILE_OPTION_TITLE = KEY
COMPILE_OPTION_SCHEMA_NAME = "compile_options_def"
TARGET = "target"  # a compile spec that devices ignore: what the manifest says the file is for
SIMULATED = "simulation only: will not run on the chip"
REMEDY = 'Make one: [gen_samsung_backend_compile_spec("E9955")].'


@enum.unique
class SamsungChipset(enum.IntEnum):
    """Chips by the numbers that AI LiteCore has for them. E9955 is the Exynos 2500, E9965 the Exynos 2600."""

    UNDEFINED_CHIP_V = 0
    E9955 = 9955
    E9965 = 9965


@enum.unique
class PerformanceMode(enum.IntEnum):
    """What AI LiteCore compiles for. ``HIGH_PERFORMANCE`` is experimental: measure on the device."""

    DEFAULT = 0
    HIGH_PERFORMANCE = 1


MARKETED = {SamsungChipset.E9955: "Exynos 2500", SamsungChipset.E9965: "Exynos 2600"}


def targets() -> dict[str, str]:
    """What there is to compile for, each in a line."""
    return {chip.name: f"Samsung {name}, through AI LiteCore" for chip, name in MARKETED.items()}


@dataclass
class EnnExecuTorchOptions:
    """The options, as stock has them; ``simulate_only`` makes a file that runs on this machine and on no chip."""

    chipset: SamsungChipset = SamsungChipset.UNDEFINED_CHIP_V
    perf_mode: PerformanceMode = PerformanceMode.DEFAULT
    simulate_only: bool = False


@dataclass(frozen=True)
class EnnTarget:
    """A compile spec, read. Rules are asked about it."""

    chipset: SamsungChipset
    perf_mode: PerformanceMode = PerformanceMode.DEFAULT
    simulate_only: bool = False

    @classmethod
    def of(cls, specs: Iterable[Any]) -> EnnTarget:
        """A list of keys and values, ours or ExecuTorch's: exactly one must be ENN's."""
        try:
            held = [bytes(spec.value) for spec in specs if str(spec.key) == KEY]
        except (AttributeError, TypeError) as error:
            rule = "must be a list of keys and values"
            raise UsageError("compile_specs", rule, value=specs, remedy=REMEDY) from error
        if len(held) != 1:
            raise UsageError("compile_specs", f"must hold {KEY} once", value=len(held), remedy=REMEDY)
        return cls.read(held[0])

    @classmethod
    def read(cls, data: bytes) -> EnnTarget:
        options = read_options(data)
        if options.chipset not in [int(chip) for chip in MARKETED]:
            known = ", ".join(str(int(chip)) for chip in MARKETED)
            raise FormatError(f"must be one of {known}", where="ENN options.chipset", value=options.chipset)
        return cls(SamsungChipset(options.chipset), PerformanceMode(options.perf_mode), options.simulate_only)

    @property
    def value(self) -> bytes:
        """The options' bytes."""
        return write_options(_options(self))

    def describe(self, *notes: str) -> str:
        """What the manifest says of a delegate."""
        said = [*([SIMULATED] if self.simulate_only else []), *notes]
        return self.chipset.name + (f" ({'; '.join(said)})" if said else "")


def _options(target: EnnTarget) -> EnnOptions:
    chipset, mode = int(target.chipset), int(target.perf_mode)
    return EnnOptions(chipset=chipset, perf_mode=mode, simulate_only=target.simulate_only)


def gen_samsung_backend_compile_spec_core(options: EnnExecuTorchOptions) -> CompileSpec:
    """The compile spec of options."""
    chip, mode = _chipset(options.chipset), _mode(options.perf_mode)
    if not isinstance(options.simulate_only, bool):
        raise UsageError("simulate_only", "must be True or False", value=options.simulate_only)
    return CompileSpec(key=KEY, value=EnnTarget(chip, mode, options.simulate_only).value)


def gen_samsung_backend_compile_spec(
    chipset: str, perf_mode: PerformanceMode | None = None, *, simulate_only: bool = False
) -> CompileSpec:
    """How to compile for a chip by its name, in letters of any size.

    ``simulate_only``: make a file that runs on this machine, without Samsung's SDK, and never on the chip.

    >>> gen_samsung_backend_compile_spec("E9955").value.hex()
    '100000004545544f000006000800040006000000e3260000'
    """
    mode = PerformanceMode.DEFAULT if perf_mode is None else perf_mode
    return gen_samsung_backend_compile_spec_core(EnnExecuTorchOptions(chipset, mode, simulate_only))  # type: ignore[arg-type]


def _chipset(given: Any) -> SamsungChipset:
    known = {chip.name: chip for chip in MARKETED}
    if isinstance(given, SamsungChipset) and given in MARKETED:
        return given
    if not isinstance(given, str) or given.upper() not in known:
        rule = f"must be one of {', '.join(f'{chip.name} ({name})' for chip, name in MARKETED.items())}"
        wrong = getattr(given, "name", given)
        raise UsageError("chipset", rule, value=wrong, remedy=did_you_mean(wrong, known))
    return known[given.upper()]


def _mode(given: Any) -> PerformanceMode:
    if isinstance(given, str) and given.upper() in PerformanceMode.__members__:
        return PerformanceMode[given.upper()]
    if isinstance(given, bool) or given not in tuple(PerformanceMode):
        raise not_among("perf_mode", given, PerformanceMode.__members__)
    return PerformanceMode(given)
