"""Delegation by module: a tree of the operators delegated to a backend, with reasons for the rest. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from edgewright.lowering.partition.report import Counts, Verdict, count
from edgewright.units import share


@dataclass
class Branch:
    """A module with its operators and submodules. Counts include both."""

    name: str
    path: str = ""
    verdicts: list[Verdict] = field(default_factory=list)
    children: dict[str, Branch] = field(default_factory=dict)
    all_verdicts: list[Verdict] = field(default_factory=list)  # including those of submodules

    @cached_property
    def counts(self) -> Counts:
        return count(self.all_verdicts)

    @property
    def delegated(self) -> int:
        return self.counts.delegated

    @property
    def operators(self) -> int:
        return self.counts.operators

    @property
    def complete(self) -> bool:
        return self.delegated == self.operators

    def to_dict(self) -> dict[str, Any]:
        return {
            "module": self.path,
            "taken": self.delegated,
            "operators": self.operators,
            "macs": self.counts.macs,
            "macs_taken": self.counts.macs_delegated,
            "refused": [
                {"operator": v.operator, "node": v.node, "macs": v.macs, "reasons": list(v.rejections)}
                for v in self.verdicts
                if not v.backend
            ],
            "modules": [branch.to_dict() for branch in self.children.values()],
        }


def tree(verdicts: Iterable[Verdict], name: str = "model") -> Branch:
    """The module tree of a model, in execution order.

    >>> rejected = Verdict("topk", "topk", "a", rejections=["no row"])
    >>> print("\\n".join(lines(tree([Verdict("relu", "relu", "a.b", "xnnpack", 0), rejected]))))
    model  1 of 2
    └─ a  1 of 2
       └─ topk 'topk': no row
    """
    root = Branch(name)
    for verdict in verdicts:
        branch = root
        branch.all_verdicts.append(verdict)
        for part in filter(None, verdict.module.split(".")):
            path = f"{branch.path}.{part}" if branch.path else part
            branch = branch.children.setdefault(part, Branch(part, path))
            branch.all_verdicts.append(verdict)
        branch.verdicts.append(verdict)
    return root


def lines(branch: Branch, *, everything: bool = False) -> Iterator[str]:
    """The tree as text. Fully delegated modules are omitted unless ``everything`` is set."""
    yield f"{branch.name}  {_counts_text(branch)}"
    yield from _subtree_lines(branch, "", everything)


def _subtree_lines(branch: Branch, indent: str, everything: bool) -> Iterator[str]:
    modules = [b for b in branch.children.values() if everything or not b.complete]
    rejected = group_rejections([v for v in branch.verdicts if not v.backend])
    entries: Sequence[Any] = [*modules, *rejected]
    for number, entry in enumerate(entries):
        last = number == len(entries) - 1
        joint, below = ("└─ ", "   ") if last else ("├─ ", "│  ")
        if isinstance(entry, Branch):
            yield f"{indent}{joint}{entry.name}  {_counts_text(entry)}"
            yield from _subtree_lines(entry, indent + below, everything)
        else:
            yield f"{indent}{joint}{entry}"


def group_rejections(verdicts: Sequence[Verdict]) -> list[str]:
    """One line per operator kind and reason."""
    nodes_by_reason: dict[tuple[str, str], list[str]] = {}
    for verdict in verdicts:
        nodes_by_reason.setdefault((verdict.operator, "; ".join(verdict.rejections)), []).append(verdict.node)
    texts = []
    for (operator, reason), nodes in nodes_by_reason.items():
        subject = f"{nodes[0]!r}" if len(nodes) == 1 else f"{nodes[0]!r} and {len(nodes) - 1} more"
        texts.append(f"{operator} {subject}: {reason or 'between operators on the CPU'}")
    return texts


def _counts_text(branch: Branch) -> str:
    counts = branch.counts
    macs = "" if not counts.macs or counts.macs == counts.macs_delegated else (
        f", {share(counts.macs_delegated / counts.macs)} of multiply-accumulates"
    )  # fmt: skip
    return f"{counts.delegated} of {counts.operators}{macs}"
