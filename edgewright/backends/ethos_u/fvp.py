"""Runs a program on Arm's Fixed Virtual Platforms: Corstone-300 for Ethos-U55 and U65, Corstone-320 for U85.

The platform runs ExecuTorch's ``arm_executor_runner``. Depending on how the runner was built, the program is part of
that binary, is loaded to memory, or is read from the host's files (semihosting).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgewright.errors import FileAccessError, MissingError, UsageError, VendorError

_CYCLES = re.compile(r"ethosu_pmu_cycle_cntr\s*:\s*(\d{1,20})")
_PROBLEM = re.compile(
    r"^(?:[EF][: ]|\[critical\]|Hard fault|Info: Simulation is stopping\. Reason: CPU time has been exceeded)"
)
_GRACE = 60  # seconds of host time beyond the simulated limit
_MAX_COMMAND_LINE = 256  # platforms truncate longer semihosting command lines


@dataclass(frozen=True)
class Board:
    """A platform and its parameter names. ``headless_parameters``: disable its windows and terminals."""

    executable: str
    name: str
    npu: str
    cpu: str
    headless_parameters: tuple[str, ...]


def _mps3(executable: str) -> Board:
    headless = ("mps3_board.visualisation.disable-visualisation=1", "mps3_board.telnetterminal0.start_telnet=0",
             "mps3_board.uart0.out_file=-", "mps3_board.uart0.shutdown_on_eot=1")  # fmt: skip
    return Board(executable, "Corstone-300", "ethosu", "cpu0", headless)


BOARDS = {
    "u55": _mps3("FVP_Corstone_SSE-300_Ethos-U55"),
    "u65": _mps3("FVP_Corstone_SSE-300_Ethos-U65"),
    "u85": Board(
        "FVP_Corstone_SSE-320",
        "Corstone-320",
        "mps4_board.subsystem.ethosu",
        "mps4_board.subsystem.cpu0",
        ("mps4_board.visualisation.disable-visualisation=1", "vis_hdlcd.disable_visualisation=1",
         "mps4_board.telnetterminal0.start_telnet=0", "mps4_board.uart0.out_file=-",
         "mps4_board.uart0.shutdown_on_eot=1"),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Platform:
    """Command line of a platform for a target. ``folder``: the semihosting folder; None without semihosting."""

    target: str
    elf: Path
    executable: str
    timeout: int = 600
    address: int | None = None
    program: Path | None = None
    folder: Path | None = None
    arguments: Sequence[str] = field(default=())
    trace: str | None = None

    @property
    def board(self) -> Board:
        return BOARDS[self.target.split("-")[1]]

    def command(self) -> list[str]:
        """The platform's command line."""
        board = self.board
        parameters = [f"{board.npu}.num_macs={self.target.rsplit('-', 1)[1]}", *board.headless_parameters]
        if self.trace is not None:
            parameters.append(f"{board.npu}.extra_args=--pmu-trace {self.trace}")
        if self.folder is not None:
            parameters += self._semihosting()
        data = [] if self.address is None else ["--data", f"{self.program}@{self.address:#010x}"]
        settings = [word for parameter in parameters for word in ("-C", parameter)]
        return [self.executable, *settings, "-a", str(self.elf), *data, "--timelimit", str(self.timeout)]

    def _semihosting(self) -> list[str]:
        command_line = " ".join(self.arguments)
        if len(command_line) > _MAX_COMMAND_LINE:
            raise UsageError(
                "semihosting", f"takes a command line of {_MAX_COMMAND_LINE} characters", value=len(command_line)
            )
        cpu = self.board.cpu
        return [
            f"{cpu}.semihosting-enable=1",
            f"{cpu}.semihosting-stack_base=0",
            f"{cpu}.semihosting-heap_limit=0",
            f"{cpu}.semihosting-cwd={self.folder}",
            f"{cpu}.semihosting-cmd_line={command_line}",
        ]


def find_executable(target: str, path: str | None) -> str:
    """The platform for a target: the given path, or the one on PATH."""
    board = BOARDS[target.split("-")[1]]
    if path is not None:
        if not os.access(path, os.X_OK) or os.path.isdir(path):
            raise FileAccessError(path, "must be an executable file", remedy=f"Give the path of {board.executable}.")
        return os.path.abspath(path)
    executable = shutil.which(board.executable)
    if executable is None:
        remedy = (
            f"Install Arm's {board.name} FVP (free, for Linux: developer.arm.com, or examples/arm/setup.sh of"
            f" ExecuTorch), put {board.executable} on PATH, or name it with --fvp. Without it, `edgewright run` runs"
            " the file on this machine."
        )
        raise MissingError(board.executable, f"is needed to run {target} and is not on PATH", remedy=remedy)
    return executable


@dataclass
class FvpOutput:
    """Output of a platform and the error lines in it. ``cycles``: the NPU's cycle counter, if printed."""

    lines: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    cycles: int | None = None

    def add(self, line: str) -> None:
        self.lines.append(line)
        if _PROBLEM.search(line):
            self.problems.append(line)
        match = _CYCLES.search(line)
        if match:
            self.cycles = int(match.group(1))


def run(platform: Platform, on_line: Callable[[str], None]) -> FvpOutput:
    """Run the platform to completion and call ``on_line`` with each line; raise if it or the program failed."""
    report = FvpOutput()
    try:
        process = subprocess.Popen(
            platform.command(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
    except OSError as error:
        raise FileAccessError(platform.executable, f"cannot be started: {error.strerror}") from error
    with process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                report.add(line.rstrip("\r\n"))
                on_line(report.lines[-1])
            code = process.wait(_GRACE)
        except subprocess.TimeoutExpired as error:
            raise VendorError(platform.board.executable, "closed its output and did not end") from error
        finally:
            process.kill()
    if report.problems:
        raise VendorError(platform.board.executable, "the program failed on it", value="; ".join(report.problems[:3]))
    if code:
        last = next((line for line in reversed(report.lines) if line.strip()), "nothing was printed")
        raise VendorError(platform.board.executable, f"ended with code {code}", value=last)
    return report
