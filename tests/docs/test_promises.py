"""``docs/promises.md``: whoever is named there exists."""

from __future__ import annotations

import re
from pathlib import Path

from edgewright.cli import COMMANDS, build_parser

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")


def test_all_rows_are_there() -> None:
    assert re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE) == [str(n) for n in range(1, 26)]


def test_every_row_names_somebody() -> None:
    for row in re.findall(r"^\| \d+ \|.*$", TEXT, re.MULTILINE):
        assert "`edgewright" in row or "::" in row or ".md)" in row or "ater |" in row, row


def test_tests_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)
    assert len(named) > 20
    for file, name in named:
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file}::{name}"


def test_files_exist() -> None:
    for file in re.findall(r"`((?:benchmarks|tests)/[\w/.]+)`", TEXT):
        assert (ROOT / file).exists(), file


def test_commands_and_options_exist() -> None:
    for command, options in re.findall(r"`edgewright ([a-z]+)((?: --[\w-]+)*)", TEXT):
        assert command in COMMANDS
        subparsers = next(a for a in build_parser(command)._actions if a.dest == "command").choices
        assert subparsers is not None
        known = subparsers[command].format_help()  # type: ignore[call-overload]
        assert all(option in known for option in options.split()), (command, options)
