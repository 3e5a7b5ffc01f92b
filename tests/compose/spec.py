"""A composition as data: inputs, steps, outputs. It is what a seed draws, what shrinks, and what a case file holds."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Step = dict[str, Any]  # "op", "in" (numbers of values), and the operator's own attributes


class InvalidSpecError(Exception):
    """A step does not fit the values it names: the draw, or the smaller candidate, is dropped."""


def need(condition: object, rule: str = "does not fit") -> None:
    if not condition:
        raise InvalidSpecError(rule)


@dataclass(frozen=True)
class Spec:
    """``inputs`` and the results of ``steps`` are numbered together, in order.

    A step may make several values. ``seed`` draws the contents of the inputs; each step's own draws its constants, so
    that they stay what they are when other steps are dropped.
    """

    dialect: str
    seed: int
    inputs: list[Step]
    steps: list[Step]
    outputs: list[int]
    options: dict[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        """One step a line, which is how case files are stored."""
        lines = [f'"dialect": {json.dumps(self.dialect)}', f'"seed": {self.seed}']
        for name, steps in (("inputs", self.inputs), ("steps", self.steps)):
            lines.append(f'"{name}": [\n' + ",\n".join("  " + json.dumps(s) for s in steps) + "\n ]")
        lines.append(f'"outputs": {json.dumps(self.outputs)}')
        lines.append(f'"options": {json.dumps(self.options, sort_keys=True)}')
        return "{\n " + ",\n ".join(lines) + "\n}\n"

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text().encode()).hexdigest()[:12]


def parse(text: str) -> Spec:
    held = json.loads(text)
    return Spec(**{name: held[name] for name in Spec.__dataclass_fields__ if name in held})


def load(path: Path) -> Spec:
    return parse(path.read_text())
