"""The report of files with the model they were made from: accuracy, reasons and errors by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgewright.api.accuracy import accuracy
from edgewright.api.compare import compare
from edgewright.api.compile import CompileSession
from edgewright.api.compile_report import CompileReport, measured_on
from edgewright.api.graph_interpreter import GraphInterpreter
from edgewright.api.html_report import add_comparison, add_compile_report
from edgewright.api.layers import record
from edgewright.backends.targets import Target, find_target
from edgewright.errors import EdgewrightError, UsageError
from edgewright.files import open_source
from edgewright.formats.bpte import is_bundled, read_bundled
from edgewright.report.histogram import histogram
from edgewright.report.model import Fact, FileReport
from edgewright.runtime.program import Runtime
from edgewright.runtime.twin_delegate import find_twin_file

_MEASURED = 4  # inputs that errors of layers are measured on
_QUANTIZED = ("int8[", "uint8[", "int16[")
_UNKNOWN_PRECISION = "reasons and errors by layer need the precision that the file was compiled in"


def target_of(file: FileReport) -> Target | None:
    """The device that a file was compiled for, as its manifest or its delegates name it; None if it is not known."""
    try:
        return find_target(file.target.partition(" (")[0])  # without the remark that it is for simulation only
    except UsageError:
        return None


def add_model(
    file: FileReport, source: str, data: Sequence[str], session: CompileSession, target: Target | None
) -> None:
    """Add what the model says about a file, compiled for ``target`` or the file's own."""
    chosen = target or target_of(file)
    measured = None
    if chosen is None:
        file.notes.append(f"the model was not compiled again: {file.target} is not a target; name one with --target")
    else:
        report = _add_compiled(file, source, session, chosen)
        measured = None if report is None or data else report.sqnr
    _add_accuracy(file, measured, source, data, session)
    _add_histograms(file, session)


def _add_compiled(file: FileReport, source: str, session: CompileSession, target: Target) -> CompileReport | None:
    """Compile the model again: where operators run, why not, and the errors of layers. Says if that is another file;
    returns the report if it is this one."""
    if _is_quantized(file) and not session.settings.recipe.quantizes:
        file.next_steps.insert(0, f"{_UNKNOWN_PRECISION}: add `--quantize`, such as `--quantize int8`, or `--recipe`")
        return None
    kept = file.measures.milliseconds, file.measures.time_basis
    times, estimates = [f for f in file.facts if f.label == "time"], file.estimates
    result = session.build(target)
    same = bytes(_program(source)) == result.buffer
    add_compile_report(file, result.report)
    if not same:
        file.measures.milliseconds, file.measures.time_basis = kept
        file.facts = [f for f in file.facts if f.label not in ("SQNR", "time", "self-check", "precision")] + times
        file.estimates = estimates
        file.precision = ""
        file.notes.append(
            f"the model, compiled now for {target.name}, gives another file than this one: its graph, reasons and"
            " layers are those of the model as it is compiled now"
        )
    if session.settings.recipe.quantizes and session.evaluated:
        add_comparison(file, compare(session, target, inputs=_MEASURED))
    return result.report if same else None


def _is_quantized(file: FileReport) -> bool:
    return any(t.startswith(_QUANTIZED) for view in file.graphs for node in view.nodes for t in node.outputs)


def _program(source: str) -> memoryview:
    """The bytes of a ``.pte``, or of the program in a ``.bpte``."""
    view, _ = open_source(source, "program")
    return memoryview(read_bundled(source).program) if is_bundled(view) else view


def _add_accuracy(
    file: FileReport, measured: float | None, source: str, data: Sequence[str], session: CompileSession
) -> None:
    """Add the accuracy of the file itself on the evaluation inputs, unless it was ``measured`` when it was compiled."""
    if not session.evaluated:
        return
    sqnr = measured
    if sqnr is None:
        try:
            program = Runtime.get().load_program(_program(source), list(data) or None, twin=find_twin_file(source))
            method = program.load_method("forward")
            outputs = [method.execute(call.leaves()) for call in session.evaluated]
            method.close()
        except EdgewrightError as error:
            file.notes.append(f"not compared with the model: {error}")
            return
        pairs = zip(session.reference_results(), outputs, strict=True)
        sqnr = accuracy(GraphInterpreter(session.original).outputs, pairs).sqnr
    file.measures.sqnr = sqnr
    if sqnr is not None:
        basis = f"this file against the model, {measured_on(session.samples.origin, len(session.evaluated))}"
        file.facts = [f for f in file.facts if f.label != "SQNR"]
        after = next((i for i, f in enumerate(file.facts) if f.label == "delegated"), 0) + 1
        file.facts.insert(after, Fact("SQNR", f"{sqnr:.1f} dB", basis, "bad" if sqnr < 20 else "good"))


def _add_histograms(file: FileReport, session: CompileSession) -> None:
    """Histograms of the float model's weights, and of what it computes for one evaluation input."""
    results: dict[str, Any] = {}
    if session.evaluated:
        results = record(session.original.module(), session.evaluated[0].leaves())
    weights = _weights(session.original)
    for view in file.graphs:
        for node in view.nodes if view.title.startswith("model") else ():
            for title, values in (("weights", weights), ("activations", results)):
                value = values.get(node.name)
                shown = None if value is None else histogram(f"{title} of the float model", value.detach().numpy())
                if shown is not None:
                    node.histograms.append(shown)


def _weights(exported: Any) -> dict[str, Any]:
    """The largest parameter or buffer that each node of an exported program reads."""
    signature = exported.graph_signature
    stored = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    largest = {}
    for node in exported.graph.nodes:
        read = [exported.state_dict.get(stored.get(source.name)) for source in node.all_input_nodes]
        known = [tensor for tensor in read if tensor is not None]
        if known:
            largest[node.name] = max(known, key=lambda tensor: tensor.numel())
    return largest
