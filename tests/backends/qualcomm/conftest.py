"""Qualcomm's compiler in the tests' own process."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import pytest

from edgewright.backends.qualcomm import sharing, worker
from edgewright.backends.qualcomm.emit import compile_graphs
from edgewright.backends.qualcomm.target import QnnTarget
from edgewright.ir.graph import Graph


@pytest.fixture
def compiler_process() -> None:
    """For tests of bytes: only a fresh process numbers tensors the same way every time."""


@pytest.fixture(autouse=True)
def compile_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that loads Qualcomm's libraries takes longer than to compile a small graph; slow tests have it."""
    if "compiler_process" not in request.fixturenames and request.node.get_closest_marker("slow") is None:
        for module in (worker, sharing):
            monkeypatch.setattr(module, "compile_graphs_in_subprocess", _compile)


def _compile(named: Sequence[tuple[str, Graph]], target: QnnTarget) -> bytes:
    copies: tuple[Sequence[tuple[str, Graph]], QnnTarget] = pickle.loads(pickle.dumps((named, target)))
    return compile_graphs(*copies)
