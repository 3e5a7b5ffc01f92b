"""Operators, those that backends take, and groups are counted by one function: every report says the same."""

from __future__ import annotations

import re

import pytest

import edgewright as ew
from edgewright.api.compile_report import CompileReport
from edgewright.api.explain import lines, tree
from edgewright.api.result import CompileResult
from edgewright.lowering.partition.report import Verdict, count
from tests.api.models import calls, wide


@pytest.fixture(scope="module")
def report() -> CompileReport:
    return ew.compile(wide(), calls(1)[0], "imxrt700", quantize="int8", calibration=calls(), check=False).report


def test_counts() -> None:
    found = count([
        Verdict("conv2d", "a", "m", "npu", 0, macs=5), Verdict("relu", "b", "m", "npu", 1),
        Verdict("quantize", "c", ""), Verdict("topk", "d", "m", rejections=["no row"], macs=3),
    ])  # fmt: skip
    assert (found.operators, found.delegated, found.on_cpu, found.conversions, found.groups) == (4, 2, 2, 1, 2)
    assert (found.macs, found.macs_delegated) == (8, 5)
    assert found.cpu_summary == "2 of 4 operators are left to the CPU (1 of them a conversion)"
    assert count([]).operators == 0


def test_every_report_counts_the_same(report: CompileReport) -> None:
    (method,) = report.methods.values()
    found = count(method.verdicts)
    assert found.on_cpu > found.conversions > 0
    assert f"{found.delegated} of {found.operators} operators delegated to " in method.verdict
    assert f" in {found.groups} group" in method.verdict
    assert (report.delegated, report.operators) == (found.delegated, found.operators)
    assert report.advice.startswith(found.cpu_summary)
    assert f"{report.target}: {found.cpu_summary}" in CompileResult(None, None, report)._repr_html_()
    root = tree(method.verdicts)
    assert (root.delegated, root.operators) == (found.delegated, found.operators)
    assert re.match(rf"model  {found.delegated} of {found.operators}\b", next(iter(lines(root))))
    assert method.to_dict()["groups"] == found.groups
