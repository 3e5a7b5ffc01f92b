"""Times, sizes and shares for people: every magnitude has a unit that fits, and nothing rounds to what it is not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewright.api.compile_report import CompileReport, measures
from edgewright.lowering.estimates import describe, seconds_per_cycle
from edgewright.lowering.partition.report import PartitionReport, Verdict
from edgewright.units import duration, number, share, size

TIMES = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0 s"), (1e-12, "0.00100 ns"), (1e-9, "1.00 ns"), (1e-8, "10.0 ns"), (9.996e-7, "1.00 µs"),
        (1.2345e-5, "12.3 µs"), (0.5, "500 ms"), (0.99949, "999 ms"), (0.9996, "1.00 s"), (59.96, "60.0 s"),
        (86400, "86,400 s"), (float("nan"), "nan s"), (float("inf"), "inf s"),
    ],
)  # fmt: skip
def test_times(seconds: float, told: str) -> None:
    assert duration(seconds) == told


def test_sizes() -> None:
    counts = (0, 1, 1023, 1024, 1536, 999 << 10, (1 << 20) - 1, 1 << 20, (1 << 63) - 1, 1 << 80)
    assert [size(n) for n in counts] == [
        "0 B", "1 B", "1023 B", "1.00 KiB", "1.50 KiB", "999 KiB", "1.00 MiB", "1.00 MiB", "8.00 EiB", "1,048,576 EiB",
    ]  # fmt: skip


@given(st.floats(1e-9, 999))
def test_times_are_told_to_three_digits(seconds: float) -> None:
    told, unit = duration(seconds).split()
    assert len(told.replace(".", "")) == 3
    assert abs(float(told) * TIMES[unit] / seconds - 1) <= 0.00501


@given(st.floats(0, 1))
def test_only_all_is_all_and_only_nothing_is_none(part: float) -> None:
    assert (share(part) == "100.0%") == (part == 1)
    assert (share(part) == "0.0%") == (part == 0)


def test_numbers() -> None:
    assert [number(n) for n in (0, 0.00951, 0.9996, 12.34, 999.6, 1e9, -3.14159)] == [
        "0", "0.00951", "1.00", "12.3", "1,000", "1,000,000,000", "-3.14",
    ]  # fmt: skip


def test_reports_tell_times_that_are_tiny() -> None:
    """As JSON, they stay numbers."""
    tiny = {"basis": "a formula", "target": "t", "cycles": 1, "inferences_per_second": 1e8}
    method = PartitionReport(
        "forward", "x", [Verdict("add", "add", "", "x", 0, macs=99999), Verdict("mul", "mul", "", macs=1)]
    )
    method.estimates.append(tiny)
    report = CompileReport("t", "x", bytes=2048, planned_bytes=100, methods={"forward": method})
    assert measures(report) == (">99.9%", "2.00 KiB", "100 B", "", "10.0 ns")
    assert report.to_dict()["estimated_ms"] == pytest.approx(1e-5)
    assert ">99.9% of multiply-accumulates" in method.verdict
    assert "100,000,000 inferences/s" in describe(tiny)


@pytest.mark.parametrize(("cycles", "speed"), [(1e-200, 1e-200), (1e-300, 1.0), (-1.0, 5.0), (None, 5.0), ("9", 5.0)])
def test_a_file_whose_cycles_have_no_length(cycles: Any, speed: Any) -> None:
    assert seconds_per_cycle([{"cycles": cycles, "inferences_per_second": speed}]) is None


def test_nobody_formats_on_its_own() -> None:
    """Times, sizes and shares that people read come from one file."""
    root = Path(__file__).parents[2] / "edgewright"
    own = re.compile(r":[>,]*[0-9]*\.[0-9]+(f\} ?(ms|us|µs|s|KiB|MiB|KB|MB)\b|%\})")
    found = [f"{p.relative_to(root)}: {m[0]}" for p in root.rglob("*.py") for m in own.finditer(p.read_text("utf-8"))]
    assert [f for f in found if not f.startswith("units.py")] == []
