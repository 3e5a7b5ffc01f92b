"""``edgewright device fvp`` with a stand-in for Arm's platform: it writes down its arguments and prints a log."""

from __future__ import annotations

import json
import os
import shlex
import stat
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.cli import GOLDEN, Cli

LOG = """telnetterminal0: Listening for serial connection on port 5000
I [executorch:arm_executor_runner.cpp:900 main()] PTE Model data loaded. Size: 5312 bytes.
I [executorch:arm_perf_monitor.cpp:168] ethosu_pmu_cycle_cntr : 4321
I [executorch:arm_executor_runner.cpp:999 main()] Program complete, exiting.
"""
STAND_IN = """#!{python}
import json, os, sys
here = os.path.dirname(os.path.abspath(__file__))
json.dump(sys.argv[1:], open(os.path.join(here, "arguments.json"), "w"))
settings = dict(a.split("=", 1) for a in sys.argv if "=" in a and not a.startswith("--"))
folder = next((v for k, v in settings.items() if k.endswith("semihosting-cwd")), None)
if folder:
    import shutil
    shutil.copytree(folder, os.path.join(here, "seen"))
    open(os.path.join(folder, "out-0.bin"), "wb").write(open(os.path.join(here, "answer.bin"), "rb").read())
print(open(os.path.join(here, "log.txt")).read(), end="")
sys.exit({code})
"""
MODEL = GOLDEN / "ethos_u" / "ethos_u55_128.pte"


class StandIn:
    """A folder with a platform and a runner."""

    def __init__(self, folder: Path, name: str = "FVP_Corstone_SSE-300_Ethos-U55") -> None:
        self.folder = folder
        self.path = folder / name
        self.elf = folder / "arm_executor_runner"
        self.elf.write_bytes(b"\x7fELF")
        self.make(LOG, 0)

    def make(self, log: str, code: int) -> None:
        self.path.write_text(STAND_IN.format(python=sys.executable, code=code))
        self.path.chmod(self.path.stat().st_mode | stat.S_IXUSR)
        (self.folder / "log.txt").write_text(log)

    @property
    def arguments(self) -> list[str]:
        found: list[str] = json.loads((self.folder / "arguments.json").read_text())
        return found


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return made


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


def test_corstone_300(stand_in: StandIn, cli: Cli) -> None:
    done = cli("device", "fvp", MODEL, "--target", "ethos-u55-128", "--elf", stand_in.elf)
    assert done.code == 0, done.err
    assert stand_in.arguments == [
        "-C", "ethosu.num_macs=128", "-C", "mps3_board.visualisation.disable-visualisation=1",
        "-C", "mps3_board.telnetterminal0.start_telnet=0", "-C", "mps3_board.uart0.out_file=-",
        "-C", "mps3_board.uart0.shutdown_on_eot=1", "-a", str(stand_in.elf), "--timelimit", "600",
    ]  # fmt: skip
    assert "Program complete" in done.out and "ended without errors; the NPU counted 4,321 cycles" in done.out


@pytest.mark.parametrize(
    ("model", "executable", "macs"),
    [
        ("ethos_u65_256", "FVP_Corstone_SSE-300_Ethos-U65", "ethosu.num_macs=256"),
        ("ethos_u85_256", "FVP_Corstone_SSE-320", "mps4_board.subsystem.ethosu.num_macs=256"),
    ],
)
def test_the_program_says_which_platform(model: str, executable: str, macs: str, tmp_path: Path, cli: Cli) -> None:
    made = StandIn(tmp_path, executable)
    done = cli("device", "fvp", GOLDEN / "ethos_u" / f"{model}.pte", "--elf", made.elf, "--fvp", made.path)
    assert done.code == 0, done.err
    assert made.arguments[1] == macs
    assert ("vis_hdlcd.disable_visualisation=1" in made.arguments) == ("320" in executable)


def test_the_program_in_memory(stand_in: StandIn, cli: Cli) -> None:
    options = ("--address", "0x70000000", "--timeout", "30", "--trace", "pmu.log")
    assert cli("device", "fvp", MODEL, "--elf", stand_in.elf, *options).code == 0
    assert stand_in.arguments[-4:] == ["--data", f"{MODEL}@0x70000000", "--timelimit", "30"]
    assert "ethosu.extra_args=--pmu-trace pmu.log" in stand_in.arguments


def test_a_run_is_data(stand_in: StandIn, cli: Cli) -> None:
    done = cli("device", "fvp", MODEL, "--elf", stand_in.elf, "--json")
    assert done.code == 0, done.err
    facts = {"platform": str(stand_in.path), "target": "ethos-u55-128", "cycles": 4321, "written": None}
    assert json.loads(done.out) == {**facts, "log": LOG.splitlines()}


def test_files_of_this_machine(stand_in: StandIn, cli: Cli, tmp_path: Path) -> None:
    """Inputs go out as they lie in the program's memory, and outputs come back as everyone sees them."""
    x = np.random.default_rng(0).random((1, 4, 16, 16), np.float32)
    np.savez(tmp_path / "x.npz", in0=x)
    answer = np.arange(256, dtype=np.float32)
    answer.tofile(tmp_path / "answer.bin")
    files = ("--inputs", tmp_path / "x.npz", "--output", tmp_path / "y.npz")
    done = cli("device", "fvp", MODEL, "--elf", stand_in.elf, "--quiet", *files)
    assert (done.code, done.out) == (0, ""), done.err
    seen = tmp_path / "seen"
    assert (seen / "m.pte").read_bytes() == MODEL.read_bytes()
    sent = np.fromfile(seen / "i0.bin", np.float32).reshape(1, 16, 16, 4)
    assert (sent == x.transpose(0, 2, 3, 1)).all()
    assert "cpu0.semihosting-cmd_line=executor_runner -m m.pte -o out -i i0.bin" in stand_in.arguments
    with np.load(tmp_path / "y.npz") as found:
        assert (found["out0"] == answer.reshape(1, 4, 4, 16).transpose(0, 3, 1, 2)).all()
    answer[:5].tofile(tmp_path / "answer.bin")
    (tmp_path / "seen").rename(tmp_path / "seen_before")
    done = cli("device", "fvp", MODEL, "--elf", stand_in.elf, *files)
    assert done.code == 13 and "must have the bytes of [1, 16, 4, 4] float32; got 20" in done.err


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("E [executorch:method.cpp:100] Missing operator", 0),
        ("F [executorch:result.h:10] assert", 0),
        ("Hard fault. irqn=3", 0),
        ("Info: Simulation is stopping. Reason: CPU time has been exceeded.", 0),
        ("I [x] fine", 3),
    ],
)
def test_failures_on_the_platform_are_failures_here(line: str, code: int, stand_in: StandIn, cli: Cli) -> None:
    stand_in.make(f"{LOG}{line}\n", code)
    done = cli("device", "fvp", MODEL, "--elf", stand_in.elf)
    assert done.code == 13
    assert line[:20] in done.err and "FVP_Corstone_SSE-300_Ethos-U55" in done.err


def test_what_is_missing_is_named(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = cli("device", "fvp", MODEL)
    assert done.code == 6
    assert "FVP_Corstone_SSE-300_Ethos-U55: is needed to run ethos-u55-128" in done.err
    assert "Corstone-300 FVP" in done.err and "--fvp" in done.err
    made = StandIn(tmp_path)
    done = cli("device", "fvp", MODEL)
    assert done.code == 6 and f"build_executor_runner.sh --pte={MODEL} --target=ethos-u55-128" in done.err
    done = cli("device", "fvp", MODEL, "--fvp", tmp_path / "nothing", "--elf", made.elf)
    assert done.code == 3 and "must be an executable file" in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--target", "ethos-u85-256"], "must be compiled for ethos-u85-256; got ethos-u55-128"),
        (["--target", "ethos-u55"], "must be one of ethos-u55-32"),
        (["--address", "0x0", "--semihosting"], "cannot go with --semihosting"),
        (["--timeout", "0"], "must be at least a second"),
    ],
)
def test_wrong_calls_are_refused(arguments: list[Any], words: str, stand_in: StandIn, cli: Cli) -> None:
    done = cli("device", "fvp", MODEL, "--elf", stand_in.elf, *arguments)
    assert done.code == 2 and words in done.err


def test_programs_without_a_delegate_need_a_target(cli: Cli) -> None:
    done = cli("device", "fvp", GOLDEN / "linear_fp32_portable.pte")
    assert done.code == 2 and "has no Ethos-U delegate" in done.err


def test_a_dry_run_prints_the_command(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    done = cli("device", "fvp", MODEL, "--dry-run", "--address", "0x70000000")
    words = shlex.split(done.out)
    assert done.code == 0 and words[0] == "FVP_Corstone_SSE-300_Ethos-U55"
    assert words[-3] == f"{MODEL}@0x70000000"
    again = cli("device", "fvp", MODEL, "--dry-run", "--address", "0x70000000", "--json")
    assert json.loads(again.out) == {"command": words}
