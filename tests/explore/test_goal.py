"""What a search found: which program is the best of those within the limits."""

from __future__ import annotations

from typing import Any

from edgewright.explore.goal import Findings, Goal, findings
from edgewright.explore.rows import DONE, Outcome, Row


def found(goal: Goal, *programs: dict[str, Any]) -> Findings:
    """What a search finds that compiled these programs: each a recipe's ``quantize`` and ``modules``, and figures."""
    rows, outcomes = [], {}
    for program in programs:
        recipe = {"quantize": program["quantize"], "modules": program.get("modules", {}), "operators": {}}
        row = Row("m", "xnnpack", program["quantize"], "p", "d", recipe)
        figures = {
            "backend": "xnnpack", "taken": 1, "metric": None, "planned_bytes": 0, "sram": None, "coverage": 1.0,
            "cpu_macs": 0, "cpu_bytes": 0, **program,
        }  # fmt: skip
        rows.append(row)
        outcomes[row.key] = Outcome(DONE, figures)
    return findings(goal, rows, outcomes)


def test_of_programs_with_the_same_operators_the_more_accurate_is_best_whatever_noise_says() -> None:
    """Methods of better rounding change constants only: that one run was measured to be faster means nothing."""
    plain = {"quantize": "int8", "bytes": 100, "host_ms": 1.1, "sqnr": 36.0}
    worse = {"quantize": "int8+equalize", "bytes": 100, "host_ms": 1.0, "sqnr": 35.0}
    other = {"quantize": "float", "bytes": 300, "host_ms": 5.0, "sqnr": 90.0}
    for smallest in (True, False):
        result = found(Goal(smallest=smallest, sqnr=30.0), plain, worse, other)
        assert result.best is not None and result.best.name == "int8"
        assert [p.milliseconds for p in result.points] == [1.0, 1.0, 5.0]
        assert [p.pareto for p in result.points] == [True, False, True]


def test_layers_in_another_precision_have_a_time_of_their_own() -> None:
    plain = {"quantize": "int8", "bytes": 100, "host_ms": 1.1, "sqnr": 36.0}
    mixed = {"quantize": "int8+mse", "modules": {"a": "float"}, "bytes": 100, "host_ms": 1.0, "sqnr": 35.0}
    result = found(Goal(sqnr=30.0), plain, mixed)
    assert [p.milliseconds for p in result.points] == [1.1, 1.0]


def test_estimates_differ_with_the_weights() -> None:
    """A compiler that compresses weights estimates other times for others."""
    programs = [
        {"quantize": q, "bytes": 100, "estimated_ms": ms, "estimate_basis": "Vela's estimate", "sqnr": 36.0}
        for q, ms in (("int8", 1.1), ("int8+mse", 1.0))
    ]
    result = found(Goal(sqnr=30.0), *programs)
    assert [p.milliseconds for p in result.points] == [1.1, 1.0]
