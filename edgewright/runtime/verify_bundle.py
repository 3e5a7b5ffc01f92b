"""Verification of a bundled program: runs its test cases and compares the outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.errors import MismatchError, UsageError
from edgewright.files import Source
from edgewright.formats.bpte import Data, read_bundled
from edgewright.ir.dtypes import is_complex
from edgewright.runtime.program import LoadedProgram, Runtime
from edgewright.runtime.twin_delegate import find_twin_file
from edgewright.runtime.values import Limits


@dataclass(frozen=True)
class CaseResult:
    """One test case: the largest difference of any output, and whether all are within tolerance."""

    method: str
    case: int
    max_error: float
    passed: bool
    compared: int


def verify_bundle(
    source: Source, data: Any = None, *, rtol: float = 1e-5, atol: float = 1e-8, limits: Limits | None = None
) -> list[CaseResult]:
    """Run every test case of a ``.bpte``; ``|a - b| <= atol + rtol * |b|``, NaN equals NaN."""
    bundle = read_bundled(source)
    program = Runtime.get().load_program(memoryview(bundle.program), data, limits=limits, twin=find_twin_file(source))
    results = []
    for name, cases in bundle.suites.items():
        for index, case in enumerate(cases):
            outputs = _run(program, name, case.inputs)
            if case.expected and len(outputs) != len(case.expected):
                rule = f"gives {len(outputs)} outputs; the bundle expects {len(case.expected)}"
                raise MismatchError(f"case {index} of {name!r}", rule)
            checks = [compare(a, b, rtol, atol) for a, b in zip(outputs, case.expected, strict=False)]
            error = max((e for e, _ in checks), default=0.0)
            results.append(CaseResult(name, index, error, all(ok for _, ok in checks), len(checks)))
    if not results:
        raise UsageError("bundle", "has no test cases", remedy="Bundle some with edgewright.formats.write_bundled.")
    return results


def _run(program: LoadedProgram, name: str, inputs: Sequence[Data]) -> list[Any]:
    method = program.load_method(name)  # a fresh one per case: state must not leak between them
    try:
        return method.execute(list(inputs))
    finally:
        method.close()


def compare(actual: Any, expected: Any, rtol: float, atol: float) -> tuple[float, bool]:
    """The largest absolute difference, and whether every element is within tolerance."""
    a, b = np.asarray(actual), np.asarray(expected)
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf"), False
    if not a.size:
        return 0.0, True
    wide = np.complex128 if is_complex(a.dtype) else np.float64
    a, b = a.astype(wide), b.astype(wide)
    with np.errstate(invalid="ignore"):
        difference = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        close = difference <= atol + rtol * np.abs(b)
        close &= np.isfinite(b) | (difference == 0)
    return float(np.nanmax(np.where(np.isnan(difference), np.inf, difference))), bool(close.all())
