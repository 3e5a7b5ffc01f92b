"""``edgewright device run | push | list`` through ``adb``, with a stand-in for its server and the phones behind it.

The client is Android's own if it is on PATH, and otherwise ``tests/support/adb_client.py``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from edgewright.backends.qualcomm import adb
from edgewright.program.edge import to_edge_transform_and_lower
from edgewright.runtime import Runtime
from tests.cli.cli import Cli
from tests.support import adb_client
from tests.support.adb_server import AdbServer, StandIn
from tests.support.golden import foreign

RUNNER = f"""#!/bin/sh
echo "LD_LIBRARY_PATH is $LD_LIBRARY_PATH, ADSP_LIBRARY_PATH is $ADSP_LIBRARY_PATH"
exec {sys.executable} -c 'from edgewright.cli.runner import main; raise SystemExit(main())' "$@"
"""
FOLDER = "data/local/tmp/executorch_qualcomm_tutorial"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small program for SM8550, with its twin."""
    import torch

    from edgewright.backends.qualcomm import QnnPartitioner

    folder = tmp_path_factory.mktemp("model")
    net, inputs = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval(), (torch.ones(2, 8),)
    partitioner = QnnPartitioner.for_target("SM8550")
    manager = to_edge_transform_and_lower(torch.export.export(net, inputs), partitioner=[partitioner])
    manager.to_executorch().save(str(folder / "m.pte"))
    np.savez(folder / "x.npz", np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8))
    return folder / "m.pte"


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """ExecuTorch's build for Android, with a runner that runs here."""
    runner = tmp_path / "build-android" / "examples/qualcomm/executor_runner/qnn_executor_runner"
    backend = tmp_path / "build-android" / "lib/libqnn_executorch_backend.so"
    for path, text in ((runner, RUNNER), (backend, "backend")):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    runner.chmod(0o755)
    return tmp_path / "build-android"


@pytest.fixture
def sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Qualcomm's SDK, as far as its names go."""
    root = tmp_path / "qnn"
    for arch in (68, 69, 73, 75, 79, 81):
        for place in (f"aarch64-android/libQnnHtpV{arch}Stub.so", f"hexagon-v{arch}/unsigned/libQnnHtpV{arch}Skel.so"):
            path = root / "lib" / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(path.name)
    (root / "lib/aarch64-android/libQnnHtp.so").write_bytes(b"\x7fELF v2.51.0.260929181845 \0")
    (root / "lib/aarch64-android/libQnnSystem.so").write_text("system")
    return root


@pytest.fixture
def phones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[StandIn]]:
    """What the server lists; one phone at first."""
    if shutil.which("adb") is None:
        tools = adb_client.on_path(tmp_path / "platform-tools")
        monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    first = StandIn("ABC123", tmp_path / "phone", properties={"ro.soc.model": "SM8550"})
    server = AdbServer([first])
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(server.port))
    yield server.phones
    server.close()


@pytest.fixture
def own_client(phones: list[StandIn], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own client in this process, if it is the one: a push runs adb twenty times."""
    if (tmp_path / "platform-tools").exists():
        monkeypatch.setattr(adb, "subprocess", SimpleNamespace(**vars(subprocess) | {"Popen": adb_client.InProcess}))


@pytest.fixture
def ready(model: Path, build: Path, sdk: Path, phones: list[StandIn], own_client: None) -> list[object]:
    """What a run on the phone is called with."""
    return [model, "-b", build, "--qnn-sdk", sdk]


def test_a_program_runs_on_a_phone_and_its_results_come_back(
    cli: Cli, ready: list[object], model: Path, phones: list[StandIn], tmp_path: Path, monkeypatch
) -> None:
    results = tmp_path / "results"
    shutil.copy(model.with_suffix(".twin"), phones[0].root / "m.twin")
    options = ("--inputs", model.parent / "x.npz", "--output", tmp_path / "y.npz", "--output-folder", results)
    done = cli("device", "run", *ready, *options)
    assert done.code == 0, done.err
    assert "ABC123: 9 files pushed" in done.out and "QNN 2.51, Hexagon V73" in done.out
    assert "ADSP_LIBRARY_PATH is" in done.out and "Model executed successfully" in done.out
    assert (results / "etdump.etdp").stat().st_size > 100
    with np.load(model.parent / "x.npz") as given, np.load(tmp_path / "y.npz") as found:
        wanted = Runtime.get().load_program(str(model)).load_method("forward").execute([given["arr_0"]])
        np.testing.assert_array_equal(found["out0"], wanted[0])
    there = {path.name for path in (phones[0].root / FOLDER).iterdir()}
    assert {"libQnnHtp.so", "libQnnSystem.so", "libQnnHtpV73Stub.so", "libQnnHtpV73Skel.so", "m.pte"} <= there
    assert {"qnn_executor_runner", "libqnn_executorch_backend.so", "input_list.txt", "input_0_0.raw"} <= there
    run = phones[0].commands[-2]
    for words in ("--model_path ./m.pte", "--input_list_path ./input_list.txt", "--output_folder_path ./outputs"):
        assert words in run


def test_what_is_there_is_not_pushed_again(cli: Cli, ready: list[object]) -> None:
    assert "7 files pushed" in cli("device", "push", *ready).out
    assert "0 files pushed" in cli("device", "push", *ready).out


@pytest.mark.parametrize("soc", ["SM8450", "SM8650", "SM8750"])
def test_another_soc_is_refused_unless_asked_for(
    cli: Cli, ready: list[object], phones: list[StandIn], tmp_path: Path, soc: str
) -> None:
    phones[:] = [StandIn("X", tmp_path / soc, properties={"ro.soc.model": soc})]
    done = cli("device", "push", *ready)
    assert done.code == 2
    assert f"was compiled for SM8550 (Hexagon V73), and this phone is; got {soc}" in done.err
    assert cli("device", "push", *ready, "--any-soc").code == 0


def test_older_libraries_are_refused_before_anything_is_pushed(
    cli: Cli, ready: list[object], sdk: Path, phones: list[StandIn]
) -> None:
    (sdk / "lib/aarch64-android/libQnnHtp.so").write_bytes(b"v2.37.0.250724175447")
    done = cli("device", "run", *ready)
    assert "was built with QNN 2.51, and this library is 2.37" in done.err
    assert not (phones[0].root / FOLDER).exists()


def test_the_phones_own_library_is_asked_when_nothing_is_pushed(
    cli: Cli, ready: list[object], model: Path, phones: list[StandIn]
) -> None:
    assert cli("device", "push", *ready).code == 0
    (phones[0].root / FOLDER / "libQnnHtp.so").write_bytes(b"..v2.37.0.250724175447..")
    done = cli("device", "run", model, "--skip_push")
    assert "this library is 2.37" in done.err


def test_phones_that_cannot_be_used_are_named(cli: Cli, ready: list[object], phones: list[StandIn], tmp_path) -> None:
    other = StandIn("DEF456", tmp_path / "other", model="Pixel", properties={"ro.soc.model": "SM8550"})
    phones.append(other)
    done = cli("device", "push", *ready)
    assert "must select one of 2 phones; got ABC123 (Stand_In), DEF456 (Pixel)" in done.err
    assert cli("device", "push", *ready, "--serial", "DEF456").code == 0 and (other.root / FOLDER).exists()
    done = cli("device", "push", *ready, "-s", "GHI789")
    assert "must be a phone that is connected; got GHI789" in done.err and "ABC123, DEF456" in done.err
    phones[:] = phones[:1]
    for state, advice in (("unauthorized", "allow USB debugging"), ("offline", "adb kill-server")):
        phones[0].state = state
        done = cli("device", "push", *ready)
        assert f"phone ABC123: is {state}" in done.err and advice in done.err
    phones.clear()
    done = cli("device", "push", *ready)
    assert "phone: must be connected" in done.err and "adb connect" in done.err
    assert cli("device", "list").code == done.code


def test_phones_are_listed(cli: Cli, phones: list[StandIn], tmp_path: Path) -> None:
    (phones[0].root / "vendor/lib64/libQnnHtp.so").write_bytes(b"\0v2.40.1.251001120000\0")
    phones.append(StandIn("DEF456", tmp_path / "other", state="unauthorized"))
    out = cli("device", "list").out
    assert [w for w in ("ABC123", "SM8550", "V73", "2.40", "DEF456", "unauthorized") if w not in out] == []


def test_phones_are_data(cli: Cli, phones: list[StandIn], tmp_path: Path) -> None:
    (phones[0].root / "vendor/lib64/libQnnHtp.so").write_bytes(b"\0v2.40.1.251001120000\0")
    phones.append(StandIn("DEF456", tmp_path / "other", model="Pixel", state="unauthorized"))
    done = cli("device", "list", "--json")
    nothing = {"soc": None, "hexagon": None, "qnn": None}
    assert json.loads(done.out)["phones"] == [
        {"serial": "ABC123", "state": "device", "model": "Stand_In", "soc": "SM8550", "hexagon": "V73", "qnn": "2.40"},
        {"serial": "DEF456", "state": "unauthorized", "model": "Pixel", **nothing},
    ]
    phones.clear()
    done = cli("device", "list", "--json")
    assert (done.code, done.out) == (6, "") and "phone: must be connected" in done.err


def test_a_run_is_data(cli: Cli, ready: list[object], model: Path, phones: list[StandIn], tmp_path: Path) -> None:
    """Nothing else is on stdout, and what the runner printed is in it."""
    shutil.copy(model.with_suffix(".twin"), phones[0].root / "m.twin")
    facts = json.loads(cli("device", "push", *ready, "--json").out)
    place = {"serial": "ABC123", "folder": f"/{FOLDER}", "hexagon": "V73", "qnn": "2.51"}
    assert facts == {**place, "pushed": 7, "there_already": 0}
    options = ("--inputs", model.parent / "x.npz", "--output", tmp_path / "y.npz", "--output-folder", tmp_path / "out")
    facts = json.loads(cli("device", "run", *ready, *options, "--json").out)
    log = facts.pop("log")
    assert any("Model executed successfully" in line for line in log)
    outputs = {"outputs": [str(tmp_path / "out/outputs/output_0_0.raw")], "written": str(tmp_path / "y.npz")}
    assert facts == {**place, "pushed": 2, "there_already": 7, **outputs}
    assert all(Path(path).is_file() for path in (*facts["outputs"], facts["written"]))


def test_missing_files_are_named(cli: Cli, ready: list[object], model: Path, build: Path, sdk: Path) -> None:
    (sdk / "lib/hexagon-v73/unsigned/libQnnHtpV73Skel.so").unlink()
    done = cli("device", "push", *ready)
    assert "lacks lib/hexagon-v73/unsigned/libQnnHtpV73Skel.so" in done.err and "knows Hexagon V73" in done.err
    done = cli("device", "push", model, "-b", build)
    assert "QNN SDK: is needed" in done.err and "QNN_SDK_ROOT" in done.err
    assert "must hold lib/aarch64-android" in cli("device", "push", model, "-b", build, "--qnn-sdk", build).err


def test_a_missing_runner_is_named(cli: Cli, model: Path, build: Path, sdk: Path, own_client: None) -> None:
    assert "or --runner must name" in cli("device", "push", model, "--qnn-sdk", sdk).err
    runner = build / "examples/qualcomm/executor_runner/qnn_executor_runner"
    assert cli("device", "push", model, "--qnn-sdk", sdk, "--runner", runner).code == 0
    (build / "lib/libqnn_executorch_backend.so").unlink()
    assert "must hold libqnn_executorch_backend.so" in cli("device", "push", model, "--qnn-sdk", sdk, "-b", build).err
    runner.unlink()
    assert "must hold qnn_executor_runner" in cli("device", "push", model, "--qnn-sdk", sdk, "-b", build).err


def test_without_adb_it_says_how_to_get_it(cli: Cli, ready: list[object], monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = cli("device", "list")
    assert "adb: must be on PATH" in done.err and "apt install adb" in done.err


def test_a_runner_that_fails_is_an_error_with_its_words(cli: Cli, ready: list[object], build: Path) -> None:
    runner = build / "examples/qualcomm/executor_runner/qnn_executor_runner"
    runner.write_text("#!/bin/sh\necho no context for you\nexit 7\n")
    done = cli("device", "run", *ready)
    assert "qnn_executor_runner on ABC123: ended with 7; got no context for you" in done.err


def test_only_programs_for_phones_are_taken(cli: Cli, ready: list[object], model: Path, tmp_path: Path) -> None:
    path = tmp_path / "vulkan.pte"
    path.write_bytes(foreign())
    done = cli("device", "push", path, *ready[1:])
    assert "must have delegates that phones run; got VulkanBackend" in done.err
    assert "needs a program" in cli("device", "run").err


def test_a_dry_run_needs_no_phone(cli: Cli, model: Path, build: Path, sdk: Path, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = cli("device", "run", model, "-b", build, "--qnn-sdk", sdk, "--dry-run")
    assert done.code == 0 and f"push {sdk}/lib/aarch64-android/libQnnHtpV73Stub.so" in done.out
    assert "--output_folder_path ./outputs --etdump_path ./etdump.etdp" in done.out
    assert (
        "--iteration 20" in cli("device", "run", model, "-b", build, "--qnn-sdk", sdk, "--dry-run", "--repeat", 20).out
    )
    facts = json.loads(cli("device", "run", model, "-b", build, "--qnn-sdk", sdk, "--dry-run", "--json").out)
    assert [f"push {p['from']} {p['to']}" for p in facts["push"]] + [facts["command"]] == done.out.splitlines()


@pytest.mark.parametrize("arch", [68, 69, 73, 75, 79, 81])
def test_stub_and_skel_go_by_the_socs_architecture(sdk: Path, arch: int) -> None:
    from edgewright.backends.qualcomm.libraries import htp_files

    names = [path.name for path in htp_files(sdk, arch)]
    assert names == ["libQnnHtp.so", "libQnnSystem.so", f"libQnnHtpV{arch}Stub.so", f"libQnnHtpV{arch}Skel.so"]
