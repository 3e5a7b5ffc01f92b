"""Rows of a sweep: one compilation each, addressed by everything that its result depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

DONE, FAILED, STOPPED = "done", "failed", "stopped"


@dataclass(frozen=True)
class Row:
    """``model``, ``precision``: names for people. ``spec``, ``metric``: what names the model and the metric.
    ``program``, ``data``, ``metric_source``: digests of the exported model, of the inputs, and of the metric's file.
    ``recipe``: of this target. ``versions``: of everything that compiles."""

    model: str
    target: str
    precision: str
    program: str
    data: str
    recipe: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    spec: str = ""
    metric: str = ""
    metric_source: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    chunks: tuple[int, int] = (1, 1)  # of the calibration and of the evaluation inputs

    @property
    def key(self) -> str:
        """The digest of everything that determines the result; names for people do not."""
        plain = asdict(self)
        for name in ("model", "precision", "spec", "chunks"):
            del plain[name]
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Row:
        fields = json.loads(text)
        return cls(**{**fields, "chunks": tuple(fields["chunks"])})

    def __str__(self) -> str:
        options = "".join(f", {name}={value}" for name, value in self.options.items())
        return f"{self.model}, {self.target}, {self.precision}{options}"


@dataclass(frozen=True)
class Outcome:
    """What became of a row. ``status``: ``done``; ``failed``, with a typed error that would come again; or
    ``stopped``: it took too long, or its worker died too often. ``figures``: of the compile report. ``files``: digests
    of the program and what belongs to it, by kind. ``reasons``: of attempts that were repeated."""

    status: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    error: str = ""
    traceback: str = ""
    attempts: int = 1
    reasons: tuple[str, ...] = ()
    seconds: float = 0.0

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        fields = json.loads(text)
        return cls(**{**fields, "reasons": tuple(fields["reasons"])})
