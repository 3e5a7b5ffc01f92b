"""Delegation by module: a tree of what a backend takes, with the reasons at the operators it leaves. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from edgewright.lowering.partition.report import Counts, Verdict, count
from edgewright.units import share


@dataclass
class Branch:
    """A module and what is in it: operators of its own, and modules below. Counts are of both."""

    name: str
    path: str = ""
    own: list[Verdict] = field(default_factory=list)
    below: dict[str, Branch] = field(default_factory=dict)
    inside: list[Verdict] = field(default_factory=list)  # its own, and those of modules below

    @cached_property
    def counts(self) -> Counts:
        return count(self.inside)

    @property
    def taken(self) -> int:
        return self.counts.taken

    @property
    def operators(self) -> int:
        return self.counts.operators

    @property
    def complete(self) -> bool:
        return self.taken == self.operators

    def to_dict(self) -> dict[str, Any]:
        return {
            "module": self.path,
            "taken": self.taken,
            "operators": self.operators,
            "macs": self.counts.macs,
            "macs_taken": self.counts.macs_taken,
            "refused": [
                {"operator": v.operator, "node": v.node, "macs": v.macs, "reasons": list(v.refusals)}
                for v in self.own
                if not v.backend
            ],
            "modules": [branch.to_dict() for branch in self.below.values()],
        }


def tree(verdicts: Iterable[Verdict], name: str = "model") -> Branch:
    """The modules of a model, in the order their operators run.

    >>> found = tree([Verdict("relu", "relu", "a.b", "xnnpack", 0), Verdict("topk", "topk", "a", refusals=["no row"])])
    >>> print("\\n".join(lines(found)))
    model  1 of 2
    └─ a  1 of 2
       └─ topk 'topk': no row
    """
    root = Branch(name)
    for verdict in verdicts:
        branch = root
        branch.inside.append(verdict)
        for part in filter(None, verdict.module.split(".")):
            path = f"{branch.path}.{part}" if branch.path else part
            branch = branch.below.setdefault(part, Branch(part, path))
            branch.inside.append(verdict)
        branch.own.append(verdict)
    return root


def lines(branch: Branch, *, everything: bool = False) -> Iterator[str]:
    """The tree as text. Modules that are taken whole are shut unless ``everything`` is asked for."""
    yield f"{branch.name}  {_counts(branch)}"
    yield from _inside(branch, "", everything)


def _inside(branch: Branch, indent: str, everything: bool) -> Iterator[str]:
    modules = [b for b in branch.below.values() if everything or not b.complete]
    refused = _grouped([v for v in branch.own if not v.backend])
    entries: Sequence[Any] = [*modules, *refused]
    for number, entry in enumerate(entries):
        last = number == len(entries) - 1
        joint, below = ("└─ ", "   ") if last else ("├─ ", "│  ")
        if isinstance(entry, Branch):
            yield f"{indent}{joint}{entry.name}  {_counts(entry)}"
            yield from _inside(entry, indent + below, everything)
        else:
            yield f"{indent}{joint}{entry}"


def _grouped(refused: Sequence[Verdict]) -> list[str]:
    """Refusals in words; those that say the same are said once."""
    found: dict[tuple[str, str], list[str]] = {}
    for verdict in refused:
        found.setdefault((verdict.operator, "; ".join(verdict.refusals)), []).append(verdict.node)
    told = []
    for (operator, why), nodes in found.items():
        named = f"{nodes[0]!r}" if len(nodes) == 1 else f"{nodes[0]!r} and {len(nodes) - 1} more"
        told.append(f"{operator} {named}: {why or 'left in the middle of others'}")
    return told


def _counts(branch: Branch) -> str:
    found = branch.counts
    some = "" if not found.macs or found.macs == found.macs_taken else (
        f", {share(found.macs_taken / found.macs)} of multiply-accumulates"
    )  # fmt: skip
    return f"{found.taken} of {found.operators}{some}"
