"""Stop strings in text that arrives in pieces."""

from __future__ import annotations

import random
from typing import Any

import pytest

from edgewright.errors import UsageError
from edgewright.llm.stop_strings import StopStrings, check_stops


def run(stops: list[str], pieces: list[str]) -> tuple[list[str], str | None]:
    watch = StopStrings(stops)
    passed = [watch.push(piece) for piece in pieces]
    return [*passed, watch.finish()], watch.matched


def test_text_before_the_match_is_kept() -> None:
    assert run(["END"], ["abENDcd"]) == (["ab", ""], "END")
    assert run(["END"], ["aE", "N", "D", "x"]) == (["a", "", "", "", ""], "END")


def test_what_cannot_become_a_match_is_passed_at_once() -> None:
    assert run(["END"], ["aE", "NX", "b"]) == (["a", "ENX", "b", ""], None)
    assert run(["aab"], ["aa", "a", "b"]) == (["", "a", "", ""], "aab")
    assert run(["END"], ["aEN"]) == (["a", "EN"], None)


def test_the_earliest_match_wins() -> None:
    assert run(["cd", "b"], ["abcd"]) == (["a", ""], "b")
    assert run(["abc", "b"], ["xab", "c"]) == (["xa", "", ""], "b")


def test_without_stops_everything_passes() -> None:
    assert run([], ["a", "b"]) == (["a", "b", ""], None)


def test_random_cuts() -> None:
    draw = random.Random(0)
    for _ in range(2000):
        text = "".join(draw.choices("ab", k=12))
        stops = ["".join(draw.choices("ab", k=draw.randint(3, 6))) for _ in range(2)]
        cuts = sorted(draw.sample(range(1, 12), 4))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, 12], strict=True)]
        passed, matched = run(stops, pieces)
        ends = [text.find(stop) for stop in stops if stop in text]
        if matched is None:
            assert not ends and "".join(passed) == text
        else:
            # A longer stop that starts earlier may complete later than a shorter one, which then ends the reply.
            assert "".join(passed) + matched == text[: len("".join(passed) + matched)]
            assert not any(stop in "".join(passed) for stop in stops)


@pytest.mark.parametrize("stops", ["", [""], [1], ["x" * 1025], ["x"] * 17])
def test_stops_out_of_range(stops: Any) -> None:
    with pytest.raises(UsageError, match="stop"):
        check_stops([""] if stops == "" else stops)


def test_one_text_or_several() -> None:
    assert check_stops("x") == ("x",)
    assert check_stops(None) == check_stops([]) == ()
    assert check_stops(["x", "yy"]) == ("x", "yy")
