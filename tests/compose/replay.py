"""Case files and seeds again, and the smallest composition that fails like a given one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.compose import outcome
from tests.compose.dialects import DIALECTS, generate
from tests.compose.shrink import shrink
from tests.compose.spec import InvalidSpecError, Spec
from tests.engine.graphs import cpus

Failed = tuple[str, str]  # kind and detail


def replay(spec: Spec, only: Sequence[str] | None = None) -> str:
    """Empty if a composition passes with every instruction set; both as it is compiled fast and as it ships."""
    if spec.dialect == "model":
        found = _model_failure(spec)
        return "" if found is None else ": ".join(found)
    for cpu in only or cpus():
        for quick in (True, False):
            failure = outcome.check(spec, cpu, quick=quick)
            if failure is not None:
                return f"{cpu}: {failure.kind}: {failure.detail}"
    return ""


def _model_failure(spec: Spec) -> Failed | None:
    from tests.compose.model_check import check_model

    try:
        found = check_model(spec).failure
    except InvalidSpecError:
        raise
    except Exception as error:
        return f"raised {type(error).__name__}", str(error)[:300]
    return None if found is None else (found.kind, found.detail)


def _stock_failure(spec: Spec) -> Failed | None:
    from tests.compose.stock_check import check_stock

    found = check_stock(spec)
    return (found.kind, found.detail) if isinstance(found, outcome.Failure) else None


def _object_failure(target: str) -> Callable[[Spec], Failed | None]:
    from tests.compose.object_check import check_object

    def run(spec: Spec) -> Failed | None:
        found = check_object(spec, target)
        return (found.kind, found.detail) if isinstance(found, outcome.Failure) else None

    return run


def _graph_failure(cpu: str) -> Callable[[Spec], Failed | None]:
    def run(spec: Spec) -> Failed | None:
        found = outcome.check(spec, cpu)
        return None if found is None else (found.kind, found.detail)

    return run


def shrunk(unit: str, seed: int, budget: int = 600) -> tuple[Spec, str]:
    """A seed's composition, or a smaller one that fails in the same way, and with what."""
    kind, *rest = unit.split(":")
    run: Callable[[Spec], Failed | None]
    builder: Callable[[], Any]
    if kind == "stock":
        spec, run, builder = generate("core", seed), _stock_failure, DIALECTS["core"].builder
    elif kind == "object":
        spec, run, builder = generate("core", seed), _object_failure(rest[0]), DIALECTS["core"].builder
    elif kind == "model":
        from tests.compose.model_draws import generate_model
        from tests.compose.models import Models

        spec = generate_model(seed, rest[0], None if rest[1] == "fp32" else rest[1])
        run, builder = _model_failure, Models
    else:
        spec = generate(kind, seed)
        run, builder = _graph_failure(rest[0]), DIALECTS[kind].builder
    return smaller(spec, run, builder, budget)


def smaller(spec: Spec, run: Callable[[Spec], Failed | None], builder: Any, budget: int) -> tuple[Spec, str]:
    first = run(spec)
    if first is None:
        return spec, "passes"

    def fails(candidate: Spec) -> bool:
        try:
            found = run(candidate)
        except Exception:  # what the reference does not take is no smaller form of the failure
            return False
        return found is not None and found[0] == first[0]

    small = shrink(spec, fails, builder, budget)
    return small, ": ".join(run(small) or first)
