"""Exynos targets and the compile spec: options for AI LiteCore, stored in the program as a flatbuffer (``EETO``) in
ExecuTorch's format."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from edgewright.errors import FormatError, UsageError
from edgewright.formats.flatbuffer import BOOL, I8, I32, Buffer, slot, table
from edgewright.formats.flatbuffer_reader import read_root
from edgewright.formats.flatbuffer_writer import FlatWriter
from edgewright.formats.schema import CompileSpec
from edgewright.hints import did_you_mean, not_among

KEY = "enn_compile_options"
IDENTIFIER = b"EETO"
_MIN_SIZE = 16  # root offset, identifier and an empty table


@table
class EnnOptions:
    """``simulate_only`` is an extension: a field far beyond ExecuTorch's, present only if set."""

    chipset: int = slot(0, I32, default=0)
    perf_mode: int = slot(1, I8, default=0, lo=0, hi=1)
    simulate_only: bool = slot(15, BOOL, default=False)


def write_options(options: EnnOptions) -> bytes:
    return FlatWriter().finish(options, IDENTIFIER)


def read_options(data: Buffer) -> EnnOptions:
    """Parse and verify options."""
    view = memoryview(data).cast("B")
    try:
        if len(view) < _MIN_SIZE:
            raise FormatError(f"must be at least {_MIN_SIZE} bytes", value=len(view))
        if bytes(view[4:8]) != IDENTIFIER:
            raise FormatError(f"must be identified as {IDENTIFIER.decode()}", value=bytes(view[4:8]))
        return read_root(EnnOptions, view)
    except FormatError as error:
        raise error.inside("ENN options") from None


ENN_COMPILE_OPTION_TITLE = KEY
COMPILE_OPTION_SCHEMA_NAME = "compile_options_def"
TARGET = "target"  # a compile spec that devices ignore: the target's description for the manifest
SIMULATED = "simulation only: will not run on the chip"
REMEDY = 'Make one: [gen_samsung_backend_compile_spec("E9955")].'


@enum.unique
class SamsungChipset(enum.IntEnum):
    """AI LiteCore's chip numbers. E9955 is the Exynos 2500, E9965 the Exynos 2600."""

    UNDEFINED_CHIP_V = 0
    E9955 = 9955
    E9965 = 9965


@enum.unique
class PerformanceMode(enum.IntEnum):
    """Optimization target of AI LiteCore. ``HIGH_PERFORMANCE`` is experimental: measure on the device."""

    DEFAULT = 0
    HIGH_PERFORMANCE = 1


PRODUCT_NAMES = {SamsungChipset.E9955: "Exynos 2500", SamsungChipset.E9965: "Exynos 2600"}


def targets() -> dict[str, str]:
    """Target names with a one-line description."""
    return {chip.name: f"Samsung {name}, through AI LiteCore" for chip, name in PRODUCT_NAMES.items()}


@dataclass
class EnnExecuTorchOptions:
    """ExecuTorch's options; ``simulate_only``: the program runs on the host and never on the chip."""

    chipset: SamsungChipset = SamsungChipset.UNDEFINED_CHIP_V
    perf_mode: PerformanceMode = PerformanceMode.DEFAULT
    simulate_only: bool = False


@dataclass(frozen=True)
class EnnTarget:
    """A parsed compile spec, passed to rules as the target."""

    chipset: SamsungChipset
    perf_mode: PerformanceMode = PerformanceMode.DEFAULT
    simulate_only: bool = False

    @classmethod
    def of(cls, specs: Iterable[Any]) -> EnnTarget:
        """Parse compile specs, created here or by ExecuTorch; exactly one must have ENN's key."""
        try:
            values = [bytes(spec.value) for spec in specs if str(spec.key) == KEY]
        except (AttributeError, TypeError) as error:
            rule = "must be a list of keys and values"
            raise UsageError("compile_specs", rule, value=specs, remedy=REMEDY) from error
        if len(values) != 1:
            raise UsageError("compile_specs", f"must hold {KEY} once", value=len(values), remedy=REMEDY)
        return cls.read(values[0])

    @classmethod
    def read(cls, data: bytes) -> EnnTarget:
        options = read_options(data)
        if options.chipset not in [int(chip) for chip in PRODUCT_NAMES]:
            known = ", ".join(str(int(chip)) for chip in PRODUCT_NAMES)
            raise FormatError(f"must be one of {known}", where="ENN options.chipset", value=options.chipset)
        return cls(SamsungChipset(options.chipset), PerformanceMode(options.perf_mode), options.simulate_only)

    @property
    def value(self) -> bytes:
        """The serialized options."""
        return write_options(_options(self))

    def describe(self, *notes: str) -> str:
        """Description of a delegate for the manifest."""
        remarks = [*([SIMULATED] if self.simulate_only else []), *notes]
        return self.chipset.name + (f" ({'; '.join(remarks)})" if remarks else "")


def _options(target: EnnTarget) -> EnnOptions:
    chipset, mode = int(target.chipset), int(target.perf_mode)
    return EnnOptions(chipset=chipset, perf_mode=mode, simulate_only=target.simulate_only)


def gen_samsung_backend_compile_spec_core(options: EnnExecuTorchOptions) -> CompileSpec:
    """The compile spec for options."""
    chip, mode = _chipset(options.chipset), _mode(options.perf_mode)
    if not isinstance(options.simulate_only, bool):
        raise UsageError("simulate_only", "must be True or False", value=options.simulate_only)
    return CompileSpec(key=KEY, value=EnnTarget(chip, mode, options.simulate_only).value)


def gen_samsung_backend_compile_spec(
    chipset: str, perf_mode: PerformanceMode | None = None, *, simulate_only: bool = False
) -> CompileSpec:
    """Compile spec for a chip by its case-insensitive name.

    ``simulate_only``: compile without Samsung's SDK; the program runs on the host and never on the chip.

    >>> gen_samsung_backend_compile_spec("E9955").value.hex()
    '100000004545544f000006000800040006000000e3260000'
    """
    mode = PerformanceMode.DEFAULT if perf_mode is None else perf_mode
    return gen_samsung_backend_compile_spec_core(EnnExecuTorchOptions(chipset, mode, simulate_only))  # type: ignore[arg-type]


def _chipset(value: Any) -> SamsungChipset:
    by_name = {chip.name: chip for chip in PRODUCT_NAMES}
    if isinstance(value, SamsungChipset) and value in PRODUCT_NAMES:
        return value
    if not isinstance(value, str) or value.upper() not in by_name:
        rule = f"must be one of {', '.join(f'{chip.name} ({name})' for chip, name in PRODUCT_NAMES.items())}"
        invalid = getattr(value, "name", value)
        raise UsageError("chipset", rule, value=invalid, remedy=did_you_mean(invalid, by_name))
    return by_name[value.upper()]


def _mode(value: Any) -> PerformanceMode:
    if isinstance(value, str) and value.upper() in PerformanceMode.__members__:
        return PerformanceMode[value.upper()]
    if isinstance(value, bool) or value not in tuple(PerformanceMode):
        raise not_among("perf_mode", value, PerformanceMode.__members__)
    return PerformanceMode(value)


def read_spec(specs: object) -> tuple[str, bool] | None:
    """The chip of a compile spec or of a list of them, and whether it is for simulation only; None for others."""
    listed = specs if isinstance(specs, Sequence) else [specs]
    keys = [getattr(spec, "key", None) for spec in listed]
    if KEY not in keys or None in keys:
        return None
    target = EnnTarget.of(listed)
    return target.chipset.name, target.simulate_only
