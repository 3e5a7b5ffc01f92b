"""Quantization for a runtime with fewer kernels: annotation decomposes what lowering for that runtime decomposes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import gelu, glu

import edgewright as ew
from edgewright.backends import find_partitioner, find_quantizer
from edgewright.errors import UsageError
from edgewright.formats.operator_signatures import OPERATORS
from edgewright.frontend.importer import import_linked
from edgewright.frontend.prepare import prepare
from edgewright.ir.aten.ops import OPS
from edgewright.lowering.kernel_resolution import composites, kernel_set
from edgewright.quantize.graph_module import import_module

WITHOUT_GLU = sorted(set(OPERATORS) - {"aten::glu.out"})


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 1)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(gelu(glu(self.conv(x), 1)).flatten(1))


def _names(graph: Any) -> Counter[str]:
    rows = [OPS.of(op) for op in graph.ops]
    return Counter(row.name if row else op.kind for row, op in zip(rows, graph.ops, strict=True))


@pytest.mark.parametrize("runtime", ["wheel", "portable-only", WITHOUT_GLU], ids=["wheel", "portable-only", "list"])
@pytest.mark.parametrize("backend", ["xnnpack", "nxp"])
def test_annotation_and_lowering_see_the_same_operators(backend: str, runtime: Any) -> None:
    exported = torch.export.export(Gated().eval(), (torch.randn(1, 2, 2, 2),))
    quantizer = find_quantizer(backend)().set_runtime(runtime)
    seen, _ = import_module(quantizer.transform_for_annotation(exported.module()))
    no_decompose = composites(find_partitioner(backend).backend)
    lowered, _ = import_linked(prepare(exported, kernel_set(runtime).supports, no_decompose))
    assert _names(seen) == _names(lowered)


def test_what_the_runtime_lacks_is_quantized_in_parts() -> None:
    x = torch.randn(1, 2, 2, 2)
    compiled = ew.compile(
        Gated().eval(), (x,), "imxrt700", quantize="int8", calibration=[(x,)], runtime=WITHOUT_GLU, simulate=True,
        quiet=True, evaluate=0,
    )  # fmt: skip
    report = compiled.program.partition_reports["forward"]
    assert {"sigmoid", "mul"} <= {verdict.operator for verdict in report.delegated}


def test_an_unknown_runtime_is_rejected_when_it_is_set() -> None:
    with pytest.raises(UsageError, match="wheel"):
        find_quantizer("xnnpack")().set_runtime("weel")
