"""``edgewright bundle``: a program with inputs and the outputs it must give, so that the file can test itself."""

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
  edgewright bundle m.pte --inputs x.npz -o m.bpte          # what the program gives here is what it must give
  edgewright bundle m.pte --inputs x.npz --expected y.npz -o m.bpte
  edgewright verify m.bpte
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("model", metavar="m.pte", help="the program")
    add("-o", "--output", required=True, metavar="m.bpte", help="where to write the bundle")
    add("--inputs", action="append", required=True, metavar="x.npz", help="inputs of a test case; several make several")
    add(
        "--expected", action="append", default=[], metavar="y.npz",
        help="outputs of each test case, in the same order; what the program gives on this machine if left out",
    )  # fmt: skip
    add("--method", default="forward", help="the method to test (default: forward)")
    add("--data", action="append", default=[], metavar="w.ptd", help="external weights; may be given several times")
    add("--json", action="store_true", help="print what was written, as JSON")


def run(args: argparse.Namespace) -> int:
    output = Path(args.output)
    if output.suffix != ".bpte":
        raise UsageError(str(output), "must end in .bpte")
    if args.expected and len(args.expected) != len(args.inputs):
        raise UsageError(
            "--expected", f"must be given {len(args.inputs)} times, as --inputs is", value=len(args.expected)
        )
    method = Runtime.get().load_program(args.model, args.data).load_method(args.method)
    calls = [load_inputs(path, method.metadata) for path in args.inputs]
    made = cases(method, calls)
    if args.expected:
        made = [TestCase(c.inputs, _expected(path, c.expected)) for c, path in zip(made, args.expected, strict=True)]
    view, _ = open_source(args.model, "program")
    count = write_bundled(BundledProgram(bytes(view), {args.method: made}), output)
    twin = Path(args.model).with_suffix(".twin")
    if twin.exists() and twin != output.with_suffix(".twin"):
        write_file(output.with_suffix(".twin"), [twin.read_bytes()])  # for `edgewright verify`
    facts = {"file": str(output), "bytes": count, "method": args.method, "cases": len(made)}
    if args.json:
        print(json.dumps(facts))
    elif not args.quiet:
        told = f"wrote {clean(output)} ({size(count)}), {plural(len(made), 'test case')}"
        console().print(told, style="bold green", soft_wrap=True)
    return 0


def cases(method: Method, calls: Sequence[Sequence[Any]]) -> list[TestCase]:
    """Test cases whose outputs are what the method gives on this machine, each from a fresh state."""
    made = []
    for inputs in calls:
        method.reset()
        made.append(TestCase(list(inputs), method.execute(list(inputs))))
    return made


def _expected(path: str, given: Sequence[Any]) -> list[Any]:
    """Outputs from a file, which must be of the kind that the program gives."""
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as held:
            found = [held[name] for name in held.files]
    except (OSError, ValueError) as error:
        raise InputError(path, f"must be an .npz of outputs: {error}") from error
    shapes = [[getattr(v, "shape", None) for v in side] for side in (found, given)]
    if shapes[0] != shapes[1]:
        raise InputError(os.fspath(path), f"must hold outputs of shapes {shapes[1]}", value=shapes[0])
    return found
