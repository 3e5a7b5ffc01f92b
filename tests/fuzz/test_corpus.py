"""The kept corpus, replayed: what fuzzing once found stays found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import hostile

pytestmark = pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")

CORPUS = Path(__file__).parent / "corpus"
ACTIONS: dict[str, Callable[[bytes], object]] = {
    "run": hostile.run,
    "bpte": hostile.verify,
    "ptd": lambda data: hostile.read("ptd", data),
    "etdp": lambda data: hostile.read("etdp", data),
}


@pytest.mark.parametrize("mode", sorted(ACTIONS))
def test_the_kept_corpus_gives_results_or_our_errors(mode: str) -> None:
    outcomes = {str(ACTIONS[mode](path.read_bytes())) for path in sorted((CORPUS / mode).iterdir())}
    assert any("ok" in outcome for outcome in outcomes)
    assert any("FormatError" in outcome for outcome in outcomes)


def test_the_corpus_is_small() -> None:
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < 1 << 20
