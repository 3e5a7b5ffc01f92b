"""What all tests share: fixed random numbers, the matrices of the default run, and the command line as a fixture."""

from __future__ import annotations

import gc
import logging
import os
import random
import sys
import zlib
from collections.abc import Generator
from typing import Any

import llvmlite.binding  # noqa: F401  (with LLVM in this process, kernels compile here: a process for each takes longer)
import numpy as np
import pytest
from hypothesis import settings

from tests.cli.cli import Cli
from tests.support.pairwise import pairwise

os.environ.setdefault("OMP_NUM_THREADS", "1")  # for torch, imported later: the cores have a worker of xdist each
settings.register_profile("again", derandomize=True, deadline=None)  # a slow machine is no reason to fail
settings.load_profile("again")

FULL_MATRIX = 16  # a test with up to this many combinations runs all of them by default


def seed(name: str) -> None:
    """Seed the global generators by name.

    Every test draws the same numbers in every run, whatever ran before it in its process. (xdist distributes tests by
    the speed of its workers.) A fixture's weights differ from the numbers that its test draws.
    """
    number = zlib.crc32(name.encode())
    random.seed(number)
    np.random.seed(number)
    torch = sys.modules.get("torch")  # not imported for tests that do without
    if torch is not None:
        # torch.manual_seed also queues a call for every device that is not here, with a traceback each.
        torch.default_generator.manual_seed(number)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Keep what collection allocates out of garbage collections: it lives until the end, and is large."""
    gc.disable()
    collected = yield
    gc.freeze()
    gc.set_threshold(20_000)  # by default every 700 allocations; tracing a model has millions
    gc.enable()
    return collected


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> None:
    seed(f"{fixturedef.baseid}::{fixturedef.argname}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    seed(item.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave most of the large matrices to ``-m slow``, unless cases are selected by name."""
    if config.option.keyword:
        return
    matrices: dict[str, list[Any]] = {}
    for item in items:
        if hasattr(item, "callspec") and not item.get_closest_marker("slow"):
            matrices.setdefault(item.nodeid.split("[")[0], []).append(item)
    for matrix in matrices.values():
        selected = default_run(matrix)
        for index, item in enumerate(matrix):
            if index not in selected:
                item.add_marker(pytest.mark.slow)


def default_run(matrix: list[Any]) -> set[int]:
    """Indices of the cases of a parametrized test that run by default.

    ``@pytest.mark.sample(n)``: n of them, evenly spaced. ``@pytest.mark.sample("name", ...)``: those with one of these
    parameters; if none has (as if one case was selected), all. Otherwise all; of many cases with three or more
    parameters, a pairwise selection.
    """
    sample = matrix[0].get_closest_marker("sample")
    if sample is not None and isinstance(sample.args[0], str):
        cases = enumerate({str(value) for value in item.callspec.params.values()} for item in matrix)
        return {index for index, params in cases if params & set(sample.args)} or set(range(len(matrix)))
    if sample is not None:
        count = min(sample.args[0], len(matrix))
        return {index * len(matrix) // count for index in range(count)}
    cases = [item.callspec.params for item in matrix]
    if len(cases) > FULL_MATRIX:
        varying = [name for name in cases[0] if len({str(case[name]) for case in cases}) > 1]
        if len(varying) >= 3:
            return set(pairwise([{name: case[name] for name in varying} for case in cases]))
    return set(range(len(matrix)))


@pytest.fixture(autouse=True)
def _own_logging() -> None:
    """A command that was called in this process sends logs to its own handler, but not those of later tests."""
    logger = logging.getLogger("edgewright")
    logger.propagate = True
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    for name in ("EDGEWRIGHT_LOG", "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return Cli(capsys)
