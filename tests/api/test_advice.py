"""What a report advises about operators that a device does not take."""

from __future__ import annotations

import pytest

from edgewright.api.compile_report import CompileReport
from edgewright.lowering.partition.report import PartitionReport, Verdict

TAKEN = Verdict("conv2d", "conv", "net", "nxp", 0)
FLOAT = Verdict("linear", "head", "net", rejections=("precision must be static_quant; got fp32",))
NO_ROW = Verdict("layer_norm", "norm", "net", rejections=("nxp has no row for layer_norm",))
AT_THE_END = Verdict("quantize", "q", "", rejections=("conversion between floating point and integers",))


@pytest.mark.parametrize(
    ("verdicts", "precision", "advice"),
    [
        ([TAKEN], "int8", ""),
        ([AT_THE_END, TAKEN], "int8", ""),
        ([TAKEN, NO_ROW], "int8", "1 of 2 operators is left to the CPU: `edgewright explain` says why"),
        ([FLOAT, NO_ROW], "float", "2 of 2 operators are left to the CPU: this target works on integers, "
         "try --quantize int8"),
        ([TAKEN, FLOAT], "int8", "1 of 2 operators is left to the CPU: `edgewright explain` says why"),
    ],
)  # fmt: skip
def test_advice(verdicts: list[Verdict], precision: str, advice: str) -> None:
    report = CompileReport(
        "imxrt700", "nxp", precision, methods={"forward": PartitionReport("forward", "nxp", verdicts)}
    )
    assert report.advice == advice
