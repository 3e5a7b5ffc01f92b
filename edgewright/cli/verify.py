"""``edgewright verify``: check a file, whether it can run here, and whether a bundle passes its test cases"""

from __future__ import annotations

import argparse
import json
import math
import os
from dataclasses import asdict
from typing import Any

import edgewright.runtime.stock_kernels  # noqa: F401  (fills the registry)
from edgewright.backends.registry import available_delegates, describe_backend
from edgewright.cli.inspect import kind_of
from edgewright.console import console, plural, table
from edgewright.errors import MismatchError, MissingError
from edgewright.formats.etdump import read_etdump
from edgewright.formats.ptd import read_data
from edgewright.formats.schema import ExecutionPlan
from edgewright.runtime.program import Runtime
from edgewright.runtime.registry import KERNELS
from edgewright.runtime.verify_bundle import CaseResult, verify_bundle

EXAMPLES = """examples:
  edgewright verify m.pte                       # is it valid, and can it run here?
  edgewright verify m.bpte --atol 1e-3          # do its test cases pass?
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("file", metavar="m.bpte", help="a .bpte to run on its own test cases; a .pte, .ptd or .etdp to check")
    add("--data", action="append", default=[], metavar="w.ptd", help="external weights; repeatable")
    add("--json", action="store_true", help="print the result as JSON")
    add("--rtol", type=float, default=1e-5, help="allowed relative difference (default: 1e-5)")
    add("--atol", type=float, default=1e-8, help="allowed absolute difference (default: 1e-8)")


def run(args: argparse.Namespace) -> int:
    kind = kind_of(args.file)
    if kind == "bpte":
        return _bundle(args)
    if kind == "pte":
        return _program(args)
    (read_data if kind == "ptd" else read_etdump)(args.file)
    _say(args, f"{os.path.basename(args.file)}: the file is valid")
    _tell(args, {"format": kind, "sound": True})
    return 0


def _tell(args: argparse.Namespace, facts: dict[str, Any]) -> None:
    if args.json:
        print(json.dumps({"file": os.path.basename(args.file), **facts}, indent=2))


def _say(args: argparse.Namespace, message: str) -> None:
    if not args.quiet and not args.json:
        console().print(message, style="green", soft_wrap=True)


def _bundle(args: argparse.Namespace) -> int:
    results = verify_bundle(args.file, args.data, rtol=args.rtol, atol=args.atol)
    name, failed = os.path.basename(args.file), [r for r in results if not r.passed]
    cases = [{**asdict(r), "max_error": None if math.isinf(r.max_error) else r.max_error} for r in results]
    _tell(args, {"format": "bpte", "sound": True, "passed": not failed, "cases": cases})
    if not args.quiet and not args.json:
        columns = ("method", ">case", ">outputs compared", ">largest difference", "verdict")
        console().print(table(f"{name}, rtol {args.rtol:g}, atol {args.atol:g}", columns, map(_row, results)))
    if failed:
        worst = max(failed, key=lambda r: r.max_error)
        rule = f"every test case must match within rtol {args.rtol:g} and atol {args.atol:g}"
        off = f"by {worst.max_error:.3g}" if math.isfinite(worst.max_error) else "in shape, type or finiteness"
        summary = f"{len(failed)} of {len(results)} that differ, most in case {worst.case} of {worst.method!r} ({off})"
        remedy = "If the bundle was written on other hardware, a larger --rtol and --atol may be right."
        raise MismatchError(name, rule, value=summary, remedy=remedy)
    _say(args, f"\n{plural(len(results), 'test case')} passed")
    return 0


def _row(result: CaseResult) -> tuple[object, ...]:
    difference = "not comparable" if math.isinf(result.max_error) else f"{result.max_error:.3g}"
    verdict = ("passed" if result.compared else "ran") if result.passed else "FAILED"
    return result.method, result.case, result.compared, difference, verdict


def _program(args: argparse.Namespace) -> int:
    """Run all checks: file format, kernels and delegates, then the arguments of every instruction."""
    program = Runtime.get().load_program(args.file, args.data)
    name = os.path.basename(args.file)
    missing = {plan.name: _missing(plan) for plan in program.program.execution_plan}
    _say(args, f"{name}: the file is valid")
    if any(missing.values()):
        lines = [f"{method}: {reason}" for method, reason in missing.items() if reason]
        remedy = "Install what provides them, or add your own with register_kernel and register_delegate."
        raise MissingError(name, f"needs components that are not installed: {'; '.join(lines)}", remedy=remedy)
    for method in program.method_names:
        program.load_method(method).close()
    _say(args, f"{name}: {plural(len(missing), 'method')} can run here ({', '.join(missing)})")
    _tell(args, {"format": "pte", "sound": True, "runs_here": list(missing)})
    return 0


def _missing(plan: ExecutionPlan) -> str:
    """The missing operators and delegates of a method, as text."""
    operators = sorted({o.key for o in plan.operators or ()} - set(KERNELS))
    delegates = sorted({d.id for d in plan.delegates} - set(available_delegates()))
    parts = [f"operators {', '.join(operators)}"] if operators else []
    parts += [f"delegates {', '.join(map(describe_backend, delegates))}"] if delegates else []
    return " and ".join(parts)
