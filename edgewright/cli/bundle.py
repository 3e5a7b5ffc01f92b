"""``edgewright bundle``: a program with test inputs and expected outputs, so that the file can test itself."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgewright.cli.inputs import load_inputs
from edgewright.console import clean, console, plural
from edgewright.errors import InputError, UsageError
from edgewright.files import open_source, write_file
from edgewright.formats.bpte import BundledProgram, TestCase, write_bundled
from edgewright.runtime.method import Method
from edgewright.runtime.program import Runtime
from edgewright.units import size

EXAMPLES = """examples:
  edgewright bundle m.pte --inputs x.npz -o m.bpte          # expected outputs: those computed on this machine
  edgewright bundle m.pte --inputs x.npz --expected y.npz -o m.bpte
  edgewright verify m.bpte
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("model", metavar="m.pte", help="the program")
    add("-o", "--output", required=True, metavar="m.bpte", help="where to write the bundle")
    add("--inputs", action="append", required=True, metavar="x.npz", help="inputs of a test case; repeatable")
    add(
        "--expected", action="append", default=[], metavar="y.npz",
        help="expected outputs of each test case, in the same order (default: computed on this machine)",
    )  # fmt: skip
    add("--method", default="forward", help="the method to test (default: forward)")
    add("--data", action="append", default=[], metavar="w.ptd", help="external weights; repeatable")
    add("--json", action="store_true", help="print a summary as JSON")


def run(args: argparse.Namespace) -> int:
    output = Path(args.output)
    if output.suffix != ".bpte":
        raise UsageError(str(output), "must end in .bpte")
    if args.expected and len(args.expected) != len(args.inputs):
        raise UsageError(
            "--expected", f"must be passed {len(args.inputs)} times, like --inputs", value=len(args.expected)
        )
    method = Runtime.get().load_program(args.model, args.data).load_method(args.method)
    calls = [load_inputs(path, method.metadata) for path in args.inputs]
    test_cases = cases(method, calls)
    if args.expected:
        pairs = zip(test_cases, args.expected, strict=True)
        test_cases = [TestCase(c.inputs, _read_expected(path, c.expected)) for c, path in pairs]
    view, _ = open_source(args.model, "program")
    count = write_bundled(BundledProgram(bytes(view), {args.method: test_cases}), output)
    twin = Path(args.model).with_suffix(".twin")
    if twin.exists() and twin != output.with_suffix(".twin"):
        write_file(output.with_suffix(".twin"), [twin.read_bytes()])  # for `edgewright verify`
    facts = {"file": str(output), "bytes": count, "method": args.method, "cases": len(test_cases)}
    if args.json:
        print(json.dumps(facts))
    elif not args.quiet:
        summary = f"wrote {clean(output)} ({size(count)}), {plural(len(test_cases), 'test case')}"
        console().print(summary, style="bold green", soft_wrap=True)
    return 0


def cases(method: Method, calls: Sequence[Sequence[Any]]) -> list[TestCase]:
    """Test cases whose expected outputs are computed on this machine, each from the initial state."""
    collected = []
    for inputs in calls:
        method.reset()
        collected.append(TestCase(list(inputs), method.execute(list(inputs))))
    return collected


def _read_expected(path: str, actual: Sequence[Any]) -> list[Any]:
    """Expected outputs from a file; their shapes must match the program's outputs."""
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = [archive[name] for name in archive.files]
    except (OSError, ValueError) as error:
        raise InputError(path, f"must be an .npz of outputs: {error}") from error
    shapes = [[getattr(v, "shape", None) for v in side] for side in (arrays, actual)]
    if shapes[0] != shapes[1]:
        raise InputError(os.fspath(path), f"must hold outputs of shapes {shapes[1]}", value=shapes[0])
    return arrays
