"""Results of ``edgewright.compile``: a program per target, with its report; also as HTML, for notebooks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from edgewright.api.compile_report import LEGEND, POOR, CompileReport, columns, rows, save_html, time_note
from edgewright.errors import EdgewrightError
from edgewright.files import make_folder
from edgewright.hints import not_among
from edgewright.html_tables import html_table
from edgewright.lowering.estimates import describe
from edgewright.lowering.partition.report import CONVERSIONS, PartitionReport
from edgewright.runtime.method import Method
from edgewright.runtime.method_io import is_torch, to_array
from edgewright.units import share, size


def result_html(reports: Sequence[CompileReport], failures: Mapping[str, Exception] | None = None) -> str:
    """The table of targets with its legend, the operators left on the CPU with reasons, and failures."""
    parts = [html_table(columns(), rows(reports)), _link(reports)]
    if reports:
        parts.append(f"<p>{escape(LEGEND)}<br>{escape(time_note(reports))}</p>")
    for report in reports:
        rejected = [v for method in report.methods.values() for v in method.rejected]
        if rejected:
            lines = [(v.operator, v.module, "; ".join(v.rejections)) for v in rejected]
            table = html_table(("operator", "module", "why"), lines)
            title = escape(f"{report.target}: {report.counts.cpu_summary}")
            parts.append(f"<details><summary>{title}</summary>{table}</details>")
        if report.simulated:
            parts.append(f"<p>{escape(report.target)}: runs on this machine only: {escape(report.simulated)}</p>")
    for name, error in (failures or {}).items():
        parts.append(f"<p><b>{escape(name)} failed</b>: {escape(str(error))}</p>")
    return f"<div>{''.join(parts)}</div>"


class IntegerIO:
    """Conversions at the boundary of a program that takes and returns integers; none by default."""

    def __init__(self, parameters: Mapping[str, Any] | None = None) -> None:
        self.parameters = dict(parameters or {})

    def __bool__(self) -> bool:
        return bool(self.parameters)

    def quantize(self, inputs: Sequence[Any]) -> list[Any]:
        """The program's inputs for those of the original model."""
        if not self.parameters:
            return list(inputs)
        from edgewright.quantize.integer_io import quantize

        known = self.parameters
        return [quantize(x, known[f"input{i}"]) if f"input{i}" in known else x for i, x in enumerate(inputs)]

    def dequantize(self, outputs: Sequence[Any]) -> list[Any]:
        """The original model's outputs for those of the program."""
        if not self.parameters:
            return list(outputs)
        from edgewright.quantize.integer_io import dequantize

        known = self.parameters
        return [dequantize(y, known[f"output{i}"]) if f"output{i}" in known else y for i, y in enumerate(outputs)]

    def execute(self, method: Method, leaves: list[Any]) -> list[Any]:
        """The outputs of a loaded method as arrays that the caller owns, for the original model's inputs."""
        outputs = self.dequantize(method.execute(self.quantize(leaves)))
        return [to_array("result", o).copy() if is_torch(o) else o for o in outputs]

    def facts(self) -> dict[str, dict[str, Any]]:
        """Type, scale and zero point of each converted input and output, as plain data."""
        return {
            name: {"type": str(p.dtype).removeprefix("torch."), "scale": p.scale, "zero_point": p.zero_point}
            for name, p in self.parameters.items()
        }

    def describe(self) -> dict[str, str]:
        """Each converted input and output: its type, and the number that an integer stands for."""
        texts = {}
        for name, p in self.parameters.items():
            shifted = f"q {'-' if p.zero_point >= 0 else '+'} {abs(p.zero_point)}"
            texts[name] = f"{str(p.dtype).removeprefix('torch.')}, x = {p.scale:.9g} * ({shifted})"
        return texts


_SHOWN = 3  # operators left on the CPU that a summary names


def rejected_lines(report: PartitionReport) -> list[str]:
    """The operators that stay on the CPU, those with the most work first, each with the first rule it violates."""
    rejected = sorted((v for v in report.rejected if v.operator not in CONVERSIONS), key=lambda v: -v.macs)
    lines = [f"  on the CPU: {v.operator}{f' ({v.module})' if v.module else ''}: {v.rejections[0]}"
             for v in rejected[:_SHOWN] if v.rejections]  # fmt: skip
    more = len(rejected) - _SHOWN
    return [*lines, f"  {more} more: report.methods[{report.method!r}].rejected"] if more > 0 else lines


def _link(reports: Sequence[CompileReport]) -> str:
    """A link to the pages that were written, or how to write one."""
    pages = list(dict.fromkeys(report.html for report in reports if report.html))
    if not pages:
        return "<p>Everything on one page: <code>result.report.save_html(&quot;report.html&quot;)</code></p>"
    links = ", ".join(f'<a href="{escape(quote(page))}" target="_blank">{escape(page)}</a>' for page in pages)
    return f"<p>Everything on one page: {links}</p>"


class CompileResult:
    """A model compiled for a target.

    ``program`` is the finished program, ``exported`` the (possibly quantized) program it was lowered from, ``report``
    its compile report.
    """

    def __init__(self, program: Any, exported: Any, report: CompileReport, io: IntegerIO | None = None) -> None:
        self.program = program
        self.exported = exported
        self.report = report
        self.io = io or IntegerIO()
        report.integer_io = self.io.describe()
        self._method: Method | None = None

    @property
    def target(self) -> str:
        return self.report.target

    @property
    def buffer(self) -> bytes:
        """The ``.pte`` file's bytes."""
        data: bytes = self.program.buffer
        return data

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write ``m.pte``, and ``m.twin`` beside it if the host needs one to run the file."""
        self.program.save(path)
        self.program.write_tensor_data_to_file(Path(path).parent)
        self.report.file = os.fspath(path)
        return Path(path)

    def method(self, name: str = "forward") -> Method:
        """Load a method into the host runtime, with its own state."""
        from edgewright.api.checked_method import load

        return load(self.program, name)

    def run(self, *inputs: Any, **named: Any) -> Any:
        """Run ``forward`` on the host with the device's numerics: its output, or a list of several. Inputs by position,
        or by the names of the model's arguments."""
        from edgewright.api.named_inputs import in_order

        if self._method is None:
            self._method = self.method()
        outputs = self._method.execute(in_order(self.exported, inputs, named))
        return outputs[0] if len(outputs) == 1 else outputs

    def run_real(self, *inputs: Any, **named: Any) -> Any:
        """``run`` with the original model's inputs and outputs: those that are integers in the file are converted."""
        from edgewright.api.named_inputs import in_order

        if not self.io:
            return self.run(*inputs, **named)
        outputs = self.run(*self.io.quantize(in_order(self.exported, inputs, named)))
        numbers = self.io.dequantize(outputs if isinstance(outputs, list) else [outputs])
        return numbers[0] if len(numbers) == 1 else numbers

    def execute(self, method: Method, leaves: list[Any]) -> list[Any]:
        """The outputs of a loaded method as arrays that the caller owns, for the original model's inputs."""
        return self.io.execute(method, leaves)

    @property
    def summary(self) -> str:
        """A human-readable summary: size, memory, accuracy, coverage, and why operators stay on the CPU."""
        report = self.report
        lines = [f"{report.target} ({report.precision}): {size(report.bytes)}, "
                 f"planned memory {size(report.planned_bytes)}"]  # fmt: skip
        lines += accuracy_lines(report)
        lines += filter(None, [report.choice])
        lines += [f"{name}: {text}" for name, text in report.integer_io.items()]
        if report.shapes:
            shapes = ", ".join(f"{decibels:.1f} dB at the {name}" for name, decibels in report.shapes.items())
            lines.append(f"dynamic shapes: {shapes}")
        if report.metric is not None:
            lines.append(f"metric {report.metric:.6g}")
        lines.append(str(report.check))
        for method in report.methods.values():
            lines += [method.verdict, *rejected_lines(method)]
            lines += filter(None, [method.precision, *map(describe, method.estimates)])
        if report.simulated:
            lines.append(f"This file runs on this machine only: {report.simulated}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<CompileResult {self.target}: {size(self.report.bytes)}>"

    def _repr_html_(self) -> str:
        from edgewright.api.result import result_html

        return result_html([self.report])


def accuracy_lines(report: CompileReport) -> list[str]:
    """Summary lines about the accuracy, and the data it was measured on."""
    lines = []
    if report.sqnr is not None:
        several = " (the output that is furthest)" if sum(d is not None for d in report.outputs) > 1 else ""
        poor = f", poor: under {POOR:g} dB" if report.poor else ""
        lines.append(f"SQNR {report.sqnr:.1f} dB{several} against the original {report.measured_on}{poor}")
    elif report.samples or report.evaluated_on:
        lines.append(f"SQNR: {report.missing_sqnr_reason}")
    if report.one_sided:
        lines.append(report.one_sided)
    if report.agreement is not None:
        lines.append(f"indices and bools: {share(report.agreement)} equal {report.measured_on}")
    return lines


class SeveralReports:
    """The reports of several targets."""

    def __init__(self, reports: Mapping[str, CompileReport], failures: Mapping[str, EdgewrightError]) -> None:
        self.reports = reports
        self.failures = failures

    def to_dict(self) -> dict[str, Any]:
        failed = {name: {"error": str(e), "exit_code": e.exit_code} for name, e in self.failures.items()}
        return {"targets": {name: r.to_dict() for name, r in self.reports.items()}, "failed": failed}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def save_html(self, path: str | os.PathLike[str], *, profile: bool = True) -> Path:
        """Write one HTML page about all targets, side by side."""
        return save_html(list(self.reports.values()), self.failures, path, profile=profile)


class CompileResults(Mapping[str, CompileResult]):
    """Results by target. Access to a failed target raises its error."""

    def __init__(self, results: Mapping[str, CompileResult], failures: Mapping[str, EdgewrightError]) -> None:
        self._results = dict(results)
        self.failures = dict(failures)

    def __getitem__(self, target: str) -> CompileResult:
        if target in self.failures:
            raise self.failures[target]
        if target not in self._results:
            raise not_among("target", target, self._results)
        return self._results[target]

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    def __contains__(self, target: object) -> bool:
        return target in self._results

    @property
    def report(self) -> SeveralReports:
        return SeveralReports({name: r.report for name, r in self._results.items()}, self.failures)

    def save(self, folder: str | os.PathLike[str], name: str = "model") -> list[Path]:
        """Write ``name.target.pte`` for each; ``name.target.simulated.pte`` for host-only files."""
        directory = make_folder(folder)
        return [result.save(directory / file_name(name, result.report)) for result in self._results.values()]

    def run(self, *inputs: Any, **named: Any) -> dict[str, Any]:
        """Run all of them on the host: outputs by target."""
        return {name: result.run(*inputs, **named) for name, result in self._results.items()}

    @property
    def summary(self) -> str:
        """A plain-text table."""
        from edgewright.console import plain_table

        table = plain_table(columns(), rows([r.report for r in self._results.values()]))
        return "\n".join([table, *(f"{name}: {error}" for name, error in self.failures.items())])

    def __repr__(self) -> str:
        return f"<CompileResults {', '.join([*self._results, *(f'{n} (failed)' for n in self.failures)])}>"

    def _repr_html_(self) -> str:
        from edgewright.api.result import result_html

        return result_html([r.report for r in self._results.values()], self.failures)


def file_name(name: str, report: CompileReport) -> str:
    """The file name of a target in a folder of several."""
    return f"{name}.{report.target}{'.simulated' if report.simulated else ''}.pte"
