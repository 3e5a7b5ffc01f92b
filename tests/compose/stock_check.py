"""The reference beside stock's XNNPACK: device graphs as blobs, run by ExecuTorch's own runtime."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewright.backends.xnnpack.lut_chains import split_chains
from edgewright.backends.xnnpack.transposed_squares import separate_operands
from edgewright.ir.core.conv import is_core_pointwise_gemm
from edgewright.ir.graph import Array, Graph, Value
from tests.backends.device import program
from tests.compose import judge
from tests.compose.builder import Case, build
from tests.compose.core import Core, dynamic
from tests.compose.outcome import Failure
from tests.compose.spec import Spec
from tests.support.stock import StockError, stock

MODES = ("f32", "i8", "dynamic", "mixed", "f16")  # that XNNPACK has
_BOUND = 1e-5  # of the largest: its sums are in another order


def check_stock(spec: Spec) -> Failure | str | None:
    """None if both agree; a sentence if stock does not take the graph."""
    case = build(spec, Core())
    reason = _incomparable(case.graph)
    if reason:
        return reason
    split_chains(case.graph)
    separate_operands(case.graph)
    wanted = judge.reference(case.graph, case.inputs, _execute)
    try:
        made = stock().run(program(case.graph), "forward", case.inputs)
    except StockError as error:
        if "crashed" in str(error):
            return Failure("crash of stock", str(error)[:200])
        return f"stock: {str(error)[-80:]}"
    return _compared(case, [np.asarray(m) for m in made], wanted)


def _incomparable(graph: Graph) -> str:
    """Why a graph is not compared: XNNPACK crashes or is wrong, on what no file of ours has; or it has no one rule."""
    if any(op.kind == "core.clone" for op in graph.ops):
        return "stock: crashes on some copies, of which our files have none"
    kinds: dict[Value, set[bool]] = {}
    for op in graph.ops:
        if op.kind in ("core.conv2d", "core.depthwise_conv2d") and dynamic(op.args["input"]):
            rows = op.kind == "core.conv2d" and is_core_pointwise_gemm(op)
            kinds.setdefault(op.args["input"], set()).add(rows)
    if any(len(found) > 1 for found in kinds.values()):
        return "stock: is wrong where pointwise and other convolutions share dynamically quantized rows; ours do not"
    if any(op.kind == "core.mul" and op.args["self"] is op.args["other"] and op.args["self"].q for op in graph.ops):
        return "stock: rounds 8-bit squares by one of two rules, as its optimizer meets them; half steps differ"
    return ""


def _execute(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    from tests.compose.dialects import DIALECTS

    return DIALECTS["core"].execute(graph, inputs)


def _compared(case: Case, made: list[Array], wanted: list[Array]) -> Failure | None:
    detail = judge.differences(case.graph, case.inputs, _execute, _BOUND, [made], wanted)
    return Failure("differs from stock", detail) if detail else None
