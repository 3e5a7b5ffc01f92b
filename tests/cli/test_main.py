"""What all commands share: version, help, exit codes, logging, failures of every kind."""

from __future__ import annotations

import io
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgewright import cli as cli_package
from edgewright import errors
from edgewright._version import VERSION
from edgewright.cli import exit_codes
from edgewright.console import clean, console
from tests.cli.cli import GOLDEN, Cli

LINEAR = GOLDEN / "linear_fp32_portable.pte"
HEAVY = ["numpy", "rich", "flatbuffers", "llvmlite", "torch", "ml_dtypes"]


def shell(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_version(cli: Cli) -> None:
    result = cli("--version")
    assert (result.code, result.out) == (0, f"edgewright {VERSION}\n")


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_first_answers_import_nothing_heavy(argument: str) -> None:
    seen = f"print([m for m in {HEAVY} if m in sys.modules])"
    assert shell(f"import sys; from edgewright.cli import main; main(['{argument}']); {seen}").stdout.endswith("[]\n")


def test_no_command_shows_help(cli: Cli) -> None:
    result = cli()
    assert result.code == 0
    assert "inspect" in result.out


@pytest.mark.parametrize("command", cli_package.COMMANDS)
def test_every_command_has_help(cli: Cli, command: str) -> None:
    result = cli(command, "--help")
    assert result.code == 0
    assert result.out.startswith(f"usage: edgewright {command}")


@pytest.mark.parametrize(
    "arguments", [["fly"], ["run"], ["inspect", LINEAR, "--jso"], ["run", LINEAR, "--repeat", "x"]]
)
def test_wrong_usage_is_2(cli: Cli, arguments: list[str]) -> None:
    result = cli(*arguments)
    assert result.code == 2
    assert "usage: edgewright" in result.err


def test_codes_cover_every_error() -> None:
    classes = [v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, errors.EdgewrightError)]
    assert {c.exit_code for c in classes} <= set(exit_codes.exit_codes())
    assert exit_codes.exit_codes()[4] == "the file violates its format (names field and offset)"
    assert all(not meaning.endswith("Error") for meaning in exit_codes.exit_codes().values())


def test_help_lists_the_codes(cli: Cli) -> None:
    assert exit_codes.epilog() in cli("--help").out


@pytest.mark.parametrize("level", ["loud", "0"])
def test_bad_log_level(cli: Cli, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    monkeypatch.setenv("EDGEWRIGHT_LOG", level)
    result = cli("inspect", LINEAR)
    assert result.code == 2
    assert "EDGEWRIGHT_LOG: must be one of debug, info" in result.err


def test_traceback_only_when_debugging(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Traceback" not in cli("inspect", "absent.pte").err
    monkeypatch.setenv("EDGEWRIGHT_LOG", "debug")
    result = cli("inspect", "absent.pte")
    assert result.code == 3
    assert "Traceback" in result.err


def test_verbose_says_what_is_done(cli: Cli) -> None:
    assert "read and verified" in cli("run", LINEAR, "--verbose").err
    assert "read and verified" in cli("--verbose", "run", LINEAR).err
    assert "read and verified" not in cli("run", LINEAR).err


class _ClosedPipe(io.StringIO):
    """What stderr is after its reader has ended."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def test_a_log_that_nobody_reads_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("edgewright")
    monkeypatch.setattr(logger, "handlers", [])
    cli_package.configure_logging("warning")
    monkeypatch.setattr(sys, "stderr", _ClosedPipe())
    logger.warning("a remark")


def test_bug_is_70(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgewright.cli.inspect.gather", lambda *a, **k: 1 / 0)
    result = cli("inspect", LINEAR)
    assert result.code == exit_codes.BUG
    assert "This is a bug in Edgewright" in result.err
    assert "Traceback" in result.err


def test_interrupt_is_130(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("edgewright.cli.inspect.gather", interrupt)
    result = cli("inspect", LINEAR)
    assert (result.code, result.err) == (130, "interrupted\n")


def test_broken_pipe_is_quiet() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "edgewright", "inspect", str(LINEAR), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == exit_codes.BROKEN_PIPE


def test_text_from_files_cannot_steer_the_terminal(cli: Cli) -> None:
    assert clean("a\x1b]0;owned\x07\u202eb") == "a\\x1b]0;owned\\x07\\u202eb"
    result = cli("inspect", "no\x1b[2Jsuch.pte")
    assert "\x1b" not in result.err
    assert "no\\x1b[2Jsuch.pte" in result.err


def test_names_the_terminal_cannot_show(tmp_path: Path) -> None:
    shutil.copy(LINEAR, tmp_path / "modèle.pte")
    for name, code in (("modèle.pte", 0), ("modèlx.pte", 3)):
        process = subprocess.run(
            [sys.executable, "-m", "edgewright", "inspect", str(tmp_path / name)],
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
            capture_output=True,
            check=False,
        )
        assert process.returncode == code
        assert rb"mod\xe8l" in process.stdout + process.stderr


def test_help_groups_the_commands(cli: Cli) -> None:
    text = cli("--help").out
    places = [text.index(f"\n{title}:\n") for title in cli_package.GROUPS]
    assert places == sorted(places)
    for commands in cli_package.GROUPS.values():
        for name in commands:
            assert f"\n  {name} " in text


def test_a_wrong_option_is_one_line_and_its_remedy(cli: Cli) -> None:
    lines = cli("bench", LINEAR, "--secs", "3").err.splitlines()
    assert lines == [
        "usage: edgewright bench: unrecognized arguments: --secs 3",
        "  Did you mean --seconds?",
        "  `edgewright bench --help` lists the options.",
    ]


def test_lines_wrap_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a terminal; a pipe gets the line whole."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    text = "delegated: share of multiply-accumulates; RAM: planned memory; SRAM: the NPU's fast memory"
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    shown = {}
    for kind in (Terminal, io.StringIO):
        stream = kind()
        console(stream).print(text, soft_wrap=True)
        shown[kind] = stream.getvalue().splitlines()
    assert shown[io.StringIO] == [text]
    assert len(shown[Terminal]) > 1
    assert [word for line in shown[Terminal] for word in line.split()] == text.split()


def test_importing_torchao_logs_nothing() -> None:
    code = (
        "import edgewright.quantize.pt2e\n"
        "from edgewright.backends.nxp import NeutronQuantizer\n"
        "from edgewright.backends.samsung import EnnQuantizer"
    )
    done = shell(code)
    assert (done.returncode, done.stderr) == (0, "")
