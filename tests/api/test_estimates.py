"""Estimates in reports: lower bounds are marked as such, and layers have the user's names."""

from __future__ import annotations

import pytest
import torch

import edgewright as ew
from edgewright.api.compile_report import CompileReport, measures, time_note
from edgewright.lowering.partition.report import PartitionReport

BOUND = {"basis": "a bound", "target": "t", "cycles": 10, "inferences_per_second": 1e6, "seconds": [1e-6, 2e-4]}
ESTIMATE = {"basis": "an estimate", "target": "u", "cycles": 10, "inferences_per_second": 1e3}


def report(target: str, *estimates: dict[str, object]) -> CompileReport:
    return CompileReport(target, "b", methods={"forward": PartitionReport("forward", "b", estimates=list(estimates))})


def test_a_lower_bound_is_not_shown_like_an_estimate() -> None:
    bound, estimate = report("t", BOUND, BOUND), report("u", ESTIMATE)
    assert (measures(bound)[-1], measures(estimate)[-1]) == ("≥2.00 µs", "1.00 ms")
    assert time_note([bound, estimate]) == "time: t at least 2.00 µs, at most 400 µs by a bound; u by an estimate"
    assert bound.to_dict()["estimated_range_ms"] == pytest.approx((2e-3, 0.4))
    assert report("v", BOUND, ESTIMATE).time_range is None


class Two(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 3)
        self.head = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.stem(x).relu().mean((2, 3)))
        return y


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256", "sm8550", "e9955", "imxrt700"])
def test_layers_have_the_names_of_modules(target: str) -> None:
    data = [torch.rand(1, 3, 8, 8) for _ in range(4)]
    result = ew.compile(Two(), data[0], target, quantize="int8", calibration=data, simulate=True, check=False)
    names = {layer["name"] for estimate in result.report.estimates for layer in estimate["layers"]}
    assert {"stem", "head"} <= names
    assert not [name for name in names if name.startswith(("value_", "#", "output_"))]
    assert (result.report.time_range is not None) == (target in ("sm8550", "e9955"))
