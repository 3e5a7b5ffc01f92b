"""``edgewright explain``: which operators of a model are delegated and why the rest are not, by module."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from edgewright.api.explain import lines, tree
from edgewright.api.progress import Stages
from edgewright.cli import model_options
from edgewright.cli.model_options import SPEC, make_session, model_name, quiet_imports, selected_targets
from edgewright.cli.npu_layers import npu_layers, show_npu_layers
from edgewright.console import clean, console

if TYPE_CHECKING:
    from edgewright.api.compile_report import CompileReport
    from edgewright.api.result import CompileResult

EXAMPLES = """examples:
  edgewright explain net:Net --target xnnpack
  edgewright explain net:Net --target ethos-u55-128 --quantize int8     # calibration is not needed
  edgewright explain net:Net --target sm8550 --target imxrt700 --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("spec", metavar="SPEC", help=SPEC)
    model_options.add_arguments(parser)
    parser.add_argument("--all", action="store_true", help="also expand modules that are fully delegated")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    targets = selected_targets(args)
    with Stages(args.quiet) as stages, quiet_imports():
        session = make_session(args, stages, evaluate=0, check=False)
        from edgewright.api.compile import build_all
        from edgewright.api.quantization import quiet_warnings

        if not session.calls:
            session.calls.append(session.example)
        with quiet_warnings():
            results = build_all(session, targets, raises=len(targets) == 1)
    if args.json:
        print(json.dumps([_facts(result) for result in results.values()], indent=2))
        return 0
    for result in results.values():
        _show(args, result.report)
        show_npu_layers(npu_layers(result.buffer))
    for name, error in results.failures.items():
        console().print(f"{name}: {clean(error)}", style="red", soft_wrap=True)
    return next((e.exit_code for e in results.failures.values()), 0)


def _facts(result: CompileResult) -> dict[str, Any]:
    report, layers = result.report, npu_layers(result.buffer)
    methods = {name: tree(method.verdicts, name).to_dict() for name, method in report.methods.items()}
    return {"target": report.target, "backend": report.backend, "coverage": report.coverage, "methods": methods,
            "npu_layers": layers}  # fmt: skip


def _show(args: argparse.Namespace, report: CompileReport) -> None:
    out = console()
    for method in report.methods.values():
        out.print(f"{report.target}: {clean(method.verdict)}", style="bold", soft_wrap=True)
        complete = not method.rejected
        if complete and not args.all:
            out.print("all operators are delegated", style="green")
            continue
        for line in lines(tree(method.verdicts, model_name(args.spec)), everything=args.all):
            style = "yellow" if ": " in line else ""
            out.print(clean(line), style=style, soft_wrap=True)
    if "--quantize" in report.advice:
        out.print(f"\n{report.advice}", style="bold", soft_wrap=True)
