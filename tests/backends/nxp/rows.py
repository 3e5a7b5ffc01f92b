"""Rows of Neutron on the op table's samples: quantized as their ports say, lowered, and run here and by LiteRT."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from edgewright.backends.nxp import INFO
from edgewright.backends.nxp.build_graph import to_tflite
from edgewright.backends.nxp.dialect import DIALECT
from edgewright.backends.nxp.ops import ROWS
from edgewright.backends.nxp.rules import GLOBAL_RULES
from edgewright.backends.nxp.tflite_file import write_tflite
from edgewright.backends.table import Backend
from tests.backends.nxp.litert import run
from tests.support import quantized_calls
from tests.support.quantized_calls import Case, Scheme

BACKEND = Backend(INFO, ROWS, GLOBAL_RULES)


def _axis(op: str, args: Mapping[str, Any], axis: int) -> int | None:
    """Weights of products of matrices have one scale."""
    return None if op in ("linear", "mm", "addmm") else axis


SCHEME = Scheme(centred=lambda op: op == "bmm", axis=_axis)


def cases(op: str) -> Iterator[Case]:
    """The op table's own calls of an operator, quantized; none of them has operands that are not."""
    for case in quantized_calls.cases(op, SCHEME, BACKEND.rows[op].ports):
        if all(v.q is not None for v in case.graph.inputs):
            yield case


@dataclass
class Outcome:
    """What became of a case. ``steps``: how far from the operator's own result, in its last place."""

    rejections: list[str]
    steps: int = 0
    differences: int = 0


def check(case: Case) -> Outcome:
    """Refused by a rule, or run here and by LiteRT."""
    why = [str(r) for r in BACKEND.rejections(case.op)]
    if why:
        return Outcome(why)
    device = to_tflite(case.copy(), BACKEND.rows)
    twin = DIALECT.execute(device, case.inputs)[0]
    wanted = run(write_tflite(device), case.inputs, "sum" if case.op.kind == "sum" else "tflite")[0]
    return Outcome([], int(case.off(twin)), int((twin != wanted).sum()))
