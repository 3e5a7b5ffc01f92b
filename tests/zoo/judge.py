"""Compiles a model for one target, runs the file, and says what came of it in a row of plain data.

``status`` of a row:
``ok``       compiled, and the file computes what the graph it was lowered from computes
``refused``  a typed error: its first line is the message
``export``   torch.export cannot capture the model; a typed error, too
``wrong``    the file computes something else: a defect
``error``    an untyped error: a defect
``model``    the model itself does not run in eager torch
``limit``    the time or memory limit was reached
``crash``    the process died: a defect
"""

from __future__ import annotations

import math
import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.portable import PortableProgram
from tests.zoo.targets import ZooTarget

DEFECTS = ("wrong", "error", "crash")
OWN_FAULTS = {"MiscompileError": "wrong", "FormatError": "error"}  # typed errors about files the compiler wrote itself
CALLS = 2  # in a row: state and replayed programs live from the first to the second
# Without the compiler's own check: float32 programs reorder sums, which costs a network at most about half of its 24
# bits (144 dB); integers may differ by a step here and there, where a wrong value leaves less than 10 dB.
LEAST_DB = {False: 60.0, True: 15.0}

_ROUNDING_DB = 15.0  # of two orders of the same sums, one may happen to lose that much more
_PATHS = re.compile(r"/\S*?/site-packages/|" + re.escape(f"{Path(__file__).parents[2]}/"))
SKIPPED = "skipped: "

Row = dict[str, Any]


@dataclass
class Subject:
    """An exported model, its inputs, and what it gives for the first of them in eager torch."""

    exported: Any
    calls: Sequence[Any]
    eager: list[list[Any]]


def make_subject(exported: Any, calls: Sequence[Any]) -> Subject:
    return Subject(exported, calls, evaluate(exported, calls[:CALLS]))


def judge(subject: Subject, target: ZooTarget) -> Row:
    from edgewright.errors import EdgewrightError

    try:
        result = _compiled(subject, target)
        return _measured(subject, target, result)
    except EdgewrightError as error:
        kind = type(error).__name__
        return {"status": OWN_FAULTS.get(kind, "refused"), "error": kind, "message": first_line(error)}
    except MemoryError:
        return {"status": "limit", "message": "memory"}
    except Exception as error:
        return untyped(error)


def untyped(error: Exception) -> Row:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/edgewright/" in f.filename]
    where = f"{frames[-1].filename.rpartition('/edgewright/')[2]}:{frames[-1].name}" if frames else ""
    text = "".join(traceback.format_exception(error))
    message = f"{type(error).__name__}: {first_line(error)}"
    return {"status": "error", "error": type(error).__name__, "message": message, "where": where, "trace": text[-4000:]}


def first_line(error: Exception) -> str:
    """What an error says first, with paths as they are on any machine."""
    lines = str(error).strip().splitlines()
    return _PATHS.sub("", lines[0])[:300] if lines else ""


def _compiled(subject: Subject, target: ZooTarget) -> Any:
    import edgewright as ew

    if not target.device:
        return PortableProgram(subject.exported)
    data: dict[str, Any] = {"quantize": target.quantize, "calibration": list(subject.calls)} if target.quantize else {}
    return ew.compile(subject.exported, None, target.device, evaluate=0, quiet=True, simulate=target.simulate, **data)


def _measured(subject: Subject, target: ZooTarget, result: Any) -> Row:
    from edgewright.quantize.evaluate import sqnr

    calls = list(subject.calls)[:CALLS]
    method = result.method()
    file = [[_array(o) for o in method.execute(leaves(call))] for call in calls]
    method.close()
    eager = subject.eager
    graph = eager if result.exported is subject.exported else evaluate(result.exported, calls)
    size = len(result.buffer) if result.report is None else result.report.bytes  # large files are not made for it
    row: Row = {"status": "ok", "bytes": size}
    row["sqnr"] = round(sqnr(zip(eager, file, strict=True)), 1)
    row["agreement"] = round(sqnr(zip(graph, file, strict=True)), 1)
    row.update(_facts(result.report))
    difference = _difference(graph, file, row, bool(target.quantize))
    if difference and not target.quantize and _is_rounding(subject, calls, file):
        row["check"] = "as far from float64 as eager torch"
    elif difference:
        row.update(status="wrong", message=difference)
    return row


def _facts(report: Any) -> Row:
    if report is None:
        return {"coverage": 0.0, "operators": 0.0, "delegates": 0}
    shares = report.coverage
    row: Row = {
        "coverage": round(100 * shares["macs"], 2),
        "operators": round(100 * shares["operators"], 2),
        "delegates": sum(method.groups for method in report.methods.values()),
    }
    check = getattr(report, "check", None)
    if check is not None:
        skipped = check.skipped or (not check.inputs and "no inputs")
        row["check"] = f"{SKIPPED}{skipped}" if skipped else check.note or "within rounding"
    return row


def _difference(graph: list[list[Any]], file: list[list[Any]], row: Row, quantized: bool) -> str:
    """What is wrong with a file's results, beside its graph's; empty if nothing is."""
    for call, (wanted, given) in enumerate(zip(graph, file, strict=True)):
        for index, (want, got) in enumerate(zip(wanted, given, strict=True)):
            if np.shape(want) != np.shape(got):
                return f"call {call}, output {index}: shape {list(np.shape(got))}, not {list(np.shape(want))}"
            if not np.array_equal(np.isfinite(_real(want)), np.isfinite(_real(got))):
                return f"call {call}, output {index}: other elements are not finite"
    judged = "check" in row and not row["check"].startswith(SKIPPED)  # it raises
    bound = LEAST_DB[quantized]
    if not judged and not row["agreement"] >= bound:
        return f"{row['agreement']} dB against the graph it was lowered from, less than {bound:g}"
    return ""


def _is_rounding(subject: Subject, calls: Sequence[Any], file: list[list[Any]]) -> bool:
    """True if a float program is nearly as close to the graph in float64 as the graph in float32 is: deep networks with
    random weights may lose more than half of the bits to rounding alone."""
    import copy

    import torch
    from torch.utils import _pytree as pytree

    from edgewright.quantize.evaluate import sqnr

    module = copy.deepcopy(subject.exported.module()).double()
    doubled = pytree.tree_map_only(torch.Tensor, lambda x: x.double() if x.is_floating_point() else x, calls)
    with torch.no_grad():
        exact = [[_array(leaf) for leaf in pytree.tree_leaves(module(*call))] for call in doubled]
    if any(np.shape(a) != np.shape(b) for c, d in zip(exact, file, strict=True) for a, b in zip(c, d, strict=True)):
        return False
    lost = sqnr(zip(exact, subject.eager, strict=True))
    return sqnr(zip(exact, file, strict=True)) >= lost - _ROUNDING_DB


def _real(value: Any) -> Any:
    return np.asarray(value).astype(np.float64)


def evaluate(exported: Any, calls: Sequence[Any]) -> list[list[Any]]:
    """What a graph gives in eager torch for calls that follow each other; its state is put back."""
    import torch
    from torch.utils import _pytree as pytree

    from edgewright.frontend.buffers import preserve_buffers

    module = exported.module()
    with torch.no_grad(), preserve_buffers(exported):
        return [[_array(leaf) for leaf in pytree.tree_leaves(module(*call))] for call in calls]


def is_finite(results: list[list[Any]]) -> bool:
    return all(math.isfinite(float(np.sum(np.abs(_real(value))))) for leaves in results for value in leaves)


def leaves(call: Any) -> list[Any]:
    from torch.utils import _pytree as pytree

    return list(pytree.tree_leaves(call))


def _array(value: Any) -> Any:
    return value.detach().float().numpy().copy() if hasattr(value, "detach") else value
