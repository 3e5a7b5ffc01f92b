"""Calls the command line in this process, and knows where the golden files are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from edgewright.cli import main

GOLDEN = Path(__file__).parents[1] / "golden"


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


class Cli:
    """``cli("run", path)`` runs a command and gives its exit code, stdout and stderr."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Outcome:
        self._capsys.readouterr()
        code = main([str(a) for a in arguments])
        captured = self._capsys.readouterr()
        return Outcome(code, captured.out, captured.err)


def recorded(name: str, case: str = "0.forward") -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The inputs stock was given and the outputs it gave."""
    with np.load(GOLDEN / f"{name}.npz") as stored:
        keys = [k for k in stored.files if k.startswith(f"{case}.")]
        return [stored[k] for k in keys if ".in" in k], [stored[k] for k in keys if ".out" in k]
