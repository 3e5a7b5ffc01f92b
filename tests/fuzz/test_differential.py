"""Mutated device graphs: what verification accepts can be planned, and engine and reference agree on it."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from edgewright.engine import make_plan
from edgewright.errors import EdgewrightError, LimitError
from tests.fuzz.compare import MEMORY, compare, load
from tests.fuzz.graph_seeds import DIALECTS, seeds
from tests.fuzz.targets import graph_mutator
from tests.fuzz.twin_mutations import type_variants
from tests.support.dialects import NUMERICS

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numbers that a mutation made
CORPUS = Path(__file__).parent / "corpus" / "differential"


@cache
def files(dialect: str) -> tuple[bytes, ...]:
    return tuple(seeds(dialect, samples=1, stride=8))


def mutated(dialect: str, number: int) -> bytes:
    chance = random.Random(f"test {dialect} {number}")
    return graph_mutator(dialect)(chance.choice(files(dialect)), chance)


@pytest.mark.sample(2)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_accepted_graphs_can_be_planned(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine plans every graph that the reference accepts; machine code is not generated."""
    monkeypatch.setenv("EDGEWRIGHT_ENGINE", "reference")
    numerics = NUMERICS[dialect]
    accepted, rejected = 0, []
    for number in range(120):
        try:
            graph, _ = load(dialect, mutated(dialect, number))
        except EdgewrightError as error:
            rejected.append(error)
            continue
        accepted += 1
        try:
            make_plan(graph, 1, numerics, memory=MEMORY)
        except LimitError:
            pass  # the engine and the reference do not take the same memory
        except Exception as error:
            raise AssertionError(f"{dialect} {number}") from error
    assert accepted > 5
    assert len(rejected) > 20
    assert [str(error) for error in rejected if error.exit_code == 70] == []


@pytest.mark.sample("qnn")
@pytest.mark.parametrize("dialect", [dialect for dialect in DIALECTS if dialect != "xnnpack"])
def test_accepted_element_types_can_be_planned(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a dialect's signatures accept, the core table accepts after the translation: one verdict."""
    monkeypatch.setenv("EDGEWRIGHT_ENGINE", "reference")
    stride = max(1, len(files(dialect)) // 16)
    accepted, variants = 0, {data for file in files(dialect)[::stride] for data in type_variants(file)}
    for data in sorted(variants):
        try:
            graph, _ = load(dialect, data)
        except EdgewrightError:
            continue
        accepted += 1
        try:
            make_plan(graph, 1, NUMERICS[dialect], memory=MEMORY)
        except LimitError:
            pass
        except Exception as error:
            types = [f"{v.dtype}{' quantized' if v.q else ''}" for v in graph.values()]
            raise AssertionError(f"{[op.kind for op in graph.ops]} {types}") from error
    assert accepted > 5


@pytest.mark.parametrize("dialect", DIALECTS)
def test_seeds_agree(dialect: str) -> None:
    """Some of the unchanged files: the comparison itself finds nothing where nothing is wrong."""
    for data in files(dialect)[:: max(1, len(files(dialect)) // 3)][:3]:
        found = compare(dialect, data, 1)
        assert (found.category, found.reason) == ("", "")
        assert found.reference.accepted


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
def test_engine_and_reference_agree_on_mutated_files(dialect: str) -> None:
    for number in range(300):
        found = compare(dialect, mutated(dialect, number), number)
        assert not found.category, f"{dialect} {number}: {found.category}: {found.reason}"


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*-*")), ids=lambda path: path.name)
def test_kept_findings_agree(path: Path) -> None:
    """Files are named after their dialect and the seed of their inputs."""
    dialect, seed, _ = path.name.split("-")
    found = compare(dialect, path.read_bytes(), int(seed))
    assert not found.category, found.reason


def test_findings_are_kept() -> None:
    assert {path.name.split("-")[0] for path in CORPUS.iterdir()} <= set(DIALECTS)
    assert len(list(CORPUS.iterdir())) >= 1


def test_a_difference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference that is wrong by one must not pass."""
    from edgewright.ir.core.table import CORE_OPS

    data = next(data for data in files("core") if b'"kind":"core.abs"' in data)
    right = CORE_OPS["abs"]
    wrong = replace(right, reference=lambda ex, op: right.reference(ex, op) + 1)
    monkeypatch.setitem(CORE_OPS, "abs", wrong)
    found = compare("core", data, 1)
    assert found.category == "numbers"
    assert "real numbers" in found.reason
