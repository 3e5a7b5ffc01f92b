"""What runs where, and why not: one line per operator."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from edgewright.lowering.estimates import describe
from edgewright.units import share

_FLOAT = "fp32"
_UNTOLD = "computed in floating point"


@dataclass(frozen=True)
class Verdict:
    """One operator: taken by a backend (and in which group), or every rule that refused it."""

    operator: str
    node: str
    module: str
    backend: str = ""
    group: int = -1
    refusals: Sequence[str] = ()
    macs: int = 0
    bytes: int = 0
    precision: str = ""  # of a product: how its operands are held

    def __str__(self) -> str:
        where = f" in {self.module}" if self.module else ""
        what = f"{self.backend}, group {self.group}" if self.backend else "; ".join(self.refusals)
        return f"{self.operator} {self.node!r}{where}: {what}"


@dataclass(frozen=True)
class Layer:
    """A product of the model's own, whatever operators it became. ``reason``: why it is not quantized."""

    node: str
    module: str
    quantized: bool
    reason: str = ""

    def __str__(self) -> str:
        where = f" in {self.module}" if self.module else ""
        return f"{self.node!r}{where}{f' — {self.reason}' if self.reason else ''}"


CONVERSIONS = ("quantize", "dequantize")  # at the ends of a method, always there


@dataclass(frozen=True)
class Counts:
    """Operators of a model or of a part of it: all, those that backends take, and of those left the conversions.
    ``groups``: calls of delegates. ``macs``: multiply-accumulates."""

    operators: int = 0
    taken: int = 0
    conversions: int = 0
    groups: int = 0
    macs: int = 0
    macs_taken: int = 0
    bytes: int = 0
    bytes_taken: int = 0

    @property
    def left(self) -> int:
        return self.operators - self.taken

    @property
    def left_over(self) -> str:
        """What is left to the CPU, in words."""
        some = f"{self.conversions} of them {'a conversion' if self.conversions == 1 else 'conversions'}"
        told = f"{self.left} of {self.operators} operators are left to the CPU"
        return f"{told} ({some})" if self.conversions else told


def count(verdicts: Iterable[Verdict]) -> Counts:
    """The one way to count: summaries, trees, tables and pages all ask here."""
    every = list(verdicts)
    taken = [v for v in every if v.backend]
    return Counts(
        len(every), len(taken), sum(1 for v in every if not v.backend and v.operator in CONVERSIONS),
        len({(v.backend, v.group) for v in taken}), sum(v.macs for v in every), sum(v.macs for v in taken),
        sum(v.bytes for v in every), sum(v.bytes for v in taken),
    )  # fmt: skip


@dataclass
class PartitionReport:
    """The verdicts of one method. ``backend`` names all that were asked, in order of priority.

    >>> report = PartitionReport("forward", "xnnpack", [Verdict("relu", "relu", "act", "xnnpack", 0, bytes=64)])
    >>> print(report)
    forward: 1 of 1 operators delegated to xnnpack in 1 group (100.0% of multiply-accumulates, 100.0% of bytes)
    """

    method: str
    backend: str
    verdicts: list[Verdict] = field(default_factory=list)
    estimates: list[Mapping[str, Any]] = field(default_factory=list)  # of the delegates, where a vendor gives any
    left: Mapping[str, str] = field(default_factory=dict)  # why a quantizer left layers alone, by node

    @property
    def taken(self) -> list[Verdict]:
        return [v for v in self.verdicts if v.backend]

    @property
    def refused(self) -> list[Verdict]:
        return [v for v in self.verdicts if not v.backend]

    @property
    def groups(self) -> int:
        """How many calls of delegates there are."""
        return count(self.verdicts).groups

    def coverage(self) -> dict[str, float]:
        """Shares taken, by operators, multiply-accumulates and bytes of results."""
        found = count(self.verdicts)
        return {
            "operators": _share(found.taken, found.operators),
            "macs": _share(found.macs_taken, found.macs),
            "bytes": _share(found.bytes_taken, found.bytes),
        }

    @property
    def layers(self) -> list[Layer]:
        """The products, in order, each with its precision: quantized if all operators that it became are."""
        found: dict[tuple[str, str], bool] = {}
        for v in self.verdicts:
            if v.macs and v.precision:
                key = v.node, v.module
                found[key] = found.get(key, True) and v.precision != _FLOAT
        why = {key: "" if done else self.left.get(key[0], _UNTOLD) for key, done in found.items()}
        return [Layer(*key, done, why[key]) for key, done in found.items()]

    @property
    def precision(self) -> str:
        """How many layers are quantized, and which are not and why; empty for a model in floating point."""
        layers = self.layers
        real = [layer for layer in layers if not layer.quantized]
        if not layers or not (self.left or self._has_integers):
            return ""
        told = f"{len(layers) - len(real)} of {len(layers)} layers quantized"
        return f"{told}; not quantized: {', '.join(map(str, real))}" if real else told

    @property
    def _has_integers(self) -> bool:
        return any(v.operator in ("quantize", "dequantize") or v.precision not in ("", _FLOAT) for v in self.verdicts)

    @property
    def verdict(self) -> str:
        """The coverage in one line."""
        shares, found = self.coverage(), count(self.verdicts)
        return (
            f"{self.method}: {found.taken} of {found.operators} operators delegated to {self.backend}"
            f" in {found.groups} {'group' if found.groups == 1 else 'groups'}"
            f" ({share(shares['macs'])} of multiply-accumulates, {share(shares['bytes'])} of bytes)"
        )

    @property
    def summary(self) -> str:
        """Coverage, quantized layers and estimates; without the operators that were rejected."""
        expected = [f"  {line}" for e in self.estimates if (line := describe(e))]
        held = [f"  {self.precision}"] if self.precision else []
        return "\n".join([self.verdict, *held, *expected])

    def __str__(self) -> str:
        return "\n".join([self.summary, *(f"  {v}" for v in self.refused)])

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        head = {"method": self.method, "backend": self.backend, "groups": self.groups, "coverage": self.coverage()}
        expected = {"estimates": [dict(e) for e in self.estimates]} if self.estimates else {}
        held = {"layers": [asdict(layer) for layer in self.layers]}
        return {**head, **expected, **held, "operators": [asdict(v) for v in self.verdicts]}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)


def merge(first: PartitionReport | None, second: PartitionReport) -> PartitionReport:
    """Both verdicts in one report: ``second`` was asked about what ``first`` left.

    Backends may see an operator under other names and fuse others, so that what the first took is kept as it said it,
    and of the rest the second's word counts, with the first's refusals before its own.
    """
    if first is None:
        return second
    names = first.backend.split(", ")
    joint = first.backend if second.backend in names else f"{first.backend}, {second.backend}"
    # A backend that is asked twice counts its groups on.
    used = 1 + max((v.group for v in first.taken if v.backend == second.backend), default=-1)
    before = {(v.operator, v.node): v for v in first.refused}
    rest = [_joined(before.get((v.operator, v.node)), v, used) for v in second.verdicts]
    verdicts, estimates = [*first.taken, *rest], [*first.estimates, *second.estimates]
    return PartitionReport(first.method, joint, verdicts, estimates, {**first.left, **second.left})


def _joined(before: Verdict | None, now: Verdict, used: int) -> Verdict:
    if now.backend:
        return Verdict(**{**vars(now), "group": now.group + used})
    if before is None:
        return now
    return Verdict(**{**vars(now), "refusals": [*dict.fromkeys([*before.refusals, *now.refusals])]})


def coverage_of(reports: Iterable[PartitionReport]) -> dict[str, float]:
    """The coverage of several methods together."""
    return PartitionReport("", "", [v for report in reports for v in report.verdicts]).coverage()


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0
