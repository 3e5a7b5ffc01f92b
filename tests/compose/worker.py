"""One process of a search: compositions by seed, a line of JSON for each."""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.compose import outcome as graphs
from tests.compose.coverage import Coverage
from tests.compose.dialects import DIALECTS, generate
from tests.compose.names import Names

SHIPPED = 8  # one graph of so many runs the code that users get; the others code that is compiled faster


def work(unit: str, seed: int, count: int) -> None:
    """Prints what became of each; counts of what the engine did come last, and in between."""
    coverage = Coverage()
    for number in range(seed, seed + count):
        say({"seed": number, **outcome(unit, number, coverage)})
        if number % 64 == 63:
            say({"coverage": dict(coverage.counts)})
            coverage.counts.clear()
    say({"coverage": dict(coverage.counts)})


def say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def outcome(unit: str, seed: int, coverage: Coverage) -> dict[str, Any]:
    kind, *rest = unit.split(":")
    try:
        if kind == "model":
            return _model(rest, seed, coverage)
        if kind == "stock":
            return _stock(seed)
        if kind == "object":
            return _object(rest[0], seed)
        return _names(rest[0], seed) if kind == "names" else _graph(kind, rest[0], seed, coverage)
    except Exception as error:  # a defect of the tests or of the reference: it is to be seen, and the search goes on
        return {"failure": f"raised {type(error).__name__}", "detail": str(error)[:300], "spec": ""}


def _graph(dialect: str, cpu: str, seed: int, coverage: Coverage) -> dict[str, Any]:
    spec = generate(dialect, seed)
    if not spec.outputs:
        return {"skipped": "nothing was drawn"}
    found = graphs.check(spec, cpu, coverage, quick=seed % SHIPPED != 0)
    return {} if found is None else {"failure": found.kind, "detail": found.detail, "spec": spec.text()}


def _stock(seed: int) -> dict[str, Any]:
    from tests.compose.stock_check import MODES, check_stock

    spec = generate("core", seed)
    if not spec.outputs or spec.options["mode"] not in MODES:
        return {"skipped": "stock: not of XNNPACK's types"}
    found = check_stock(spec)
    if isinstance(found, str):
        return {"skipped": found}
    return {} if found is None else {"failure": found.kind, "detail": found.detail, "spec": spec.text()}


def _object(target: str, seed: int) -> dict[str, Any]:
    from tests.compose.object_check import check_object, missing_tool

    tool = missing_tool(target)
    if tool:
        return {"skipped": f"{tool} is not installed"}
    spec = generate("core", seed)
    if not spec.outputs:
        return {"skipped": "nothing was drawn"}
    found = check_object(spec, target)
    if isinstance(found, str):
        return {"skipped": found}
    return {} if found is None else {"failure": found.kind, "detail": found.detail, "spec": spec.text()}


_SEEN = Names()


def _names(cpu: str, seed: int) -> dict[str, Any]:
    """A graph of each dialect: kernels of equal names have equal texts."""
    wrong = [found for dialect in DIALECTS for found in _SEEN.add(dialect, seed, cpu)]
    return {"failure": "kernels of one name", "detail": wrong[0], "spec": ""} if wrong else {}


def _model(rest: list[str], seed: int, coverage: Coverage) -> dict[str, Any]:
    from tests.compose.model_check import check_model
    from tests.compose.model_draws import generate_model

    target, precision, *cpu = rest
    spec = generate_model(seed, target, None if precision == "fp32" else precision)
    if not spec.outputs:
        return {"skipped": "nothing was drawn"}
    found = check_model(spec, cpu[0] if cpu else "", coverage)
    if found.skipped:
        return {"skipped": f"{target} {precision}: {found.skipped}"}
    failure = found.failure
    return {} if failure is None else {"failure": failure.kind, "detail": failure.detail, "spec": spec.text()}
