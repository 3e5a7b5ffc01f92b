"""Mutated files through the command line: typed errors and their exit codes, never a traceback."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from edgewright.cli import inspect
from tests.fuzz import command_line

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numbers that a mutation made


def sweep(seeds: range) -> Counter[int]:
    ended: Counter[int] = Counter()
    for seed in seeds:
        outcome = command_line.execute(seed)
        assert not command_line.problem(outcome), f"seed {seed}: {outcome}"
        ended[outcome[0]] += 1
    return ended


def test_mutated_files_end_in_typed_errors() -> None:
    ended = sweep(range(100))
    assert ended[0] > 15  # the rest of the file is good: some mutations change nothing that a command reads
    assert ended[4] > 15  # FormatError


@pytest.mark.slow
def test_many_mutated_files_end_in_typed_errors() -> None:
    sweep(range(100, 5200))


def test_a_traceback_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(args: object) -> int:
        raise KeyError("x")

    monkeypatch.setattr(inspect, "run", broken)
    case = next(case for case in command_line.cases() if case.mutated == "m.pte")
    outcome = command_line.run_command(("inspect", "m.pte"), case.files)
    assert "KeyError" in command_line.problem(outcome)


def test_cases_cover_all_backends_and_formats() -> None:
    assert {case.mutated for case in command_line.cases()} == {
        "m.pte", "m.twin", "m.bpte", "p.etdp", "w.ptd", "x.npz", "r.toml"
    }  # fmt: skip
    programs = b"".join(case.files["m.pte"] for case in command_line.cases() if case.mutated == "m.pte")
    for backend in (b"XnnpackBackend", b"EthosUBackend", b"QnnBackend", b"EnnBackend", b"NeutronBackend"):
        assert backend in programs


def test_an_archive_that_points_outside_itself_is_damaged() -> None:
    """By the offset of its directory, in the last record, its members start before the file does."""
    case = next(case for case in command_line.cases() if case.mutated == "x.npz")
    data = bytearray(case.files["x.npz"])
    record = data.rindex(b"PK\x05\x06")
    data[record + 16 : record + 20] = (len(data) * 2).to_bytes(4, "little")
    files = case.files | {"x.npz": bytes(data)}
    code, _, errors = command_line.run_command(("run", "m.pte", "--inputs", "x.npz"), files)
    assert code == 7
    assert "must be a complete .npz or .npy file" in errors


def test_mutations_are_reproducible() -> None:
    case = next(case for case in command_line.cases() if case.mutated == "m.pte")
    first, second = (command_line.mutate("m.pte", case.files["m.pte"], random.Random(7)) for _ in range(2))
    assert first == second
