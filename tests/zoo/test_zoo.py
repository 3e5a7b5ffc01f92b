"""The zoo's tool: what it makes of models, of workers that die, and of rows that got worse; and the committed table."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewright.units import duration
from tests.support.portable import PortableProgram
from tests.zoo import __main__ as command
from tests.zoo import table as tables
from tests.zoo.campaign import Campaign, Limits, State, TimeBudget, share
from tests.zoo.judge import Subject, judge, make_subject
from tests.zoo.network import TensorOutputs
from tests.zoo.reduced import MARK, NAMES, shorten
from tests.zoo.sources import listed
from tests.zoo.targets import TARGETS
from tests.zoo.worker import work

CONVOLUTION = "tests.zoo.toys:convolution"
BRANCHING = "tests.zoo.toys:branching"


def rows_of(name: str, targets: Sequence[str]) -> list[dict[str, Any]]:
    lines = io.StringIO()
    work(name, targets, lines)
    return [row for line in lines.getvalue().splitlines() if "start" not in (row := json.loads(line))]


def test_a_model_gets_a_row_for_each_target() -> None:
    portable, xnnpack = rows_of(CONVOLUTION, ["portable", "xnnpack-int8"])
    assert portable["status"] == xnnpack["status"] == "ok"
    assert portable["delegates"] == 0 and portable["agreement"] > 100
    assert xnnpack["delegates"] == 1 and xnnpack["coverage"] == 100.0
    assert 15 < xnnpack["sqnr"] < 100 and xnnpack["input"] == "4x4"


def test_what_torch_cannot_capture_is_told_for_all_targets() -> None:
    rows = rows_of(BRANCHING, ["portable", "xnnpack-fp32"])
    assert [row["status"] for row in rows] == ["export", "export"]
    assert rows[0]["error"] == "ExportError" and "export: tests/zoo/toys.py:" in rows[0]["message"]


def test_a_model_that_does_not_exist_is_no_defect() -> None:
    assert [row["status"] for row in rows_of("tests.zoo.toys:nothing", ["portable"])] == ["model"]


def test_norms_have_statistics_of_all_inputs() -> None:
    """Each input is nearly constant, and they differ by much."""
    import torch

    from tests.zoo.weights import set_norm_statistics

    calls = [(torch.full((1, 2, 2, 2), level) + 0.01 * torch.rand(1, 2, 2, 2),) for level in (-3.0, 0.0, 5.0)]
    norm = torch.nn.BatchNorm2d(2).eval()
    set_norm_statistics(norm, calls)
    assert all(norm(*call).abs().max() < 2 for call in calls)


class _Wrong:
    """A method whose results are off."""

    def __init__(self, method: Any, change: Callable[[Any], Any]) -> None:
        self.method = method
        self.change = change

    def execute(self, inputs: Any) -> Any:
        return [self.change(np.asarray(o).copy()) for o in self.method.execute(inputs)]

    def close(self) -> None:
        self.method.close()


@pytest.mark.parametrize("change", [lambda x: x * 1.01, lambda x: x * np.nan, lambda x: x[:, :2]])
def test_wrong_numbers_are_seen(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any]) -> None:
    import edgewright as ew
    from tests.zoo.sources import build

    network = build(CONVOLUTION)
    exported = ew.export(network.module, network.calls[0])
    method = PortableProgram.method
    monkeypatch.setattr(PortableProgram, "method", lambda self: _Wrong(method(self), change))
    assert judge(make_subject(exported, network.calls), TARGETS["portable"])["status"] == "wrong"


def test_an_untyped_error_names_the_place(monkeypatch: pytest.MonkeyPatch) -> None:

    def fail(self: Any, exported: Any) -> None:
        duration("x")  # type: ignore[arg-type]

    monkeypatch.setattr(PortableProgram, "__init__", fail)
    row = judge(Subject(None, [], []), TARGETS["portable"])
    assert row["status"] == "error" and row["message"].startswith("TypeError")
    assert row["where"].startswith("units.py:")


WORKERS = {
    "good": "print(json.dumps({'target': t, 'status': 'ok'}), flush=True)",
    "dies": "print(json.dumps({'start': t}), flush=True); os.kill(os.getpid(), 11) if t == 'b' else "
    "print(json.dumps({'target': t, 'status': 'ok'}), flush=True)",
    "spins": "print(json.dumps({'start': t}), flush=True); exec('while True: pass')",
    "hangs": "print(json.dumps({'start': t}), flush=True); time.sleep(60)",
    "grows": "print(json.dumps({'start': t}), flush=True); held = bytearray(300 << 20); time.sleep(60)",
}


def fake_worker(name: str, targets: Sequence[str]) -> list[str]:
    code = f"import json, os, sys, time\nfor t in sys.argv[1:]:\n    {WORKERS[name]}"
    return [sys.executable, "-c", code.replace("; ", "\n    "), *targets]


@pytest.mark.parametrize(
    ("name", "limits", "expected"),
    [
        ("good", Limits(), {"a": "ok", "b": "ok", "c": "ok"}),
        ("dies", Limits(), {"a": "ok", "b": "crash", "c": "ok"}),
        ("spins", Limits(seconds=0.5), {"a": "limit", "b": "limit", "c": "limit"}),
        ("hangs", Limits(seconds=0.1), {"a": "limit", "b": "limit", "c": "limit"}),
        ("grows", Limits(gigabytes=0.2), {"a": "limit", "b": "limit", "c": "limit"}),
    ],
)
def test_workers_that_die_or_reach_a_limit(tmp_path: Path, name: str, limits: Limits, expected: dict[str, str]) -> None:
    state = State(tmp_path / "state.jsonl")
    Campaign(["a", "b", "c"], state, limits, command=fake_worker).run([name])
    assert {target: row["status"] for (_, target), row in state.rows.items()} == expected
    assert State(state.path).rows == state.rows  # as the file says


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    path.write_text(json.dumps({"model": "good", "target": "a", "status": "refused"}) + '\n{"model": "go')
    state = State(path)
    Campaign(["a", "b"], state, command=fake_worker).run(["good"], jobs=2)
    assert {t: row["status"] for (_, t), row in state.rows.items()} == {"a": "refused", "b": "ok"}
    Campaign(["c"], state, until=time.monotonic() - 1, command=fake_worker).run(["good"])
    assert ("good", "c") not in state.rows and State(path).rows == state.rows


def test_time_of_other_processes_does_not_count() -> None:
    budget = TimeBudget(60.0)
    budget.use(59.0)
    assert not budget.spent
    budget.close()
    budget.use(2.0)  # of the next process
    assert budget.spent


def test_a_new_state_file_has_the_rows_of_the_committed_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """... but for limits of its machine; ``--anew`` starts empty, ``--again`` runs rows of a status again."""
    rows = [{"model": m, "target": "portable", "status": s, "message": ""} for m, s in
            (("done", "ok"), ("slow", "limit"), ("broken", "wrong"))]  # fmt: skip
    tables.write_table({"date": "", "rows": rows}, tmp_path / "table.json")
    read = tables.read_table
    monkeypatch.setattr(tables, "read_table", lambda: read(tmp_path / "table.json"))
    monkeypatch.setattr(command, "listed", lambda models: ["done", "slow", "broken"])
    ran: list[str] = []
    monkeypatch.setattr(
        Campaign, "run_one", lambda self, name: ran.extend(self.state.missing(name, ["portable"]) and [name])
    )

    def run(state: str, *options: str) -> list[str]:
        ran.clear()
        assert command.main(["run", "--state", str(tmp_path / state), *options]) == 0
        return list(ran)

    assert run("first") == ["slow"] == run("first")
    assert run("first", "--again", "wrong") == ["slow", "broken"]
    assert run("second", "--anew") == ["done", "slow", "broken"]


def test_shares_are_disjoint_and_rotate() -> None:
    names = [str(n) for n in range(10)]
    parts = [share(names, f"{i}/3", seed=5) for i in (1, 2, 3)]
    assert sorted(n for part in parts for n in part) == names
    assert share(names, "1/3", seed=6) != parts[0]
    with pytest.raises(SystemExit):
        share(names, "4/3", seed=0)


OK = {
    "model": "m", "target": "portable", "status": "ok", "coverage": 90.0, "operators": 80.0, "delegates": 2,
    "bytes": 10, "sqnr": 40.0, "agreement": 50.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, ""),
        ({"sqnr": 39.2, "coverage": 95.0, "delegates": 1}, ""),
        ({"coverage": 89.0}, "coverage fell"),
        ({"operators": 70.0}, "operators fell"),
        ({"delegates": 3}, "2 delegates became 3"),
        ({"sqnr": 38.9}, "SQNR fell"),
        ({"status": "refused", "message": "no"}, "was ok, is refused"),
        ({"model": "new", "status": "error", "message": "KeyError"}, "KeyError"),
        ({"model": "new", "status": "refused", "message": "no"}, ""),
    ],
)
def test_what_is_worse(change: dict[str, Any], told: str) -> None:
    lines = list(tables.regressions({"rows": [OK]}, [{**OK, **change}]))
    assert len(lines) == bool(told) and told in "".join(lines)


def test_tables_are_written_as_they_are_read(tmp_path: Path) -> None:
    head = {"date": "2026-01-01", "commit": "abc", "packages": {"torch": "2"}}
    refused = {"model": "a", "target": "e9955", "status": "refused", "message": "no | kernel", "trace": "long"}
    table = tables.make_table([OK, refused], head)
    tables.write_table(table, tmp_path / "table.json")
    assert tables.read_table(tmp_path / "table.json") == table
    assert [row["model"] for row in table["rows"]] == ["a", "m"] and not list(tables.problems(table))
    page = tables.page(table, total=3)
    assert "**partial**: 2 of 3 models" in page and "no \\| kernel" in page
    assert list(tables.problems({**table, "rows": [OK, OK]})) == ["('m', 'portable'): stands 2 times"]


def test_the_committed_table_is_well_formed() -> None:
    table = tables.read_table()
    assert not list(tables.problems(table))
    assert {row["model"] for row in table["rows"]} <= set(listed())


def test_the_pages_are_of_the_committed_table() -> None:
    table, total = tables.read_table(), len(listed())
    assert tables.PAGE.read_text() == tables.page(table, total)
    section = tables.SOUNDNESS.read_text().partition(tables.BEGIN)[2].partition(tables.END)[0]
    assert section.strip() == tables.section(table, total)


def test_outputs_are_flat_tuples_of_tensors() -> None:
    import torch

    class Several(torch.nn.Module):
        def forward(self, x: torch.Tensor, kind: str = "tensor") -> Any:
            made: dict[str, Any] = {"tensor": x, "dict": {"a": x, "b": (x, None)}, "list": [x, [x]]}
            return made[kind]

    for kind, count in {"tensor": 1, "dict": 2, "list": 2}.items():
        outputs = TensorOutputs(Several(), kind=kind)(torch.ones(2))
        assert isinstance(outputs, tuple) and len(outputs) == count


def test_the_list_has_what_is_promised() -> None:
    names = [name for name in listed() if MARK not in name]
    assert [name for name in listed() if MARK in name] == list(NAMES)
    counts = {
        source: sum(n.startswith(f"{source}/") for n in names) for source in ("torchvision", "timm", "transformers")
    }
    assert counts["timm"] == 150 and counts["transformers"] == 60 and counts["torchvision"] >= 100
    assert len(set(names)) == len(names) and not any("quantized_" in n for n in names)
    assert listed(["timm/*"]) == [n for n in listed() if n.startswith("timm/")] and listed([CONVOLUTION]) == [
        CONVOLUTION
    ]


def test_equal_blocks_are_left_out() -> None:
    """Of each run of equal blocks, in lists and sequences; not layers without weights, nor what is inside a block."""
    from torch import nn

    def block(width: int) -> nn.Module:
        return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.ReLU(), nn.ReLU())

    model: Any = nn.Module()
    model.stem = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.ReLU(), nn.ReLU())
    model.blocks = nn.ModuleList([block(4), block(4), block(4), block(8), block(4)])
    model.stage = nn.Sequential(block(4), block(4), block(4), block(4))
    first = model.blocks[0]
    assert shorten(model, 2) == "6 of 9 blocks"
    assert [b[0].in_features for b in model.blocks] == [4, 4, 8, 4] and model.blocks[0] is first
    assert len(model.stage) == 2 and len(model.stem) == 4 and len(first) == 4
    assert all(name in listed() for name in (n.partition(MARK)[0] for n in NAMES))
