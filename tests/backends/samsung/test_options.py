"""Compile options: the bytes that stock's software writes and reads."""

from __future__ import annotations

import pytest

from edgewright.backends.samsung import (
    COMPILE_OPTION_SCHEMA_NAME,
    ENN_COMPILE_OPTION_TITLE,
    EnnExecuTorchOptions,
    EnnPartitioner,
    PerformanceMode,
    SamsungChipset,
    gen_samsung_backend_compile_spec,
    gen_samsung_backend_compile_spec_core,
)
from edgewright.backends.samsung.target import EnnTarget
from edgewright.errors import FormatError, UsageError

STOCK = {  # by stock's own writer
    ("E9955", None): "100000004545544f000006000800040006000000e3260000",
    ("e9955", PerformanceMode.HIGH_PERFORMANCE): "100000004545544f08000c00080007000800000000000001e3260000",
}


@pytest.mark.parametrize(("chipset", "mode"), STOCK)
def test_bytes_are_stocks(chipset: str, mode: PerformanceMode | None) -> None:
    spec = gen_samsung_backend_compile_spec(chipset, perf_mode=mode)
    assert (spec.key, spec.value.hex()) == (ENN_COMPILE_OPTION_TITLE, STOCK[chipset, mode])
    assert EnnTarget.of([spec]) == EnnTarget(SamsungChipset.E9955, mode or PerformanceMode.DEFAULT)


def test_names_and_numbers_are_stocks() -> None:
    assert (ENN_COMPILE_OPTION_TITLE, COMPILE_OPTION_SCHEMA_NAME) == ("enn_compile_options", "compile_options_def")
    assert {c.name: int(c) for c in SamsungChipset} == {"UNDEFINED_CHIP_V": 0, "E9955": 9955, "E9965": 9965}
    assert {m.name: int(m) for m in PerformanceMode} == {"DEFAULT": 0, "HIGH_PERFORMANCE": 1}
    made = gen_samsung_backend_compile_spec_core(EnnExecuTorchOptions(SamsungChipset.E9965))
    assert EnnTarget.of([made]).chipset is SamsungChipset.E9965


def test_simulation_is_a_field_behind_stocks() -> None:
    spec = gen_samsung_backend_compile_spec("E9955", simulate_only=True)
    assert EnnTarget.of([spec]) == EnnTarget(SamsungChipset.E9955, PerformanceMode.DEFAULT, True)
    table = int.from_bytes(spec.value[:4], "little")
    vtable = table - int.from_bytes(spec.value[table : table + 4], "little", signed=True)
    place = table + int.from_bytes(spec.value[vtable + 4 : vtable + 6], "little")
    assert int.from_bytes(spec.value[place : place + 4], "little") == 9955  # where stock's readers look for the chip


def test_names_that_nobody_has_are_refused() -> None:
    with pytest.raises(UsageError, match=r"chipset: must be one of E9955 \(Exynos 2500\), E9965 .*; got E9999"):
        gen_samsung_backend_compile_spec("E9999")
    with pytest.raises(UsageError, match="chipset"):
        gen_samsung_backend_compile_spec_core(EnnExecuTorchOptions())
    with pytest.raises(UsageError, match="perf_mode: must be one of DEFAULT, HIGH_PERFORMANCE; got 7"):
        gen_samsung_backend_compile_spec("E9955", 7)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="simulate_only"):
        gen_samsung_backend_compile_spec("E9955", simulate_only=1)  # type: ignore[arg-type]


def test_a_partitioner_wants_one_spec_of_ours() -> None:
    assert EnnPartitioner().target() == EnnTarget.of([gen_samsung_backend_compile_spec("E9955")])
    for wrong in ([], [gen_samsung_backend_compile_spec("E9955")] * 2, [7]):
        with pytest.raises(UsageError, match="compile_specs"):
            EnnPartitioner(wrong)


def test_options_of_files_are_not_believed() -> None:
    whole = gen_samsung_backend_compile_spec("E9955", PerformanceMode.HIGH_PERFORMANCE, simulate_only=True).value
    for size in range(len(whole)):
        with pytest.raises(FormatError):
            EnnTarget.read(whole[:size])
    for place in range(len(whole)):
        for bits in (0xFF, 0x80, 0x01):
            changed = bytearray(whole)
            changed[place] ^= bits
            try:
                EnnTarget.read(bytes(changed))
            except FormatError:
                continue
