"""Report of compiling a model for a target, as plain data. Needs no torch."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from edgewright.backends.table import STATIC_SHAPE_RULE
from edgewright.errors import UsageError
from edgewright.lowering.estimates import time_range
from edgewright.lowering.partition.report import CONVERSIONS, Counts, PartitionReport, count, coverage_of
from edgewright.units import duration, share, size

EVALUATED = 8  # default number of inputs to measure results on
NOT_REQUESTED = "not requested"
POOR = 20.0  # decibels: the noise is a tenth of an output's magnitude


@dataclass(frozen=True)
class Check:
    """Result of comparing a file with the graph it was lowered from. ``sqnr``: of the file's worst output; ``bound``:
    the SQNR that rounding explains there. ``inputs``: the number of calls. ``skipped``: why there was no check."""

    inputs: int = 0
    sqnr: float | None = None
    bound: float | None = None
    skipped: str = ""
    note: str = ""

    def __str__(self) -> str:
        """The result in one line.

        >>> print(Check(2, 45.4, 29.6))
        checked against its graph on 2 inputs: within rounding
        """
        if self.skipped or not self.inputs:
            return f"not checked against its graph{f': {self.skipped}' if self.skipped else ''}"
        over = f"{self.inputs} input{'s' if self.inputs > 1 else ''}"
        return f"checked against its graph on {over}: {self.note or 'within rounding'}"

    def merge(self, other: Check) -> Check:
        """Combine the checks of two methods: the worse figures."""
        worse = min((self, other), key=lambda c: math.inf if c.sqnr is None else c.sqnr)
        texts = [" ".join(dict.fromkeys(filter(None, parts)))
                for parts in ((self.skipped, other.skipped), (self.note, other.note))]  # fmt: skip
        return Check(self.inputs + other.inputs, worse.sqnr, worse.bound, *texts)


@dataclass(frozen=True)
class Trial:
    """A precision that ``-best`` tried, on inputs that neither it nor the report learned or measured from. ``sqnr``: in
    decibels (of discrete outputs: the percentage that is equal). ``metric``: of ``select``. ``kept``: it was the best
    until then."""

    precision: str
    sqnr: float
    metric: float | None = None
    kept: bool = False

    def better_than(self, other: Trial, margin: float) -> bool:
        """By the metric; where it is equal or there is none, by at least ``margin`` decibels.

        >>> Trial("int8+bias", 30.2).better_than(Trial("int8", 30.0), 0.05)
        True
        """
        if self.metric is not None and other.metric is not None and self.metric != other.metric:
            return self.metric > other.metric
        return self.sqnr > other.sqnr + margin

    @property
    def score(self) -> str:
        """
        >>> Trial("int8", 30.04).score, Trial("int8", 30.0, 0.9312).score
        ('30.0 dB', '0.9312')
        """
        return f"{self.sqnr:.1f} dB" if self.metric is None else f"{self.metric:.4g}"


@dataclass
class CompileReport:
    """Report for one target. ``sqnr``: against the original model over ``samples`` inputs, in decibels, of the worst
    output (``outputs``: of each). ``agreement``: the fraction of equal indices and bools. ``evaluated_on``: the origin
    of those inputs (``held-out`` from the calibration data, ``given`` by the user, ``calibration``: the calibration
    data itself, ``example``), or ``nothing`` without an original to compare with. ``nonfinite``: how many elements, of
    how many, are infinite or NaN in original or file and differ in the other. ``metric``: the user's. ``simulated``:
    why the file runs on the host only."""

    target: str
    backend: str
    precision: str = "float"
    simulated: str = ""
    bytes: int = 0
    planned_bytes: int = 0
    sqnr: float | None = None
    samples: int = 0
    evaluated_on: str = ""
    outputs: tuple[float | None, ...] = ()
    agreement: float | None = None
    nonfinite: tuple[int, int] = (0, 0)
    metric: float | None = None
    host_ms: float | None = None
    shapes: dict[str, float] = field(default_factory=dict)  # SQNR at the smallest, middle and largest dynamic shape
    integer_io: dict[str, str] = field(default_factory=dict)  # inputs and outputs that are integers, with their scales
    own_kernels: tuple[str, ...] = ()  # kernels of custom operators, which the application has to provide
    file: str = ""
    stages: dict[str, float] = field(default_factory=dict)
    trials: tuple[Trial, ...] = ()  # what -best tried, in order; the last one kept is in the file
    methods: Mapping[str, PartitionReport] = field(default_factory=dict)
    check: Check = field(default_factory=Check)
    program: Any = field(default=None, repr=False, compare=False)  # the finished one; not in the JSON
    meter: Any = field(default=None, repr=False, compare=False)  # what the accuracy was computed from; not in the JSON
    html: str = field(default="", repr=False, compare=False)  # the page that was written last; not in the JSON

    def set_accuracy(self, figures: Any) -> None:
        """Set the figures of an ``Accuracy``."""
        self.sqnr, self.outputs, self.agreement = figures.sqnr, figures.outputs, figures.agreement
        self.nonfinite = figures.nonfinite

    @property
    def coverage(self) -> dict[str, float]:
        """Fractions delegated to the backend, by operators, multiply-accumulates and bytes."""
        return coverage_of(self.methods.values())

    @property
    def counts(self) -> Counts:
        """Operator counts of all methods; the number of groups is the sum over methods."""
        total = count(v for m in self.methods.values() for v in m.verdicts)
        return replace(total, groups=sum(m.groups for m in self.methods.values()))

    @property
    def delegated(self) -> int:
        return self.counts.delegated

    @property
    def operators(self) -> int:
        return self.counts.operators

    @property
    def advice(self) -> str:
        """Advice about operators left on the CPU; empty if there are none."""
        return self.advise("edgewright explain")

    def advise(self, command: str) -> str:
        """As ``advice``, with the command that shows the reasons."""
        rejected = [v for m in self.methods.values() for v in m.rejected if v.operator not in CONVERSIONS]
        if not rejected:
            return ""
        summary = self.counts.cpu_summary
        if not self.delegated and all(any(r.startswith(STATIC_SHAPE_RULE) for r in v.rejections) for v in rejected):
            return f"{summary}: this target needs sizes that are known in advance, leave out dynamic_shapes"
        if self.precision == "float" and any("static_quant" in r for v in rejected for r in v.rejections):
            return f"{summary}: this target works on integers, try --quantize int8"
        return f"{summary}: `{command}` says why"

    @property
    def poor(self) -> bool:
        """True if the SQNR is so low that the result needs attention."""
        return self.sqnr is not None and self.sqnr < POOR

    @property
    def choice(self) -> str:
        """What -best chose, and what each method that it tried achieved; empty if nothing was chosen."""
        if not self.trials:
            return ""
        first, *others = self.trials
        chosen = next(trial for trial in reversed(self.trials) if trial.kept)
        tried = ", ".join(f"{t.precision.removeprefix(first.precision)} {t.score}" for t in others)
        basis = "on calibration inputs held out to choose by"
        return f"chose {chosen.precision}: {chosen.score}, {first.precision} {first.score} {basis} (tried {tried})"

    @property
    def one_sided(self) -> str:
        """Message about elements that are infinite or NaN in only one of original and file; empty if there are none."""
        count, total = self.nonfinite
        if not count:
            return ""
        text = "output elements are infinite or NaN in the original or in the file, and not the same in both"
        return f"{count:,} of {total:,} {text}; SQNR leaves out those of the original"

    @property
    def missing_sqnr_reason(self) -> str:
        """Why there is no SQNR; empty if there is one."""
        if self.sqnr is not None:
            return ""
        if self.evaluated_on == "nothing":
            return "not compared with a float model: it is quantized already, and there is no original (--original)"
        if self.agreement is not None:
            return "its outputs are indices or bools, which have no SQNR"
        return "not measured: there are no inputs to measure on (--evaluate)"

    @property
    def measured_on(self) -> str:
        """The data that the figures were measured on.

        >>> CompileReport("xnnpack", "xnnpack", samples=8, evaluated_on="held-out").measured_on
        'on 8 held-out inputs'
        """
        return measured_on(self.evaluated_on, self.samples)

    @property
    def estimates(self) -> list[Mapping[str, Any]]:
        return [e for m in self.methods.values() for e in m.estimates]

    @property
    def estimated_ms(self) -> float | None:
        """Milliseconds of all delegates on the device, estimated by a vendor's compiler or a documented formula."""
        speeds = [e.get("inferences_per_second") for e in self.estimates]
        positive = [s for s in speeds if isinstance(s, int | float) and s > 0 and math.isfinite(s)]
        return sum(1e3 / s for s in positive) if positive and len(positive) == len(speeds) else None

    @property
    def sram(self) -> int | None:
        """Peak bytes of fast memory of the delegates, if estimated."""
        sizes = [e["memory"].get("sram") for e in self.estimates if isinstance(e.get("memory"), Mapping)]
        numbers = [int(s) for s in sizes if isinstance(s, int | float)]
        return max(numbers) if numbers else None

    @property
    def time_range(self) -> tuple[float, float] | None:
        """The least and the most milliseconds of all delegates, if their estimates are lower bounds; else None."""
        ranges = [time_range(e) for e in self.estimates]
        known = [r for r in ranges if r is not None]
        if not known or len(known) < len(ranges):
            return None
        return sum(low for low, _ in known) * 1e3, sum(high for _, high in known) * 1e3

    @property
    def time(self) -> tuple[float | None, str]:
        """Milliseconds of an inference, and the basis of the figure."""
        if self.estimated_ms is None and self.host_ms is not None:
            return self.host_ms, "measured on this machine"
        return self.estimated_ms, f"by {self.basis}" if self.basis else ""

    @property
    def basis(self) -> str:
        """The source of the estimate."""
        return str(self.estimates[0].get("basis", "")) if self.estimates else ""

    def to_dict(self) -> dict[str, Any]:
        plain = asdict(replace(self, methods={}, program=None, meter=None))
        del plain["methods"], plain["program"], plain["meter"], plain["html"]
        return {
            **plain,
            "coverage": self.coverage,
            "operators": self.operators,
            "taken": self.delegated,
            "sram": self.sram,
            "estimated_ms": self.estimated_ms,
            "estimated_range_ms": self.time_range,
            "estimate_basis": self.basis,
            "methods": {name: report.to_dict() for name, report in self.methods.items()},
        }

    def to_json(self) -> str:
        """The complete report as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def save_html(self, path: str | os.PathLike[str], *, profile: bool = True) -> Path:
        """Write the report as one HTML page that needs no network. ``profile``: also run the program here, to show
        the time of its steps."""
        return save_html([self], {}, path, profile=profile)


def save_html(
    reports: Sequence[CompileReport], failures: Mapping[str, Exception], path: str | os.PathLike[str], *, profile: bool
) -> Path:
    """Write one page about all targets."""
    from edgewright.api.html_report import build
    from edgewright.report.page import save

    missing = next((report.target for report in reports if report.program is None), None)
    if missing is not None:
        raise UsageError(f"report of {missing}", "must be of a result of edgewright.compile, which has the program")
    save(build(reports, failures, profile=profile), path)
    for report in reports:
        report.html = os.fspath(path)
    return Path(path)


def measured_on(origin: str, samples: int) -> str:
    """Describe the evaluation data: ``origin`` as in ``Samples``, and the number of inputs."""
    plural = "s" if samples > 1 else ""
    calibration = f"on the calibration data itself ({samples} input{plural}), which flatters it"
    return {
        "held-out": f"on {samples} held-out input{plural}",
        "given": f"on {samples} input{plural}",
        "calibration": f"{calibration}: pass other data to measure on (--evaluate)",
        "example": "on the example input alone: pass data to measure on (--evaluate)",
    }.get(origin, "")


MEASURES = (">delegated", ">file", ">RAM", ">SRAM", ">time")
COLUMNS = ("device", "precision", *MEASURES, ">SQNR")
LEGEND = (
    "delegated: share of multiply-accumulates; RAM: planned memory; SRAM: the NPU's fast memory; "
    "SQNR: against the original model, in dB"
)


def rows(reports: Sequence[CompileReport], metric: str = "") -> list[tuple[str, ...]]:
    """Reports as rows of a table."""
    return [_row(report, metric) for report in reports]


def columns(metric: str = "") -> tuple[str, ...]:
    """Column heads of the table; a metric of the user replaces the SQNR."""
    return tuple(f">{metric}" if metric and c == ">SQNR" else c for c in COLUMNS)


def _row(report: CompileReport, metric: str) -> tuple[str, ...]:
    score = _score(report)
    if metric:
        score = "" if report.metric is None else f"{report.metric:.4g}"
    return (report.target, report.precision, *measures(report), score)


def _score(report: CompileReport) -> str:
    if report.sqnr is None and report.agreement is not None:
        return f"{share(report.agreement)} equal"
    return "" if report.sqnr is None else f"{report.sqnr:.1f}"


def measures(report: CompileReport) -> tuple[str, ...]:
    """The cells of the columns ``MEASURES``."""
    milliseconds, _ = report.time
    return (
        share(report.coverage["macs"]),
        size(report.bytes),
        size(report.planned_bytes),
        "" if report.sram is None else size(report.sram),
        "" if milliseconds is None else f"{'≥' if report.time_range else ''}{duration(milliseconds / 1e3)}",
    )


def time_note(reports: Sequence[CompileReport]) -> str:
    """A note on the basis of the times."""
    by_basis: dict[str, list[str]] = {}
    for report in reports:
        basis, bounds = report.time[1] or "not known", report.time_range
        if bounds is not None:
            least, most = (duration(ms / 1e3) for ms in bounds)
            basis = f"at least {least}, at most {most} {basis}"
        by_basis.setdefault(basis, []).append(report.target)
    return "time: " + "; ".join(f"{', '.join(names)} {basis}" for basis, names in by_basis.items())
