"""What goes wrong with phones: each has an error that says what to do, and leaves nothing half done behind."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest

from edgewright.errors import ExecutionError, FileAccessError, MissingError, VendorError
from tests.cli.cli import Cli
from tests.cli.test_device_phone import FOLDER, build, model, own_client, phones, ready, sdk  # noqa: F401
from tests.support.adb_server import StandIn

# What pytest puts together by the names of these fixtures is imported, not defined again.
# ruff: noqa: F811


def test_a_named_phone_is_the_only_one_listed(cli: Cli, phones: list[StandIn], tmp_path: Path) -> None:
    phones.append(StandIn("DEF456", tmp_path / "other", state="unauthorized"))
    found = json.loads(cli("device", "list", "--serial", "DEF456", "--json").out)["phones"]
    assert [(phone["serial"], phone["state"]) for phone in found] == [("DEF456", "unauthorized")]
    out = cli("device", "list", "-s", "ABC123").out
    assert "ABC123" in out and "DEF456" not in out


def test_a_named_phone_that_is_not_there_is_an_error(cli: Cli, phones: list[StandIn]) -> None:
    done = cli("device", "list", "--serial", "GHI789")
    assert (done.code, done.out) == (2, "")
    assert "--serial: must be a phone that is connected; got GHI789" in done.err and "Those seen: ABC123." in done.err
    phones.clear()
    done = cli("device", "list", "--serial", "GHI789")
    assert "got GHI789" in done.err and "USB debugging on" in done.err


def test_a_phone_that_is_unplugged_while_listed_does_not_hide_the_others(
    cli: Cli, phones: list[StandIn], tmp_path: Path
) -> None:
    phones.insert(0, StandIn("AAA000", tmp_path / "mute", mute=True))
    done = cli("device", "list", "--json")
    states = {phone["serial"]: (phone["state"], phone["soc"]) for phone in json.loads(done.out)["phones"]}
    assert states == {"AAA000": ("does not answer", None), "ABC123": ("device", "SM8550")}
    assert "phone AAA000: must finish its command; got nothing" in done.err and "Plug the phone in again" in done.err


def test_lists_take_no_program(cli: Cli, phones: list[StandIn]) -> None:
    assert "device list: takes no program; got m.pte" in cli("device", "list", "m.pte").err


def test_all_phones_that_cannot_be_used_are_named(
    cli: Cli, ready: list[object], phones: list[StandIn], tmp_path: Path
) -> None:
    phones[0].state = "unauthorized"
    phones.append(StandIn("DEF456", tmp_path / "other", state="bootloader"))
    done = cli("device", "push", *ready)
    assert "phone ABC123: is unauthorized; DEF456 is bootloader" in done.err
    assert "allow USB debugging" in done.err and "fastboot reboot" in done.err


def test_a_full_phone_is_known_before_anything_is_pushed(cli: Cli, ready: list[object], phones: list[StandIn]) -> None:
    command = phones[0].root / "bin" / "df"
    command.write_text(
        "#!/bin/sh\necho Filesystem 1K-blocks Used Available Use% Mounted\necho /dev/x 9 8 1 99% /data\n"
    )
    command.chmod(0o755)
    done = cli("device", "push", *ready)
    assert "phone ABC123: has 1.00 KiB free for /data/local/tmp" in done.err and "Free space on the phone" in done.err
    assert list((phones[0].root / FOLDER).iterdir()) == []


def test_a_phone_that_gets_full_says_so_and_keeps_no_part_of_a_file(
    cli: Cli, ready: list[object], model: Path, phones: list[StandIn]
) -> None:
    phones[0].room = 1000  # for every file but the program
    done = cli("device", "push", *ready)
    assert "adb push" in done.err and "No space left on device" in done.err and "Free space on the phone" in done.err
    there = {path.name for path in (phones[0].root / FOLDER).iterdir()}
    assert "libQnnHtp.so" in there and not any(name.startswith("m.pte") for name in there)
    phones[0].room = None
    assert "1 file pushed" in cli("device", "push", *ready).out  # the rest


def test_a_push_that_is_cut_off_goes_on_where_it_was(
    cli: Cli, ready: list[object], model: Path, phones: list[StandIn]
) -> None:
    phones[0].cut = 1000  # in the program, which is the only large file
    done = cli("device", "push", *ready)
    assert (
        done.code == VendorError.exit_code
        and "adb push m.pte: must succeed" in done.err
        and "Plug the phone in again" in done.err
    )
    folder = phones[0].root / FOLDER
    assert (folder / "m.pte.part").stat().st_size == 1000 and not (folder / "m.pte").exists()
    phones[0].state, phones[0].cut = "device", None
    assert "1 file pushed" in cli("device", "push", *ready).out
    assert (folder / "m.pte").read_bytes() == model.read_bytes() and not (folder / "m.pte.part").exists()


def test_a_pull_that_is_cut_off_leaves_the_last_results_alone(
    cli: Cli, ready: list[object], model: Path, phones: list[StandIn], tmp_path: Path
) -> None:
    shutil.copy(model.with_suffix(".twin"), phones[0].root / "m.twin")
    given = ("--inputs", model.parent / "x.npz", "--output-folder", tmp_path / "out")
    old = tmp_path / "out" / "outputs" / "output_7_0.raw"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"of an earlier run")
    assert cli("device", "push", *ready, "--inputs", model.parent / "x.npz").code == 0
    phones[0].cut = 16
    done = cli("device", "run", *ready, *given)
    assert done.code == VendorError.exit_code and "adb pull outputs: must succeed" in done.err
    assert [path.name for path in (tmp_path / "out").rglob("*")] == ["outputs", "output_7_0.raw"]
    phones[0].state, phones[0].cut = "device", None
    assert cli("device", "run", *ready, *given).code == 0
    assert [path.name for path in (tmp_path / "out/outputs").iterdir()] == ["output_0_0.raw"]


def test_a_folder_that_results_cannot_go_to_is_named(
    cli: Cli, ready: list[object], model: Path, phones: list[StandIn], tmp_path: Path
) -> None:
    shutil.copy(model.with_suffix(".twin"), phones[0].root / "m.twin")
    (tmp_path / "file").write_text("")
    done = cli("device", "run", *ready, "--inputs", model.parent / "x.npz", "--output-folder", tmp_path / "file")
    assert (
        done.code == FileAccessError.exit_code
        and f"{tmp_path}/file: cannot be written" in done.err
        and "--output-folder" in done.err
    )


@pytest.mark.parametrize(("said", "rule"), [("", "must write 1 outputs"), ("123", "must have the 32 bytes of [2, 4]")])
def test_results_that_are_not_the_programs_are_refused(
    cli: Cli, ready: list[object], build: Path, tmp_path: Path, said: str, rule: str
) -> None:
    runner = build / "examples/qualcomm/executor_runner/qnn_executor_runner"
    runner.write_text(f"#!/bin/sh\n[ -z '{said}' ] || printf {said} > outputs/output_0_0.raw\n")
    done = cli("device", "run", *ready, "--output", tmp_path / "y.npz", "--output-folder", tmp_path / "out")
    assert done.code == VendorError.exit_code and rule in done.err and not (tmp_path / "y.npz").exists()


def test_what_the_phone_lacks_is_named_if_nothing_is_to_be_pushed(
    cli: Cli, model: Path, ready: list[object], phones: list[StandIn]
) -> None:
    done = cli("device", "run", model, "--skip_push")
    assert (
        done.code == MissingError.exit_code
        and "phone ABC123: lacks libQnnHtp.so, libQnnSystem.so, libQnnHtpV73Stub.so" in done.err
    )
    assert cli("device", "push", *ready).code == 0
    (phones[0].root / FOLDER / "qnn_executor_runner").unlink()
    done = cli("device", "run", model, "--skip_push")
    assert "lacks qnn_executor_runner in /data/local/tmp" in done.err and "without --skip_push" in done.err


def test_a_build_for_this_machine_is_told_from_one_for_phones(
    cli: Cli, ready: list[object], build: Path, phones: list[StandIn]
) -> None:
    runner = build / "examples/qualcomm/executor_runner/qnn_executor_runner"
    runner.write_bytes(b"\x7fELF\2\1\1".ljust(18, b"\0") + struct.pack("<H", 62))
    done = cli("device", "push", *ready)
    assert f"{runner}: must be for phones (AArch64); got x86-64" in done.err and "-b build-android" in done.err
    runner.write_bytes(b"\x7fELF\2\1\1".ljust(18, b"\0") + struct.pack("<H", 183))
    assert cli("device", "push", *ready).code == 0


def test_a_phone_of_another_maker_is_refused(
    cli: Cli, ready: list[object], phones: list[StandIn], tmp_path: Path
) -> None:
    phones[:] = [StandIn("P", tmp_path / "p", properties={"ro.soc.model": "GS201", "ro.soc.manufacturer": "Google"})]
    done = cli("device", "push", *ready)
    assert "compiled for Qualcomm's SoCs, and this phone's is by; got Google" in done.err
    assert cli("device", "push", *ready, "--any-soc").code == 0
    phones[:] = [StandIn("Q", tmp_path / "q", properties={"ro.soc.model": "SM8550", "ro.soc.manufacturer": "QTI"})]
    assert cli("device", "push", *ready).code == 0


def test_folders_on_the_phone_must_be_whole_paths_that_can_be_written(
    cli: Cli, ready: list[object], phones: list[StandIn]
) -> None:
    assert (
        "--device-folder: must start with /; got here" in cli("device", "push", *ready, "--device-folder", "here").err
    )
    (phones[0].root / "data/local/tmp/file").write_text("")
    done = cli("device", "push", *ready, "--device-folder", "/data/local/tmp/file")
    assert "phone ABC123: must make its folder" in done.err and "adb's shell may write to" in done.err


@pytest.mark.parametrize(
    ("script", "words"),
    [('echo \'CANNOT LINK EXECUTABLE "./r": library "libc++_shared.so" not found\'; exit 1', "lacks a library"),
     ("exit 126", "cannot be executed there"), ("exit 137", "memory was low"), ("exit 139", "It crashed"),
     ("exit 9", "Its log is above")],
)  # fmt: skip
def test_how_a_runner_ended_says_what_to_do(
    cli: Cli, ready: list[object], build: Path, script: str, words: str
) -> None:
    (build / "examples/qualcomm/executor_runner/qnn_executor_runner").write_text(f"#!/bin/sh\n{script}\n")
    done = cli("device", "run", *ready)
    assert (
        done.code == ExecutionError.exit_code
        and "qnn_executor_runner on ABC123: ended with" in done.err
        and words in done.err
    )


def test_a_last_line_without_an_end_is_still_read(cli: Cli, ready: list[object], build: Path) -> None:
    runner = build / "examples/qualcomm/executor_runner/qnn_executor_runner"
    runner.write_text("#!/bin/sh\nprintf 'no end'\nexit 3\n")
    assert "ended with 3; got no end" in cli("device", "run", *ready).err


def test_an_adb_server_that_does_not_answer_is_not_a_missing_phone(cli: Cli, phones: list[StandIn]) -> None:
    done = cli("device", "list", "--host", "127.0.0.2")
    assert done.code == VendorError.exit_code and "adb: must succeed" in done.err
    assert "adb -a nodaemon server" in done.err
