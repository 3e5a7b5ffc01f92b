"""The reference beside stock's XNNPACK: device graphs as blobs, run by ExecuTorch's own runtime."""

from __future__ import annotations

import numpy as np

from tests.backends.device import program
from tests.compose import judge
from tests.compose.builder import Case, build
from tests.compose.core import Core
from tests.compose.outcome import Failure
from tests.compose.spec import Spec
from tests.support.stock import StockError, stock

MODES = ("f32", "i8", "dynamic", "mixed", "f16")  # that XNNPACK has
_BOUND = 1e-5  # of the largest: its sums are in another order


def check_stock(spec: Spec) -> Failure | str | None:
    """None if both agree; a sentence if stock does not take the graph."""
    case = build(spec, Core())
    wanted = judge.reference(case.graph, case.inputs, _execute)
    try:
        made = stock().run(program(case.graph), "forward", case.inputs)
    except StockError as error:
        if "crashed" in str(error):
            return Failure("crash of stock", str(error)[:200])
        return f"stock: {str(error)[-80:]}"
    return _compared(case, [np.asarray(m) for m in made], wanted)


def _execute(graph: judge.Graph, inputs: judge.Sequence[judge.Array]) -> list[judge.Array]:
    from tests.compose.dialects import DIALECTS

    return DIALECTS["core"].execute(graph, inputs)


def _compared(case: Case, made: list[judge.Array], wanted: list[judge.Array]) -> Failure | None:
    detail = judge.differences(case.graph, case.inputs, _execute, _BOUND, [made], wanted)
    return Failure("differs from stock", detail) if detail else None
