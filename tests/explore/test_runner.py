"""Rows on a cluster of threads: results are those of ``edgewright.compile``, errors are rows, deaths are repeated."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace
from typing import Any

import pytest

import edgewright as ew
from edgewright.errors import ExecutionError, FileAccessError, MissingError, UsageError
from edgewright.explore import tasks
from edgewright.explore.cluster import Cluster, connect
from edgewright.explore.plan import make_plan
from edgewright.explore.rows import DONE, FAILED, STOPPED, Outcome, Row
from edgewright.explore.runner import Runner
from edgewright.explore.store import Store
from edgewright.explore.sweep_file import Limits, SweepFile
from edgewright.explore.table import records, to_json
from tests.explore import nets
from tests.explore.test_plan import NETS

distributed = pytest.importorskip("distributed", reason="distributed is not installed")
TEXT = f"""targets = ["xnnpack"]
quantize = ["int8"]
calibrate = "{NETS}:data"
[models]
small = "{NETS}:small"
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with connect(workers=1, processes=False) as one:
        yield one


def sweep(text: str, folder: Path, cluster: Cluster, limits: Limits | None = None) -> tuple[Store, list[Row]]:
    """Run what is missing; returns the store and the rows that were run."""
    store, ran = Store(folder, create=True), []
    make_plan(SweepFile(text, "s.toml"), store, quiet=True)
    runner = Runner(cluster, store, limits or Limits(), lambda row, outcome: ran.append(row))
    runner.run(store.missing())
    return store, ran


def outcome_of(store: Store) -> Outcome:
    (outcome,) = store.outcomes().values()
    return outcome


@pytest.mark.slow
def test_rows_of_one_model_load_it_once_and_make_what_each_makes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = TEXT.replace('["int8"]', '["int8", "float", "int8+mse"]')
    alone = {}
    for precision in ("int8", "float", "int8+mse"):
        with connect(workers=1, processes=False) as one:
            part = TEXT.replace('["int8"]', f'["{precision}"]')
            alone[precision] = outcome_of(sweep(part, tmp_path / precision, one)[0])
    loads, load = [], tasks._load_session

    def counting(*args: Any) -> Any:
        loads.append(args)
        return load(*args)

    monkeypatch.setattr(tasks, "_load_session", counting)
    with connect(workers=1, processes=False) as one:
        store, rows = sweep(text, tmp_path / "all", one)
    outcomes = store.outcomes()
    assert len(rows) == 3 and len(loads) == 1
    for row in rows:
        assert outcomes[row.key].files["pte"] == alone[row.precision].files["pte"]
        assert outcomes[row.key].figures["sqnr"] == alone[row.precision].figures["sqnr"]


def test_a_row_is_what_compile_makes_and_is_run_once(tmp_path: Path, cluster: Cluster) -> None:
    store, ran = sweep(TEXT, tmp_path, cluster)
    (line,) = records(store)
    assert line["status"] == DONE and len(ran) == 1 and line["best"]
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    result = ew.compile(nets.small(), torch.zeros(1, 8), quantize="int8", calibration=nets.data())
    assert store.get(line["pte"]) == result.buffer and line["sqnr"] == result.report.sqnr
    assert line["samples"] == result.report.samples == 3 and line["file_bytes"] == len(result.buffer)
    _, again = sweep(TEXT, tmp_path, cluster)
    assert again == []
    _, more = sweep(TEXT.replace('"int8"', '"int8", "float"'), tmp_path, cluster)
    assert [row.precision for row in more] == ["float"]


@pytest.mark.slow
def test_a_backend_whose_compiler_is_no_python_package(tmp_path: Path, cluster: Cluster) -> None:
    store, _ = sweep(TEXT.replace("xnnpack", "e9955"), tmp_path, cluster)
    assert outcome_of(store).status == DONE, outcome_of(store).error


def test_chunks_on_workers_give_what_one_process_gives(tmp_path: Path, cluster: Cluster) -> None:
    text = TEXT.replace(":data", ":many").replace("[models]", f"samples = 300\nevaluate = '{NETS}:many'\n[models]")
    store, ran = sweep(text, tmp_path, cluster)
    (line,) = records(store)
    assert ran[0].chunks == (3, 3) and line["samples"] == 300
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    data = nets.many()
    result = ew.compile(
        nets.small(), torch.zeros(1, 8), quantize="int8", calibration=data, evaluate=data, samples=300
    )  # fmt: skip
    assert store.get(line["pte"]) == result.buffer and line["sqnr"] == result.report.sqnr


def test_an_error_is_a_row(tmp_path: Path, cluster: Cluster) -> None:
    outcome = outcome_of(sweep(TEXT.replace(f'calibrate = "{NETS}:data"\n', ""), tmp_path, cluster)[0])
    assert outcome.status == FAILED and "needs calibration data" in outcome.error and outcome.attempts == 1


def test_a_metric_that_raises_is_told_with_its_traceback(tmp_path: Path, cluster: Cluster) -> None:
    text = TEXT.replace("[models]", f'metric = "{NETS}:raising"\n[models]')
    outcome = outcome_of(sweep(text, tmp_path, cluster)[0])
    assert outcome.status == FAILED and "metric: raised KeyError: 'no such label'" in outcome.error
    assert 'return {}["no such label"]' in outcome.traceback and "nets.py" in outcome.traceback


def test_a_metric_that_is_not_finite_is_an_error_of_its_row(tmp_path: Path, cluster: Cluster) -> None:
    """It was a result before, which nothing beat, and which JSON cannot say."""
    text = TEXT.replace("[models]", f'metric = "{NETS}:not_a_number"\n[models]')
    store = sweep(text, tmp_path, cluster)[0]
    (line,) = records(store)
    assert line["status"] == FAILED and "metric: must return a finite number; got nan" in line["error"]
    assert line["traceback"] == "" and not line["best"] and json.loads(to_json([line]))[0]["metric"] is None


def test_a_metric_is_measured(tmp_path: Path, cluster: Cluster) -> None:
    text = TEXT.replace("[models]", f'metric = "{NETS}:mean_output"\n[models]')
    (line,) = records(sweep(text, tmp_path, cluster)[0])
    assert line["status"] == DONE and isinstance(line["metric"], float)


# ------------------------------------------------------------------------------------------------- what goes wrong


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A scheduler of its own, without workers, and its address."""
    file = tmp_path / "scheduler.json"
    options = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
    process = subprocess.Popen([sys.executable, "-m", "distributed.cli.dask_scheduler", *options], stderr=PIPE)
    end = time.monotonic() + 60
    while not file.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    yield process, json.loads(file.read_text())["address"]
    process.kill()
    process.communicate()


def test_a_scheduler_that_dies_is_an_error_that_says_how_to_go_on(
    tmp_path: Path, scheduler: tuple[subprocess.Popen[bytes], str]
) -> None:
    process, address = scheduler
    with connect(address) as remote:
        threading.Timer(1.0, process.kill).start()
        with pytest.raises(ExecutionError, match="the scheduler: is gone; finished rows are stored") as error:
            sweep(TEXT, tmp_path / "sweep", remote)
    assert f"edgewright sweep --resume {tmp_path / 'sweep'}" in str(error.value)


def dying(work: tasks.Work, model: bytes, data: bytes, statistics: Any) -> Any:
    tasks._report_start(work, "compile")
    time.sleep(0.05)  # the report arrives before the end
    raise distributed.KilledWorker("row", SimpleNamespace(address="tcp://a:1"), 0)


def dying_unstarted(work: tasks.Work, model: bytes, data: bytes, statistics: Any) -> Any:
    raise distributed.KilledWorker("row", SimpleNamespace(address="tcp://a:1"), 0)


def sleeping(work: tasks.Work, model: bytes, data: bytes, statistics: Any) -> Any:
    tasks._report_start(work, "compile")
    time.sleep(1.5)


def full(work: tasks.Work, model: bytes, data: bytes, statistics: Any) -> Any:
    def run() -> None:
        raise FileAccessError("x", "cannot be written") from OSError(28, "No space left on device")

    return tasks._guarded(work, "compile", run)


def broken(work: tasks.Work, model: bytes, data: bytes, statistics: Any) -> Any:
    return tasks._guarded(work, "compile", lambda: 1 // 0)


def test_a_row_whose_worker_dies_is_repeated_and_then_stopped(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "compile_row", dying)
    store, ran = sweep(TEXT, tmp_path, cluster, Limits(retries=2))
    outcome = outcome_of(store)
    assert (outcome.status, outcome.attempts, outcome.reasons) == (STOPPED, 3, ("its worker died",) * 2)
    assert "gave up after 3 attempts: its worker died" in outcome.error
    monkeypatch.undo()
    store, ran = sweep(TEXT, tmp_path, cluster)  # a stopped row is run again
    assert outcome_of(store).status == DONE and len(ran) == 1


def test_a_full_disk_of_a_worker_is_no_result(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "compile_row", full)
    outcome = outcome_of(sweep(TEXT, tmp_path, cluster, Limits(retries=1))[0])
    assert outcome.status == STOPPED and outcome.attempts == 2 and "cannot be written" in outcome.reasons[0]


def test_a_bug_is_a_row_with_its_traceback(tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "compile_row", broken)
    outcome = outcome_of(sweep(TEXT, tmp_path, cluster)[0])
    assert outcome.status == FAILED and "bug: ZeroDivisionError" in outcome.error and "1 // 0" in outcome.traceback


def test_workers_that_never_start_a_row_are_an_error(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "compile_row", dying_unstarted)
    with pytest.raises(ExecutionError, match="must live long enough to start a row"):
        sweep(TEXT, tmp_path, cluster)


def test_a_row_may_take_so_long(tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "compile_row", sleeping)
    outcome = outcome_of(sweep(TEXT, tmp_path, cluster, Limits(seconds=0.3))[0])
    assert outcome.status == STOPPED and "may take 0.3 seconds" in outcome.error


def test_workers_that_do_not_start_are_replaced(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to a limit: they may never start."""
    monkeypatch.setattr("edgewright.explore.runner._REPLENISH", 0.0)
    monkeypatch.setattr(tasks, "compile_row", sleeping)
    calls: list[int] = []
    failing = replace(cluster, replenish=lambda: calls.append(1) or 7)  # type: ignore[func-returns-value]
    with pytest.raises(ExecutionError, match="must live long enough to start a row; got workers that do not start"):
        sweep(TEXT, tmp_path, failing)
    assert len(calls) == 3


def test_other_versions_on_a_worker_are_told(tmp_path: Path) -> None:
    row = Row("m", "xnnpack", "int8", "p", "d", versions={"torch": "1.0"})
    failure = tasks._guarded(tasks.Work(row), "compile", lambda: None)
    assert isinstance(failure, tasks.Failure) and "must be 1.0, as where the sweep was started" in failure.error


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(MissingError, match=r"need the package distributed\n  pip install 'edgewright\[explore\]'"):
        connect().__enter__()


def test_a_scheduler_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgewright.explore.cluster._TIMEOUT", 0.2)
    with pytest.raises(UsageError, match="--scheduler: cannot be reached"):
        connect("tcp://127.0.0.1:1").__enter__()
