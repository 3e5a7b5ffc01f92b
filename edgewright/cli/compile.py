"""``edgewright compile``: compile a PyTorch model to a ``.pte``, with the time of every stage."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgewright.api.compile_report import EVALUATED, NOT_REQUESTED, POOR, Check
from edgewright.api.progress import Stages
from edgewright.backends.registry import discover
from edgewright.cli import artifacts, model_options, object_files
from edgewright.cli.build_limits import memory_error
from edgewright.cli.export import show_sources
from edgewright.cli.run import parse_memory
from edgewright.console import clean, console, plural, table
from edgewright.errors import CoverageError, UsageError
from edgewright.files import check_writable, write_file
from edgewright.formats.executorch_releases import BUILDS, NEWEST, OLDEST, RUNTIMES
from edgewright.hints import not_among
from edgewright.lowering.estimates import describe, npu_memory
from edgewright.units import duration, share, size

if TYPE_CHECKING:
    from edgewright.api.pipeline import Pipeline
    from edgewright.lowering.partition.report import PartitionReport

_WITH_TARGET = (
    "quantize", "calibrate", "recipe", "min_sqnr", "strict", "metric", "min_metric", "select", "train", "evaluate",
    "original", "integer_io", "io", "json", "html",
)  # fmt: skip

EXAMPLES = """examples:
  edgewright compile net:Net -o net.pte
  edgewright compile net:Net --target xnnpack --target ethos-u55-128 --quantize int8 --calibrate calib.npz -o out/
  edgewright compile net:Net --target sm8550 --quantize int8 --calibrate photos/ --mean 127 --std 128 -o net.pte
  edgewright compile net:Net --target e9955 --recipe r.toml --calibrate data:a --evaluate data:b --strict -o net.pte
  edgewright compile net:Net --target cortex-m55 --quantize int8 --calibrate calib.npz --emit object
  edgewright compile model.pt2 --backend xnnpack --require-delegated 95% --max-memory 2M -o m.pte
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("spec", metavar="SPEC", help="package.module:factory that returns a model with example inputs, or a .pt2")
    add(
        "-o", "--output", metavar="m.pte",
        help="the output file; a folder for several targets (with --emit object, the default is model.o)",
    )  # fmt: skip
    model_options.add_arguments(parser)
    add(
        "--runtime",
        type=parse_runtime,
        default="wheel",
        metavar="android-1.0",
        help=f"the runtime whose kernels may be used: {', '.join(BUILDS)}, with a release from {OLDEST} to {NEWEST} of "
        f"ExecuTorch ({OLDEST} if none is given) (default: wheel)",
    )
    add(
        "--backend",
        action="append",
        default=[],
        metavar="xnnpack",
        help="delegate to this backend; repeatable, in order of priority; ethos_u:ethos-u55-128 names a target",
    )
    add(
        "--require-delegated",
        type=parse_share,
        metavar="95%",
        help="fail if less than this share of the multiply-accumulates is delegated",
    )
    add("--min-sqnr", type=float, metavar="dB", help="fail if the SQNR of a result is less than this")
    add(
        "--metric",
        metavar="pkg.mod:fn",
        help="a function from a model to a number, shown for each target",
    )
    add(
        "--select", metavar="pkg.mod:fn",
        help="with --quantize int8-best: the metric to choose methods by, on data of its own (default: the SQNR)",
    )  # fmt: skip
    add(
        "--train", metavar="pkg.mod:fn",
        help="with --quantize: a function that trains the model, prepared for quantization-aware training",
    )  # fmt: skip
    add("--min-metric", type=float, metavar="X", help="fail if the metric is less than this")
    add("--strict", action="store_true", help=f"same as --min-sqnr {POOR:g}: red results are errors")
    model_options.add_evaluate(parser, EVALUATED)
    add("--original", metavar="SPEC", help="the float model to compare with if SPEC is already quantized")
    add(
        "--integer-io",
        action="store_true",
        help="with --target: the program takes and returns integers; the report has their scales and zero points",
    )
    add(
        "--io", metavar="int8",
        help="with --target: as --integer-io, and fail if an input or output is quantized to another type than this",
    )  # fmt: skip
    add("--json", action="store_true", help="with --target: print the full report as JSON")
    add(
        "--report",
        type=parse_report,
        metavar="out.json",
        help="write what runs where, and why the rest is not delegated",
    )
    add("--html", metavar="out.html", help="with --target: write one page that shows graph, layers, memory and reasons")
    add("--weights", metavar="w.safetensors", help="map the model's weights from this file")
    add(
        "--external-constants", nargs="?", const="", metavar="TAG",
        help="write the weights to TAG.ptd next to the program (default: the program's name)",
    )  # fmt: skip
    add("--max-memory", type=parse_memory, metavar="512K", help="fail if program and NPU need more memory than this")
    add("--bundle", action="store_true", help="also write m.bpte: the program with inputs and expected outputs")
    add("--emit-stacktrace", action="store_true", help="store the source line of every instruction")
    add("--no-check", action="store_true", help="do not compare the program with the graph it was lowered from")
    add("--no-manifest", action="store_true", help="omit the description of the build")
    add("--no-layer-names", action="store_true", help="omit the names of the model's modules, which profiles show")
    artifacts.add_arguments(parser)
    object_files.add_arguments(parser)


@dataclass
class Built:
    """A finished program, and the files written for it."""

    program: Any
    exported: Any
    files: list[tuple[Path, int]] = field(default_factory=list)
    sources: list[artifacts.Sources] = field(default_factory=list)
    reports: Mapping[str, PartitionReport] = field(default_factory=dict)
    check: Check = field(default_factory=Check)


def run(args: argparse.Namespace) -> int:
    args.cpus = object_files.select_processors(args)
    if args.target:
        model_options.selected_targets(args)  # a wrong name is told before a missing -o
    args.output = str(object_files.output_path(args))
    if args.target:
        from edgewright.cli import compile_many

        return compile_many.run(args)
    output = Path(args.output)
    _check_options(args, output)
    with Stages(args.quiet) as stages:
        with stages("import torch"):
            model_options.need_torch()
        built = _build(args, output, stages)
    if not args.quiet:
        _show(built, stages)
    return 0


def _check_options(args: argparse.Namespace, output: Path) -> None:
    if output.suffix != artifacts.ending(args):
        raise UsageError(str(output), f"must end in {artifacts.ending(args)}")
    check_writable(output)
    if args.report is not None:
        check_writable(args.report)
    artifacts.check_options(args)
    for option in _WITH_TARGET:
        if getattr(args, option) not in (None, False):
            raise UsageError(f"--{option.replace('_', '-')}", "needs a --target", remedy="Name one: --target xnnpack.")
    for option in ("require_delegated", "report"):
        if getattr(args, option) is not None and not args.backend:
            raise UsageError(f"--{option.replace('_', '-')}", "needs a --backend")
    backends, names = discover(), [backend.partition(":")[0] for backend in args.backend]
    for name in names:
        if name not in backends:
            raise not_among("--backend", name, backends)
    artifacts.check_ethos_u(args, names)
    tag = args.external_constants
    if tag and (Path(tag).name != tag or not tag.isprintable()):
        raise UsageError("--external-constants", "must be the name of a file, without folder or ending", value=tag)


def _build(args: argparse.Namespace, output: Path, stages: Stages) -> Built:
    from edgewright.frontend.export import export
    from edgewright.frontend.model_spec import load_spec
    from edgewright.frontend.safetensors import load_weights

    with stages("load"):
        spec = load_spec(args.spec)
        if args.weights:
            load_weights(spec.model, args.weights)
    with stages("export"):
        exported = spec.exported
        if spec.module is not None:
            exported = export(spec.module.eval(), spec.args, spec.kwargs, spec.dynamic_shapes)
    assert exported is not None
    pipeline, partitioners = _pipeline(args, output)
    with stages("lower"):
        edge = pipeline.lower(exported)
    _write_report(args.report, edge.partition_reports)
    check_coverage(edge.partition_reports, args.require_delegated)
    if artifacts.emits_input(args):
        return Built(None, exported, artifacts.write_emitted(partitioners, output), reports=edge.partition_reports)
    with stages("plan and emit"):
        built = Built(pipeline.finish(edge), exported, reports=edge.partition_reports)
        _check_memory(built, args.max_memory)
    with stages("check"):
        built.check = _check(args, pipeline, built)
    with stages("write"):
        _write(args, output, spec, built)
    return built


def _pipeline(args: argparse.Namespace, output: Path) -> tuple[Pipeline, list[Any]]:
    """The pipeline that the options describe, and the partitioners of its last use."""
    from edgewright.api.pipeline import Pipeline

    used: list[Any] = []

    def partitioners() -> list[Any]:
        named = [backend.partition(":") for backend in args.backend]
        used[:] = [artifacts.partitioner(args, name, target or None) for name, _, target in named]
        return used

    names = [backend.partition(":")[0] for backend in args.backend]
    return Pipeline(names, partitioners, args.runtime, _config(args, output)), used


def _check(args: argparse.Namespace, pipeline: Pipeline, built: Built) -> Check:
    """Compare the program with the graph it was lowered from, on its example inputs."""
    from edgewright.api.data import Call
    from edgewright.api.self_check import check_cases

    if args.no_check:
        return Check(skipped=NOT_REQUESTED)
    example = built.exported.example_inputs
    cases = [] if example is None else check_cases(built.exported, Call(*example), [])
    return pipeline.check(", ".join(pipeline.backends) or "program", built.program, built.exported, cases)


def _config(args: argparse.Namespace, output: Path) -> Any:
    from edgewright.program.config import ExecutorchBackendConfig

    tag = args.external_constants or output.stem
    return ExecutorchBackendConfig(
        external_constants=(lambda _: tag) if args.external_constants is not None else False,
        emit_stacktrace=args.emit_stacktrace,
        manifest=not args.no_manifest,
        layer_names=not args.no_layer_names,
    )


def parse_runtime(text: str) -> str:
    """A runtime's name: ``android-1.0``."""
    if text not in RUNTIMES:
        raise not_among("--runtime", text, RUNTIMES)
    return text


def parse_share(text: str) -> float:
    """A share: ``95%``.

    >>> parse_share("95%")
    0.95
    """
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not text.endswith("%") or not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"must be a share from 0% to 100%, not {text!r}")
    return share


def check_coverage(reports: Mapping[str, PartitionReport], minimum: float | None) -> None:
    """Raise unless at least ``minimum`` of the multiply-accumulates of every method are delegated."""
    for report in reports.values():
        delegated = report.coverage()["macs"]
        if minimum is not None and delegated < minimum:
            worst = sorted(report.rejected, key=lambda v: -v.macs)[:3]
            remedy = f"No program was written. Most work left: {' | '.join(str(v) for v in worst)}"
            rule = f"at least {share(minimum)} of multiply-accumulates must be delegated to {report.backend}"
            raise CoverageError(f"method {report.method!r}", rule, value=share(delegated), remedy=remedy)


def _write_report(path: str | None, reports: Mapping[str, PartitionReport]) -> None:
    if path is not None:
        content = json.dumps({name: report.to_dict() for name, report in reports.items()}, indent=2)
        write_file(path, [content.encode() + b"\n"])


def _check_memory(built: Built, limit: int | None) -> None:
    for plan in built.program.executorch_program.execution_plan:
        report = built.reports.get(plan.name)
        npu = 0 if report is None else npu_memory(report.estimates)
        error = memory_error(f"method {plan.name!r}", sum(plan.non_const_buffer_sizes), npu, limit)
        if error is not None:
            raise error


def parse_report(text: str) -> str:
    """The path of a report, which is JSON."""
    if not text.endswith(".json"):
        remedy = f"; --html {text} writes a page" if text.endswith((".html", ".htm")) else ""
        raise argparse.ArgumentTypeError(f"the report is JSON: its name must end in .json, not {text!r}{remedy}")
    return text


def _write(args: argparse.Namespace, output: Path, spec: Any, built: Built) -> None:
    """Write all files, the program last, so that a program is never without the files it needs."""
    from edgewright.formats.bpte import BundledProgram, write_bundled

    for path in built.program.write_tensor_data_to_file(output.parent):
        built.files.append((path, path.stat().st_size))
    if args.bundle:
        from edgewright.frontend.test_case import eager_case

        bundle = BundledProgram(built.program.buffer, {"forward": [eager_case(spec, built.exported)]})
        path = output.with_suffix(".bpte")
        built.files.append((path, write_bundled(bundle, path)))
    built.files.insert(0, (output, built.program.save(output)))
    built.sources += artifacts.export_sources(args, output)


def _show(built: Built, stages: Stages) -> None:
    out = console()
    for path, count in built.files:
        out.print(f"wrote {clean(path)} ({size(count)})", style="bold green", soft_wrap=True)
    program = built.program.executorch_program if built.program is not None else None
    for plan in program.execution_plan if program is not None else ():
        out.print(_facts(program, plan), soft_wrap=True)
    if not built.check.inputs and program is not None and built.check.skipped != NOT_REQUESTED:
        out.print(clean(built.check), style="yellow", soft_wrap=True)
    elif built.check.inputs:
        out.print(clean(built.check), soft_wrap=True)
    for report in built.reports.values():
        for line in filter(None, (report.verdict, report.precision, *map(describe, report.estimates))):
            out.print(clean(line), soft_wrap=True)
    for sources in built.sources:
        show_sources(*sources)
    rows = [(name, duration(seconds)) for name, seconds in stages.times.items()]
    out.print(table("", ("stage", ">time"), [*rows, ("total", duration(stages.total))]))
    peak = _peak_memory()
    if peak is not None:
        out.print(f"\npeak memory {size(peak)}")


def _peak_memory() -> int | None:
    """Peak memory of this process, in bytes; None if the system does not report it."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _facts(program: Any, plan: Any) -> str:
    """A method's contents in one line."""
    calls = sum(len(chain.instructions) for chain in plan.chains)
    constants = program.segments[program.constant_segment.segment_index].size
    calls_of = Counter(delegate.id for delegate in plan.delegates)
    names = [clean(name) if count == 1 else f"{count} of {clean(name)}" for name, count in sorted(calls_of.items())]
    delegates = ", ".join(names) or "none"
    return (
        f"{clean(plan.name)}: {plural(calls, 'instruction')}, {plural(len(plan.operators or ()), 'kernel')}; "
        f"planned memory {size(sum(plan.non_const_buffer_sizes))}; constants {size(constants)}; delegates: {delegates}"
    )
