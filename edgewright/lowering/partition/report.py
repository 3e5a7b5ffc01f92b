"""Partition report: what is delegated, and why not, one line per operator."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from edgewright.backends.table import PRECISION_RULE, STATIC_SHAPE_RULE
from edgewright.lowering.estimates import describe
from edgewright.units import share

_FLOAT = "fp32"
_NO_REASON = "computed in floating point"


@dataclass(frozen=True)
class OpDetail:
    """What a drawing of the graph shows of an operator. ``inputs``: indices of the verdicts whose results it reads.
    ``results``: their types. ``source``: the user's own line. ``weights``: bytes of its constants."""

    inputs: tuple[int, ...] = ()
    results: tuple[str, ...] = ()
    quantization: tuple[str, ...] = ()
    source: str = ""
    weights: int = 0


@dataclass(frozen=True)
class Verdict:
    """One operator: its backend and group, or every rule that rejected it. ``detail`` is not in the JSON."""

    operator: str
    node: str
    module: str
    backend: str = ""
    group: int = -1
    rejections: Sequence[str] = ()
    macs: int = 0
    bytes: int = 0
    precision: str = ""  # of a product's operands
    detail: OpDetail = field(default=OpDetail(), compare=False, repr=False)

    def __str__(self) -> str:
        where = f" in {self.module}" if self.module else ""
        outcome = f"{self.backend}, group {self.group}" if self.backend else "; ".join(self.rejections)
        return f"{self.operator} {self.node!r}{where}: {outcome}"


def _all_violate(verdicts: Sequence[Verdict], rule: str) -> bool:
    """True if each operator violates the rule that starts so."""
    return all(any(r.startswith(rule) for r in v.rejections) for v in verdicts)


@dataclass(frozen=True)
class Layer:
    """A product of the exported model, whatever operators it was lowered to. ``reason``: why it is not quantized."""

    node: str
    module: str
    quantized: bool
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.node!r} in {self.module}" if self.module else repr(self.node)


def _by_reason(layers: list[Layer]) -> str:
    """The layers with why they are not quantized: a transformer has the same reason dozens of times."""
    reasons: dict[str, list[Layer]] = {}
    for layer in layers:
        reasons.setdefault(layer.reason, []).append(layer)
    parts = []
    for reason, same in reasons.items():
        rest = f" and {len(same) - _NAMED} more" if len(same) > _NAMED else ""
        parts.append(f"{', '.join(map(str, same[:_NAMED]))}{rest}{f' — {reason}' if reason else ''}")
    return "; ".join(parts)


_NAMED = 3  # layers with one reason that are named
CONVERSIONS = ("quantize", "dequantize")  # always present at inputs and outputs


@dataclass(frozen=True)
class Counts:
    """Operator counts of a model or a part of it: all, delegated ones, and the conversions among the others.

    ``groups``: delegate calls. ``macs``: multiply-accumulates.
    """

    operators: int = 0
    delegated: int = 0
    conversions: int = 0
    groups: int = 0
    macs: int = 0
    macs_delegated: int = 0
    bytes: int = 0
    bytes_delegated: int = 0

    @property
    def on_cpu(self) -> int:
        return self.operators - self.delegated

    @property
    def cpu_summary(self) -> str:
        """What runs on the CPU, as text."""
        conversions = f"{self.conversions} of them {'a conversion' if self.conversions == 1 else 'conversions'}"
        text = f"{self.on_cpu} of {self.operators} operators {'is' if self.on_cpu == 1 else 'are'} left to the CPU"
        return f"{text} ({conversions})" if self.conversions else text


def count(verdicts: Iterable[Verdict]) -> Counts:
    """Count verdicts; the single definition for summaries, trees, tables and pages."""
    all_ops = list(verdicts)
    delegated = [v for v in all_ops if v.backend]
    return Counts(
        len(all_ops), len(delegated), sum(1 for v in all_ops if not v.backend and v.operator in CONVERSIONS),
        len({(v.backend, v.group) for v in delegated}), sum(v.macs for v in all_ops), sum(v.macs for v in delegated),
        sum(v.bytes for v in all_ops), sum(v.bytes for v in delegated),
    )  # fmt: skip


@dataclass
class PartitionReport:
    """The verdicts of one method. ``backend`` names all backends tried, in order of priority.

    >>> report = PartitionReport("forward", "xnnpack", [Verdict("relu", "relu", "act", "xnnpack", 0, bytes=64)])
    >>> print(report)
    forward: 1 of 1 operators delegated to xnnpack in 1 group (100.0% of multiply-accumulates, 100.0% of bytes)
    """

    method: str
    backend: str
    verdicts: list[Verdict] = field(default_factory=list)
    estimates: list[Mapping[str, Any]] = field(default_factory=list)  # vendors' estimates for delegates
    unquantized: Mapping[str, str] = field(default_factory=dict)  # why the quantizer skipped layers, by node

    @property
    def delegated(self) -> list[Verdict]:
        return [v for v in self.verdicts if v.backend]

    @property
    def rejected(self) -> list[Verdict]:
        return [v for v in self.verdicts if not v.backend]

    @property
    def groups(self) -> int:
        """The number of delegate calls."""
        return count(self.verdicts).groups

    def coverage(self) -> dict[str, float]:
        """Delegated shares of operators, multiply-accumulates and result bytes."""
        counts = count(self.verdicts)
        return {
            "operators": _share(counts.delegated, counts.operators),
            "macs": _share(counts.macs_delegated, counts.macs),
            "bytes": _share(counts.bytes_delegated, counts.bytes),
        }

    @property
    def layers(self) -> list[Layer]:
        """The products, in order; one counts as quantized if all operators it was lowered to are."""
        quantized: dict[tuple[str, str], bool] = {}
        for v in self.verdicts:
            if v.macs and v.precision:
                key = v.node, v.module
                quantized[key] = quantized.get(key, True) and v.precision != _FLOAT
        reasons = {key: "" if done else self.unquantized.get(key[0], _NO_REASON) for key, done in quantized.items()}
        return [Layer(*key, done, reasons[key]) for key, done in quantized.items()]

    @property
    def precision(self) -> str:
        """How many layers are quantized, and which are not and why; empty for a float model."""
        layers = self.layers
        not_quantized = [layer for layer in layers if not layer.quantized]
        if not layers or not (self.unquantized or self._has_integers):
            return ""
        text = f"{len(layers) - len(not_quantized)} of {len(layers)} layers quantized"
        return f"{text}; not quantized: {_by_reason(not_quantized)}" if not_quantized else text

    @property
    def _has_integers(self) -> bool:
        return any(v.operator in ("quantize", "dequantize") or v.precision not in ("", _FLOAT) for v in self.verdicts)

    @property
    def verdict(self) -> str:
        """The coverage in one line."""
        shares, counts = self.coverage(), count(self.verdicts)
        return (
            f"{self.method}: {counts.delegated} of {counts.operators} operators delegated to {self.backend}"
            f" in {counts.groups} {'group' if counts.groups == 1 else 'groups'}"
            f" ({share(shares['macs'])} of multiply-accumulates, {share(shares['bytes'])} of bytes)"
        )

    @property
    def nothing_delegated(self) -> str:
        """Why no operator is delegated, as a sentence; empty if one is, or if there is none but conversions."""
        rejected = [v for v in self.rejected if v.operator not in CONVERSIONS]
        if self.delegated or not rejected:
            return ""
        weighty = [v for v in rejected if v.macs] or rejected
        first, text = weighty[0], f"nothing of {self.method!r} runs on {self.backend}"
        if _all_violate(weighty, STATIC_SHAPE_RULE):
            return f"{text}, which needs sizes that are known in advance: leave out dynamic_shapes, or compile per size"
        if _all_violate(weighty, PRECISION_RULE):
            return f"{text}, which computes in integers with scales known in advance: quantize the model first"
        return f"{text}: {first.operator} {first.node!r}: {first.rejections[0]}"

    @property
    def summary(self) -> str:
        """Coverage, quantized layers and estimates; without the operators that were rejected."""
        expected = [f"  {line}" for e in self.estimates if (line := describe(e))]
        precision = [f"  {self.precision}"] if self.precision else []
        return "\n".join([self.verdict, *precision, *expected])

    def __str__(self) -> str:
        return "\n".join([self.summary, *(f"  {v}" for v in self.rejected)])

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        head = {"method": self.method, "backend": self.backend, "groups": self.groups, "coverage": self.coverage()}
        expected = {"estimates": [dict(e) for e in self.estimates]} if self.estimates else {}
        layers = {"layers": [asdict(layer) for layer in self.layers]}
        return {**head, **expected, **layers, "operators": [_plain(v) for v in self.verdicts]}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)


def _plain(verdict: Verdict) -> dict[str, Any]:
    return {name: value for name, value in asdict(verdict).items() if name != "detail"}


def merge(first: PartitionReport | None, second: PartitionReport) -> PartitionReport:
    """Merge the reports of two partitioners: ``second`` was applied to what ``first`` left.

    Backends may see an operator under other names and fuse others. What the first delegated stays delegated; for the
    rest the second's verdict counts, preceded by the first's rejections.
    """
    if first is None:
        return second
    names = first.backend.split(", ")
    backends = first.backend if second.backend in names else f"{first.backend}, {second.backend}"
    # A backend that is applied twice continues its group numbers.
    first_group = 1 + max((v.group for v in first.delegated if v.backend == second.backend), default=-1)
    earlier = {(v.operator, v.node): v for v in first.rejected}
    rest = [_merge_verdict(earlier.get((v.operator, v.node)), v, first_group) for v in second.verdicts]
    verdicts = _with_merged_inputs(first, second, rest)
    estimates = [*first.estimates, *second.estimates]
    return PartitionReport(first.method, backends, verdicts, estimates, {**first.unquantized, **second.unquantized})


def _with_merged_inputs(first: PartitionReport, second: PartitionReport, rest: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts of a merged report: those the first delegated, then ``rest``, with indices of the merged list.

    The first graph has every edge; in the second, groups of the first are calls. What only the second has keeps its
    own.
    """
    delegated = first.delegated
    earlier = {(v.operator, v.node): v for v in first.rejected}
    position = {id(v): i for i, v in enumerate(delegated)}
    for i, verdict in enumerate(second.verdicts):
        before = earlier.get((verdict.operator, verdict.node))
        if before is not None:
            position[id(before)] = len(delegated) + i
    moved = [position.get(id(v)) for v in first.verdicts]
    own = [len(delegated) + i for i in range(len(second.verdicts))]

    def placed(verdict: Verdict, detail: OpDetail, indices: Sequence[int | None]) -> Verdict:
        inputs = tuple(i for n in detail.inputs if (i := indices[n]) is not None)
        return replace(verdict, detail=replace(detail, inputs=inputs))

    result = [placed(v, v.detail, moved) for v in delegated]
    for verdict, original in zip(rest, second.verdicts, strict=True):
        before = earlier.get((original.operator, original.node))
        result.append(
            placed(verdict, original.detail, own) if before is None else placed(verdict, before.detail, moved)
        )
    return result


def _merge_verdict(before: Verdict | None, now: Verdict, used: int) -> Verdict:
    if now.backend:
        return Verdict(**{**vars(now), "group": now.group + used})
    if before is None:
        return now
    return Verdict(**{**vars(now), "rejections": [*dict.fromkeys([*before.rejections, *now.rejections])]})


def coverage_of(reports: Iterable[PartitionReport]) -> dict[str, float]:
    """The coverage of several methods together."""
    return PartitionReport("", "", [v for report in reports for v in report.verdicts]).coverage()


def _share(part: int, total: int) -> float:
    return part / total if total else 1.0
