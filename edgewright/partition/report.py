"""What runs where, and why not: one line per operator."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


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


@dataclass
class PartitionReport:
    """The verdicts of one method."""

    method: str
    backend: str
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def taken(self) -> list[Verdict]:
        return [v for v in self.verdicts if v.backend]

    def coverage(self) -> dict[str, float]:
        """Shares taken, by operators, multiply-accumulates and bytes of results."""
        return {
            "operators": _share(len(self.taken), len(self.verdicts)),
            "macs": _share(sum(v.macs for v in self.taken), sum(v.macs for v in self.verdicts)),
            "bytes": _share(sum(v.bytes for v in self.taken), sum(v.bytes for v in self.verdicts)),
        }

    def __str__(self) -> str:
        shares = self.coverage()
        groups = len({v.group for v in self.taken})
        lines = [
            f"{self.method}: {self.backend} takes {len(self.taken)} of {len(self.verdicts)} operators"
            f" in {groups} groups ({shares['macs']:.1%} of multiply-accumulates, {shares['bytes']:.1%} of bytes)"
        ]
        for verdict in self.verdicts:
            if not verdict.backend:
                where = f" in {verdict.module}" if verdict.module else ""
                lines.append(f"  {verdict.operator} {verdict.node!r}{where}: {'; '.join(verdict.refusals)}")
        return "\n".join(lines)

    def to_json(self) -> str:
        content: dict[str, Any] = {"method": self.method, "backend": self.backend, "coverage": self.coverage()}
        content["operators"] = [asdict(v) for v in self.verdicts]
        return json.dumps(content, indent=2)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0
