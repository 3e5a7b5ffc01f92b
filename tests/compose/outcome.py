"""What becomes of a composition: it passes, it differs, or it raises; and the smallest one that does the same."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, replace
from functools import partial

from edgewright.engine.graph.memory import SharedWeights
from edgewright.errors import EdgewrightError
from tests.compose import judge, native
from tests.compose.builder import Builder, Case, build
from tests.compose.coverage import Coverage
from tests.compose.dialects import DIALECTS
from tests.compose.shrink import shrink
from tests.compose.spec import InvalidSpecError, Spec, Step


@dataclass(frozen=True)
class Failure:
    """``kind`` is what a smaller spec must fail with, too."""

    kind: str
    detail: str


def builder(spec: Spec) -> Builder:
    return DIALECTS[spec.dialect].builder()


def check_case(case: Case, cpu: str, coverage: Coverage | None = None, quick: bool = True) -> Failure | None:
    """Native against the reference."""
    dialect = DIALECTS[case.spec.dialect]
    if dialect.varies:
        return _check_forms(case, cpu, coverage, quick)
    return _check_one(case, cpu, coverage, quick, None)


def _check_forms(case: Case, cpu: str, coverage: Coverage | None, quick: bool) -> Failure | None:
    """The graph, one of a larger batch, and the graph again: what was packed for the first is used by the others."""
    shared = SharedWeights()
    cases = [case, *(made for made in [_larger(case.spec)] if made is not None), case]
    return next((f for one in cases if (f := _check_one(one, cpu, coverage, quick, shared)) is not None), None)


def _larger(spec: Spec) -> Case | None:
    """With one more in each input's first dimension, if its steps still fit."""
    inputs = [step if _is_scalar(step) else _longer(step) for step in spec.inputs]
    try:
        return build(replace(spec, inputs=inputs), builder(spec))
    except InvalidSpecError:
        return None


def _is_scalar(step: Step) -> bool:
    """A position of a cache stays one."""
    return step["type"] in ("i32", "i64") and step["shape"] in ([], [1])


def _longer(step: Step) -> Step:
    return {**step, "shape": [step["shape"][0] + 1, *step["shape"][1:]]}


def _check_one(
    case: Case, cpu: str, coverage: Coverage | None, quick: bool, shared: SharedWeights | None
) -> Failure | None:
    dialect = DIALECTS[case.spec.dialect]
    wanted = judge.reference(case.graph, case.inputs, dialect.execute)
    try:
        made = native.run_native(case.graph, case.inputs, dialect.numerics, cpu, coverage, quick, shared)
    except native.GuardError as error:
        return Failure("guard", str(error))
    except (
        EdgewrightError,
        ArithmeticError,
        AssertionError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return Failure(f"{type(error).__name__} in {frame.name}", f"{error}"[:300])
    given = (case.graph, case.inputs, dialect.execute, dialect.bound)
    detail = judge.differences(*given, made.results, wanted)
    return Failure("differs", detail) if detail else None


def check(spec: Spec, cpu: str, coverage: Coverage | None = None, quick: bool = True) -> Failure | None:
    return check_case(build(spec, builder(spec)), cpu, coverage, quick)


def smallest(spec: Spec, cpu: str, kind: str, budget: int = 600) -> Spec:
    return shrink(spec, partial(_fails, cpu=cpu, kind=kind), DIALECTS[spec.dialect].builder, budget)


def _fails(spec: Spec, cpu: str, kind: str) -> bool:
    try:
        failure = check(spec, cpu)
    except InvalidSpecError:
        return False
    except Exception:  # what the reference does not take is no smaller form of the failure
        return False
    return failure is not None and failure.kind == kind


def signature(spec: Spec, kind: str) -> str:
    """Failures of one cause mostly shrink to the same operators."""
    return f"{kind}: " + " ".join(sorted(step.get("kind", step["op"]) for step in spec.steps))
