"""``edgewright demo``: a small trained classifier, compiled for one device of every backend and run on this machine."""

from __future__ import annotations

import argparse
import importlib.util
import json
import shlex
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.text import Text

from edgewright.api.compile_report import LEGEND, MEASURES, measures, time_note
from edgewright.backends.registry import in_order
from edgewright.backends.targets import backend_targets
from edgewright.cli.parser import wrap_line
from edgewright.console import clean, console, progress, table
from edgewright.demo import MODEL, images
from edgewright.errors import UsageError
from edgewright.runtime.program import Runtime
from edgewright.units import duration, share, size

if TYPE_CHECKING:
    from edgewright.api.compile_report import CompileReport
    from edgewright.api.result import CompileResults
    from edgewright.demo.images import Array

_DEFAULT_IMAGES = 100
EXAMPLES = """examples:
  edgewright demo
  edgewright demo --target ethos-u85-256 --target sm8750 --images 168
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add(
        "--target",
        action="append",
        default=[],
        help=f"the device (default: {', '.join(default_targets())}); repeatable",
    )
    add(
        "--images", type=int, metavar="N", help=f"classify N of 168 (default: {_DEFAULT_IMAGES}; without torch all 200)"
    )
    add("--json", action="store_true", help="print the result as JSON")


def default_targets() -> list[str]:
    """One device of every backend."""
    return [info.demo_target or backend_targets(info)[0].name for info in in_order()]


def run(args: argparse.Namespace) -> int:
    inputs, labels = images.load()
    compiles = importlib.util.find_spec("torch") is not None
    count = (_DEFAULT_IMAGES if compiles else len(inputs)) if args.images is None else args.images
    maximum = len(inputs) - images.CALIBRATION_COUNT if compiles else len(inputs)
    if not 1 <= count <= maximum:
        remedy = "The model is calibrated with the others." if compiles else ""
        raise UsageError("--images", f"must be 1 to {maximum}", value=count, remedy=remedy)
    if not compiles:
        return _run_shipped(args, inputs[:count], labels[:count])
    start = time.perf_counter()
    original, results = _compiled(args, inputs, labels[:count])
    title = f"CifarNet in int8 on {count} test images; every device runs on this machine"
    _show(args, title, original, results, time.perf_counter() - start)
    return 0


def _compiled(args: argparse.Namespace, inputs: list[Array], labels: Array) -> tuple[float, CompileResults]:
    """Accuracy of the model in torch, and the results of every target."""
    from edgewright.api.progress import Stages
    from edgewright.cli.model_options import quiet_imports

    names = args.target or default_targets()
    with Stages(args.quiet) as stages, quiet_imports():
        with stages("import torch"):
            from edgewright.api.compile import CompileSession, Settings, build_all, evaluate_metric
            from edgewright.api.quantization import quiet_warnings
            from edgewright.api.recipe import Recipe
            from edgewright.backends.targets import find_target
            from edgewright.demo.model import calibration, cifarnet

        def accuracy(model: Any) -> float:
            correct = 0
            with stages("classify", f"classifying {len(labels)} images", total=len(labels)) as step:
                for x, label in zip(inputs, labels, strict=False):
                    correct += int(np.asarray(model(torch_tensor(x))).argmax() == label)
                    step()
            return correct / len(labels)

        with quiet_warnings():
            model = cifarnet()
            settings = Settings(Recipe("int8"), metric=accuracy)
            session = CompileSession(model, model.example_inputs(), calibration(), settings, stages)
            original = evaluate_metric(accuracy, session.eager)
            return original, build_all(session, list(dict.fromkeys(map(find_target, names))))


def torch_tensor(x: Array) -> Any:
    import torch

    return torch.from_numpy(x)


def _run_shipped(args: argparse.Namespace, inputs: list[Array], labels: Array) -> int:
    """Run the precompiled program that the package ships."""
    method = Runtime.get().load_program(MODEL).load_method("forward")
    times, right = [], 0
    with progress("classifying", len(inputs), quiet=args.quiet) as step:
        for x, label in zip(inputs, labels, strict=True):
            start = time.perf_counter()
            (logits,) = method.execute([x])
            times.append(time.perf_counter() - start)
            right += int(logits.argmax() == label)
            step()
    facts = {"target": "this machine", "precision": "float", "right": right / len(labels), "images": len(labels)}
    if args.json:
        print(json.dumps({"targets": {"this machine": facts}}, indent=2))
        return 0
    out = console()
    out.print(f"{right} of {len(labels)} images correct: {share(right / len(labels))}", style="bold green")
    if not args.quiet:
        line = "torch is not installed, so this runs the .pte that comes with Edgewright"
        out.print(line, soft_wrap=True)
        planned = size(method.metadata.planned_bytes)
        speed = f"{duration(statistics.median(times))} per image (median)"
        out.print(f"planned memory {planned}; {speed}", soft_wrap=True)
        out.print("To compile it for every device: pip install 'edgewright[all]'", soft_wrap=True)
    return 0


# --------------------------------------------------------------------------------------------------------- output

_COLUMNS = ("device", ">accuracy", ">SQNR", *MEASURES)


def _show(args: argparse.Namespace, title: str, original: float, results: CompileResults, seconds: float) -> None:
    if args.json:
        print(json.dumps({"original": original, **results.report.to_dict()}, indent=2))
        return
    out = console()
    if args.quiet:
        for result in results.values():
            out.print(f"{result.target} {_accuracy(result.report)}")
        return
    rows: list[tuple[str | Text, ...]] = [
        ("torch, float", share(original), *[""] * 6),
        *(_row(r.report) for r in results.values()),
    ]
    out.print(table(title, _COLUMNS, rows, tight=True))
    out.print()
    basis = [f"SQNR: {r.report.measured_on}" for r in results.values()][:1]
    for line in (LEGEND, *basis, time_note([r.report for r in results.values()])):
        out.print(line, style="dim", soft_wrap=True)
    for result in results.values():
        if result.report.simulated:
            line = f"{result.target}: runs on this machine only: {result.report.simulated}"
            out.print(clean(line), style="yellow", soft_wrap=True)
    for name, error in results.failures.items():
        out.print(clean(f"{name}: {error}"), style="red", soft_wrap=True)
    out.print(f"finished in {duration(seconds)}; next steps:", style="bold")
    model, data = "edgewright.demo.model:cifarnet", "edgewright.demo.model:calibration"
    for command in (
        f"edgewright explain {model} --target ethos-u55-128 --quantize int8",
        f"edgewright compile {model} --target ethos-u55-128 --quantize int8 --calibrate {data} -o cifarnet.pte",
        f"edgewright profile {shlex.quote(str(MODEL))}",
        "edgewright doctor",
    ):
        for line in wrap_line(f"  {command}", out.width):
            out.print(line, soft_wrap=True)


def _row(report: CompileReport) -> tuple[str | Text, ...]:
    decibels = Text("" if report.sqnr is None else f"{report.sqnr:.1f}", "red" if report.poor else "")
    return (report.target, _accuracy(report), decibels, *measures(report))


def _accuracy(report: CompileReport) -> str:
    return "" if report.metric is None else share(report.metric)
