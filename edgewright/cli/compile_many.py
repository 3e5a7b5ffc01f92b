"""``edgewright compile --target``: a program for each of several devices, and one table of the results."""

from __future__ import annotations

import argparse
import math
import shlex
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from edgewright.api.compile_report import LEGEND, NOT_REQUESTED, POOR, CompileReport, columns, rows, time_note
from edgewright.api.progress import Stages
from edgewright.cli import artifacts, object_files
from edgewright.cli.build_limits import memory_error
from edgewright.cli.export import show_sources
from edgewright.cli.model_options import DATA_OPTIONS, make_session, model_name, same_options, selected_targets
from edgewright.cli.object_files import Written
from edgewright.console import clean, console, plural, print_error, table
from edgewright.errors import AccuracyError, CoverageError, EdgewrightError, UsageError
from edgewright.files import check_writable, make_folder, write_file
from edgewright.lowering.estimates import npu_memory
from edgewright.units import duration, share

if TYPE_CHECKING:
    from edgewright.api.compile import CompileSession
    from edgewright.api.result import CompileResult, CompileResults
    from edgewright.backends.targets import Target

_BACKEND_ONLY = ("external_constants",)  # options that go with --backend only
_BUNDLED = 4  # inputs in a bundle


@dataclass
class _Written:
    """Files for microcontrollers that programs were written as."""

    sources: list[artifacts.Sources] = field(default_factory=list)
    objects: list[Written] = field(default_factory=list)


def check_options(args: argparse.Namespace) -> None:
    if args.backend:
        raise UsageError("--target", "cannot go with --backend: a target names its backend")
    for option in _BACKEND_ONLY:
        if getattr(args, option) not in (None, False):
            raise UsageError(f"--{option.replace('_', '-')}", "goes with --backend, not with --target")
    if artifacts.emits_input(args):
        raise UsageError("--emit", "goes with --backend, not with --target", value=args.emit)
    if Path(args.output).suffix in (".pte", ".o") and len(args.target) > 1:
        raise UsageError("-o", "must be a folder for several targets", value=args.output)
    if args.min_metric is not None and args.metric is None:
        raise UsageError("--min-metric", "needs a --metric")
    if isinstance(args.evaluate, int) and args.evaluate < 0:
        raise UsageError("--evaluate", "must be 0 or more", value=args.evaluate)
    output = Path(args.output)
    check_writable(output, folder=output.suffix not in (".pte", ".o"))
    for path in filter(None, (args.report, args.html)):
        if Path(path).parent != output:  # the folder is made when there is something to write
            check_writable(path)


def run(args: argparse.Namespace) -> int:
    check_options(args)
    targets = _targets(args)
    with Stages(args.quiet) as stages:
        session = make_session(args, stages, weights=args.weights, original=args.original, **_settings(args))
        from edgewright.api.compile import build_all
        from edgewright.api.quantization import quiet_warnings

        with quiet_warnings():
            results = build_all(session, targets, raises=len(targets) == 1)
            failed = dict(results.failures)
            for name, result in results.items():
                error = _gate(args, result.report)
                if error is not None:
                    failed[name] = error
            written = _write(args, session, results, failed)
    if args.report:
        write_file(args.report, [results.report.to_json().encode() + b"\n"])
    if args.html:
        results.report.save_html(args.html)
    if args.json:
        print(results.report.to_json())
    elif not args.quiet:
        _show(args, session, results, failed, written)
    for name, error in failed.items():
        print_error(f"{name}: {error}" if len(targets) > 1 else str(error))
    return next(iter(failed.values())).exit_code if failed else 0


def _targets(args: argparse.Namespace) -> list[Target]:
    """The selected targets, with the options for single backends."""
    targets = selected_targets(args)
    artifacts.check_ethos_u(args, {target.backend for target in targets})
    artifacts.check_boards(args, targets)
    if args.emit == "object":
        object_files.check_targets(args, targets)
    specs = {t.name: artifacts.ethos_u_spec(args, t.argument) for t in targets if t.backend == "ethos_u"}
    return [replace(target, spec=specs.get(target.name)) for target in targets]


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    from edgewright.program.config import ExecutorchBackendConfig

    config = ExecutorchBackendConfig(
        emit_stacktrace=args.emit_stacktrace, manifest=not args.no_manifest, layer_names=not args.no_layer_names
    )
    settings: dict[str, Any] = {"runtime": args.runtime, "config": config, "metric": _metric(args.metric)}
    settings["select"], settings["train"] = _metric(args.select), _metric(args.train)
    settings["check"], settings["integer_io"] = not args.no_check, args.io or args.integer_io
    if args.evaluate is not None:
        settings["evaluate"] = args.evaluate
    if args.simulate_only or args.no_simulation:
        settings["simulate"] = bool(args.simulate_only)
    return settings


def _metric(name: str | None) -> Callable[..., float] | None:
    if name is None:
        return None
    from edgewright.frontend.model_spec import load_object

    metric = load_object(name)
    if not callable(metric):
        raise UsageError(name, "must be a function of a model: def accuracy(model): ... return a number")
    typed: Callable[..., float] = metric
    return typed


def _gate(args: argparse.Namespace, report: CompileReport) -> EdgewrightError | None:
    """The error of a build condition that a result violates: coverage, memory, accuracy; None if all hold."""
    delegated, required = report.coverage["macs"], args.require_delegated
    if required is not None and delegated < required:
        rejected = sorted((v for m in report.methods.values() for v in m.rejected), key=lambda v: -v.macs)[:3]
        remedy = f"Nothing was written. Most work left: {' | '.join(str(v) for v in rejected)}"
        rule = f"at least {share(required)} of multiply-accumulates must be delegated to {report.backend}"
        return CoverageError(report.target, rule, value=share(delegated), remedy=remedy)
    error = memory_error(report.target, report.planned_bytes, npu_memory(report.estimates), args.max_memory)
    if error is not None:
        return error
    remedy = "Nothing was written. `edgewright compare` finds the layers to raise; more typical --calibrate data helps."
    minimum = POOR if args.strict and args.min_sqnr is None else args.min_sqnr
    if minimum is not None and (report.sqnr is None or report.sqnr < minimum):
        actual = (
            f"nothing: {report.missing_sqnr_reason}"
            if report.sqnr is None
            else f"{report.sqnr:.1f} dB {report.measured_on}"
        )
        rule = f"must have an SQNR of at least {minimum:g} dB"
        return AccuracyError(report.target, rule, value=actual, remedy=remedy)
    if args.min_metric is not None and (report.metric is None or report.metric < args.min_metric):
        rule = f"{args.metric or '--metric'} must be at least {args.min_metric:g}"
        return AccuracyError(report.target, rule, value=report.metric, remedy=remedy)
    return None


def _write(
    args: argparse.Namespace, session: CompileSession, results: CompileResults, failed: dict[str, Any]
) -> _Written:
    """Write programs; returns what was made from them."""
    from edgewright.api.result import file_name

    output, written = Path(args.output), _Written()
    single = output.suffix in (".pte", ".o")
    if not single:
        make_folder(output)
    for name, result in results.items():
        if name in failed:
            continue
        path = output if single else output / file_name(model_name(args.spec), result.report)
        if path.suffix == ".o":
            written.objects += _write_objects(args, result, path)
            continue
        if args.bundle:
            _bundle(session, result, path)
        result.save(path)
        written.sources += artifacts.export_sources(args, path)
        if args.emit == "object":
            written.objects += object_files.write_objects(args, path, path)
    return written


def _write_objects(args: argparse.Namespace, result: CompileResult, output: Path) -> list[Written]:
    """Write object files without the program that they are made from."""
    with tempfile.TemporaryDirectory() as folder:
        result.program.save(Path(folder, "program.pte"))
        return object_files.write_objects(args, Path(folder, "program.pte"), output)


def _bundle(session: CompileSession, result: CompileResult, path: Path) -> None:
    """Write a bundle of inputs and their outputs on this machine, to compare a device with."""
    from edgewright.cli.bundle import cases
    from edgewright.formats.bpte import BundledProgram, write_bundled
    from edgewright.runtime.method_io import is_torch, to_array

    samples = (session.evaluated or [session.example])[:_BUNDLED]
    calls = [
        [to_array("input", leaf) if is_torch(leaf) else leaf for leaf in result.io.quantize(call.leaves())]
        for call in samples
    ]
    write_bundled(BundledProgram(result.buffer, {"forward": cases(result.method(), calls)}), path.with_suffix(".bpte"))


def _show(
    args: argparse.Namespace, session: CompileSession, results: CompileResults, failed: dict[str, Any],
    written: _Written,
) -> None:  # fmt: skip
    out = console()
    metric = args.metric.rpartition(":")[2] if args.metric else ""
    reports = [r.report for r in results.values()]
    lines = [(*cells[:-1], Text(cells[-1], "red" if report.poor and not metric else ""))
             for cells, report in zip(rows(reports, metric), reports, strict=True)]  # fmt: skip
    out.print(table(_title(args, session), columns(metric), lines, flexible="precision", tight=True))
    out.print(f"\n{time_note(reports)}", style="dim", soft_wrap=True)
    if args.verbose:
        out.print(LEGEND, style="dim", soft_wrap=True)
    if session.settings.metric is not None:
        from edgewright.api.compile import evaluate_metric

        of = "the quantized model" if session.quantized_before else "the original"
        out.print(f"{metric} of {of}: {evaluate_metric(session.settings.metric, session.eager):.4g}", soft_wrap=True)
    if reports and not metric:
        text, style = _basis(reports[0])
        out.print(text, style=style, soft_wrap=True)
    for report in reports:
        if report.file:
            out.print(f"wrote {clean(report.file)}", style="green", soft_wrap=True)
    for sources in written.sources:
        show_sources(*sources)
    if written.objects:
        object_files.show_objects(written.objects)
        if any(report.backend == object_files.CPU_BACKEND for report in reports):
            note = f"{object_files.CPU_BACKEND} is the graph that the object file was made of, measured on this machine"
            out.print(note, style="dim", soft_wrap=True)
    if args.html:
        out.print(f"wrote {clean(args.html)}", style="green", soft_wrap=True)
    for report in reports:
        for text, style in _remarks(args, report) if report.target not in failed else ():
            out.print(f"{report.target}: {clean(text)}", style=style, soft_wrap=True)
    seconds = ", ".join(
        f"{name} {duration(elapsed)}" for name, elapsed in session.stages.times.items() if elapsed >= 0.05
    )
    out.print(f"compiling took: {seconds}", style="dim", soft_wrap=True)


def _title(args: argparse.Namespace, session: CompileSession) -> str:
    name, seen = model_name(args.spec), len(session.calls)
    if not seen:
        return name
    held_out = f", {len(session.evaluated)} held out" if session.samples.origin == "held-out" else ""
    return f"{name}, {plural(seen, 'calibration input')}{held_out}"


def _basis(report: CompileReport) -> tuple[str, str]:
    """The data that the SQNR was measured on, and the style to print it in."""
    if report.missing_sqnr_reason:
        return f"SQNR: {report.missing_sqnr_reason}", "yellow"
    return f"SQNR: {report.measured_on}", "dim" if report.evaluated_on in ("held-out", "given") else "yellow"


def _remarks(args: argparse.Namespace, report: CompileReport) -> Iterator[tuple[str, str]]:
    """Remarks about a result besides its figures, each with its color."""
    if report.poor and report.sqnr is not None:
        below = math.floor(report.sqnr * 10) / 10 if math.isfinite(report.sqnr) else report.sqnr  # not rounded to 20.0
        advice = f"--strict makes it an error, under {POOR:g} dB"
        if args.quantize or args.recipe:
            advice = f"`{_command('compare', args, report)}` finds the layers to raise ({advice})"
        yield f"poor: SQNR {below:.1f} dB. {advice}", "red"
    if report.choice:
        yield report.choice, ""
    if report.one_sided:
        yield report.one_sided, "red"
    for name, text in report.integer_io.items():
        yield f"{name} is {text}", ""
    if report.check.skipped and report.check.skipped != NOT_REQUESTED:
        yield str(report.check), "yellow"
    if report.simulated:
        yield f"runs on this machine only: {report.simulated}", "yellow"
    if report.own_kernels:
        yield f"the application must provide {', '.join(report.own_kernels)}", "yellow"
    if advice := report.advise(_command("explain", args, report)):
        yield advice, "yellow"


def _command(name: str, args: argparse.Namespace, report: CompileReport) -> str:
    """A command about this model and target, complete: with the options that this one got."""
    data = () if name == "explain" else DATA_OPTIONS
    options = same_options(args, "quantize", "recipe", *data)
    return shlex.join(["edgewright", name, args.spec, "--target", report.target, *options])
