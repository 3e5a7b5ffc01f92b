"""The HTML report of compile results: what compiling knows, added to what the files say. Needs no torch."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from edgewright.api.explain import group_rejections
from edgewright.console import plural
from edgewright.lowering.estimates import describe, seconds_per_cycle
from edgewright.lowering.partition.report import CONVERSIONS, PartitionReport
from edgewright.report.collect import Options, collect
from edgewright.report.graphs import MAX_NODES
from edgewright.report.model import CPU, DeviceLayer, Fact, FileReport, GraphView, LayerError, Node, Report
from edgewright.runtime.example_inputs import ones
from edgewright.units import duration, share

CompileReport = Any  # edgewright.api.compile_report imports this module
Comparison = Any  # edgewright.api.compare needs torch
Check = Any
_DELEGATE = re.compile(r"^(?:[^. ]+\.)?[^. ]+ \d+\.")  # before a module: the method if there are several, the delegate
_COMPARE = "`edgewright compare` finds the layers to raise to a higher precision"
_SHOWN = 8  # reasons in the overview
_ABOUT = "The exported model's operators by module, with what runs them or every rule that rejected them."


def build(reports: Sequence[CompileReport], failures: Mapping[str, Exception], *, profile: bool) -> Report:
    """The report of one or several targets. ``profile``: run each program on this machine."""
    options = Options(inputs=ones if profile else None)
    files = [file_report(report, options) for report in reports]
    title = ", ".join(file.name for file in files)
    return Report(title, files, {name: str(error) for name, error in failures.items()})


def file_report(report: CompileReport, options: Options) -> FileReport:
    """The report of one compiled target."""
    program = report.program
    name = report.file.replace("\\", "/").rpartition("/")[2] or report.target
    file = collect(program.buffer, name, options, list(program.data_files.values()), program.twin)
    add_compile_report(file, report)
    return file


def add_compile_report(file: FileReport, report: CompileReport) -> None:
    """Add what compiling measured: coverage, accuracy, times, reasons; and the model's graph."""
    file.target, file.precision = report.target, report.precision
    backend = f"backend {report.backend}" if report.backend != report.target else ""
    facts = [Fact("target", report.target, backend), Fact("precision", report.precision, "of the model's layers")]
    facts.append(_coverage(report))
    facts += _accuracy(report)
    milliseconds, basis = report.time
    bounds = report.time_range
    here = file.measures.here_ms is not None and report.estimated_ms is None
    if bounds is not None:  # a lower bound is not a time to compare with others
        file.measures.milliseconds, file.measures.time_basis = None, f"{_range(bounds)} {basis}"
        facts.append(Fact("time", _range(bounds), basis))
    elif milliseconds is not None and not here:  # of two times on this machine, the page shows the one it measured
        facts.append(Fact("time", duration(milliseconds / 1e3), basis))
        file.measures.milliseconds, file.measures.time_basis = milliseconds, basis
    facts.append(_check(report.check))
    file.facts = facts + [f for f in file.facts if f.label not in ("target", "time")]
    file.estimates = [line for e in report.estimates if (line := describe(e))]
    file.measures.sqnr, file.measures.coverage = report.sqnr, report.coverage["macs"]
    file.next_steps = _next_steps(report)
    if report.simulated:
        file.notes.append(f"runs on this machine only: {report.simulated}")
    if report.own_kernels:
        file.notes.append(f"the application must provide {', '.join(report.own_kernels)}")
    file.notes += [line for method in report.methods.values() if (line := method.precision)]
    _add_device_layers(file, report.estimates)
    stored = file.graphs[-1].nodes
    file.graphs[:0] = [
        model_graph(method, len(report.methods) > 1) for method in report.methods.values() if method.verdicts
    ]
    for graph in file.graphs[:-1]:
        _add_times(graph.nodes, stored)


def _add_times(nodes: Sequence[Node], stored: Sequence[Node]) -> None:
    """Give products of the model the times, cycles and weights of those in the file, module by module, where both have
    the same ones."""
    in_file: dict[str, list[Node]] = {}
    for node in stored:
        if node.macs:
            in_file.setdefault(_DELEGATE.sub("", node.module), []).append(node)
    modules: dict[str, list[Node]] = {}
    for node in nodes:
        if node.macs:
            modules.setdefault(node.module, []).append(node)
    for module, products in modules.items():
        same = in_file.get(module, [])
        if [n.macs for n in same] == [n.macs for n in products]:
            for node, other in zip(products, same, strict=True):
                node.ms, node.cycles = other.ms, other.cycles
                node.histograms += [shown for shown in other.histograms if shown not in node.histograms]


def _range(bounds: tuple[float, float]) -> str:
    least, most = (duration(ms / 1e3) for ms in bounds)
    return f"{least} to {most}"


def _coverage(report: CompileReport) -> Fact:
    counts, covered = report.counts, report.coverage["macs"]
    called = plural(counts.groups, "delegate call")
    basis = f"of multiply-accumulates; {counts.delegated} of {plural(counts.operators, 'operator')} in {called}"
    return Fact("delegated", share(covered), basis, "good" if covered == 1 else "warn")


def _check(check: Check) -> Fact:
    if check.skipped or not check.inputs:
        return Fact("self-check", "not done", check.skipped, "warn")
    basis = f"the file against the graph it was lowered from, on {plural(check.inputs, 'input')}"
    return Fact("self-check", check.note or "within rounding", basis, "good")


def _accuracy(report: CompileReport) -> list[Fact]:
    facts = []
    if report.sqnr is not None:
        facts.append(
            Fact(
                "SQNR",
                f"{report.sqnr:.1f} dB",
                f"against the original, {report.measured_on}",
                "bad" if report.poor else "good",
            )
        )
    elif report.samples or report.evaluated_on:
        facts.append(Fact("SQNR", "not known", report.missing_sqnr_reason, "warn"))
    if report.agreement is not None:
        facts.append(Fact("indices and bools", f"{share(report.agreement)} equal", report.measured_on))
    if report.metric is not None:
        facts.append(Fact("metric", f"{report.metric:.6g}", "the user's function"))
    if report.one_sided:
        facts.append(Fact("infinite or NaN", "differs", report.one_sided, "bad"))
    facts += [Fact(f"SQNR at the {name} shape", f"{value:.1f} dB") for name, value in report.shapes.items()]
    return facts


def _next_steps(report: CompileReport) -> list[str]:
    steps = [report.advice] if report.advice else []
    rejected = [v for m in report.methods.values() for v in m.rejected if v.operator not in CONVERSIONS]
    lines = group_rejections(sorted(rejected, key=lambda v: -v.macs))
    steps += lines[:_SHOWN]
    if len(lines) > _SHOWN:
        steps.append(f"{len(lines) - _SHOWN} more reasons: the graph and its table have the rules of every operator")
    if report.poor:
        steps.append(f"SQNR is {report.sqnr:.1f} dB: {_COMPARE}")
    if report.evaluated_on in ("calibration", "example"):
        steps.append(f"accuracy was measured {report.measured_on}")
    return steps


def _add_device_layers(file: FileReport, estimates: Sequence[Mapping[str, Any]]) -> None:
    """The layers of the vendor's estimates, which say more than what the file keeps of them."""
    file.layers.device = [] if any(e.get("layers") for e in estimates) else file.layers.device
    for estimate in estimates:
        file.layers.device_basis = f"{estimate.get('basis', '')} for {estimate.get('target', '')}"
        length = seconds_per_cycle([estimate])
        file.layers.device += [
            DeviceLayer(
                str(row["name"]), str(row["operator"]), round(row["cycles"]), int(row["macs"]),
                row.get("mac_utilisation"), None if length is None else length * row["cycles"],
            )
            for row in estimate.get("layers", ())
        ]  # fmt: skip


def model_graph(report: PartitionReport, several: bool) -> GraphView:
    """The graph that a partitioner saw, in topological order."""
    order = _topological([v.detail.inputs for v in report.verdicts])
    position = {old: new for new, old in enumerate(order)}
    view = GraphView(f"model {report.method}" if several else "model", _ABOUT, total=len(order))
    for old in order[:MAX_NODES]:
        verdict = report.verdicts[old]
        detail = verdict.detail
        view.nodes.append(
            Node(
                verdict.node, verdict.operator, verdict.module, verdict.backend or CPU,
                tuple(position[i] for i in detail.inputs), detail.results, detail.quantization,
                _shown_source(detail.source),
                list(verdict.rejections), verdict.macs, verdict.bytes, detail.weights,
            )
        )  # fmt: skip
    _place_conversions(view.nodes)
    return view


def _place_conversions(nodes: Sequence[Node]) -> None:
    """Conversions that quantization inserted are of no module. They stand in the innermost one of what they read and
    of what reads them: outside of the modules, they would divide each."""
    readers: dict[int, list[Node]] = {}
    for node in nodes:
        for i in node.inputs:
            readers.setdefault(i, []).append(node)
    for at, node in enumerate(nodes):
        if node.module or node.operator not in CONVERSIONS or not node.inputs:
            continue
        around = [nodes[i].module for i in node.inputs] + [n.module for n in readers.get(at, ()) if n.module]
        if len(around) > len(node.inputs):
            levels = zip(*(module.split(".") for module in around), strict=False)
            node.module = ".".join(names[0] for names in takewhile(lambda names: len(set(names)) == 1, levels))


def _shown_source(source: str) -> str:
    """A source line without the folder that Python found its module in: pages are passed on.

    >>> _shown_source(f"{os.path.abspath(sys.path[-1])}/torch/nn/modules/conv.py:565: return ...")
    'torch/nn/modules/conv.py:565: return ...'
    """
    folders = sorted({os.path.abspath(folder) for folder in (*sys.path, os.getcwd())}, key=len, reverse=True)
    return next((source[len(f) + 1 :] for f in folders if source.startswith((f"{f}/", f"{f}{os.sep}"))), source)


def _topological(inputs: Sequence[Sequence[int]]) -> list[int]:
    """The order of the list wherever possible, but every item after its inputs; without recursion.

    >>> _topological([(2,), (), (1,)])
    [1, 2, 0]
    """
    order: list[int] = []
    done: set[int] = set()
    for start in range(len(inputs)):
        stack = [(start, False)]
        while stack:
            item, ready = stack.pop()
            if item in done:
                continue
            if ready:
                done.add(item)
                order.append(item)
                continue
            stack.append((item, True))
            stack += [(i, False) for i in reversed(inputs[item]) if i not in done]
    return order


def add_comparison(file: FileReport, comparison: Comparison) -> None:
    """Add errors by layer, to the table and to the operators of the model's graph."""
    file.layers.errors = [
        LayerError(e.name, e.module, e.operator, e.introduced, e.effect, e.share, e.fake, e.device)
        for e in comparison.layers
    ]
    device = "" if comparison.device is None else f", {comparison.device:.1f} dB on {comparison.target}"
    file.layers.error_basis = f"Outputs: {comparison.fake:.1f} dB fake-quantized{device}, {comparison.measured_on}."
    # A product and what follows it are one layer, which is rounded once; the product stands for it in the graph.
    errors = {name: e.introduced for e in comparison.layers for name in (*e.nodes, e.name)}
    for view in file.graphs:
        if view.title.startswith("model"):
            for node in view.nodes:
                node.error = errors.get(node.name, node.error)
    modules = comparison.modules_to_raise()
    if modules:
        file.next_steps = [step for step in file.next_steps if not step.endswith(_COMPARE)]  # it is done
        file.next_steps.append(
            f"raise {', '.join(modules)} to {comparison.higher}: the SQNR of {comparison.fake:.1f} dB becomes"
            f" {comparison.raised:.1f} dB"
        )
