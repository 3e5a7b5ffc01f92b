"""``docs/cli.md``: every example in it runs, and shows what the command prints."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from edgewright import cli as cli_package
from edgewright.cli import build_parser, exit_codes, main, runner
from tests.cli.cli import GOLDEN, recorded
from tests.llm.tiny import tiny_json
from tests.llm.tiny_model import tiny_model_bytes
from tests.support.golden import foreign
from tests.support.language_models import RecordedModel, gguf_of

TEXT = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)
SCRIPTS = {
    name: re.findall(rf"`{name}`:\n\n```python\n(.*?)```", TEXT, re.DOTALL)[0] for name in ("net.py", "export.py")
}
FILES = {
    "linear.pte": "linear_fp32_portable.pte",
    "mlp.pte": "mlp_ptd_portable.pte",
    "weights.ptd": "mlp_portable_weights.ptd",
    "linear.bpte": "linear_relu.bpte",
    "npu.pte": "ethos_u/ethos_u55_128.pte",
    "delegate.pte": "conv_relu_int8_pc_xnnpack.pte",
}


def session(block: str) -> list[tuple[str, list[str]]]:
    """The commands of a block, each with the lines shown below it."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def call(command: str, monkeypatch: pytest.MonkeyPatch) -> int:
    words = shlex.split(command)
    while "=" in words[0]:
        monkeypatch.setenv(*words.pop(0).split("=", 1))
    monkeypatch.setattr(sys, "argv", words)
    return (main if words[0] == "edgewright" else runner.main)(words[1:])


def plain(line: str) -> str:
    """A line without what differs from machine to machine: numbers and the spaces around them."""
    line = re.sub(r"-?\d+(,\d{3})*(\.\d+)?(e-?\d+)?", "0", line)
    line = re.sub(r"0 [KMG]?i?B\b", "0 B", line)
    line = re.sub(r"0 ([mµn]?s)\b", "0 s", line)
    return re.sub(r"\s+", " ", re.sub("─+", "─", line)).strip()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, golden in FILES.items():
        shutil.copy(GOLDEN / golden, tmp_path / name)
    (tmp_path / "delegated.pte").write_bytes(foreign())
    (tmp_path / "smol.gguf").write_bytes(gguf_of(RecordedModel("smollm2")))
    (tmp_path / "lm.pte").write_bytes(tiny_model_bytes())
    (tmp_path / "tokenizer.json").write_bytes(tiny_json())
    x = recorded("linear_fp32_portable")[0][0]
    np.savez(tmp_path / "x.npz", in0=x)
    x.tofile(tmp_path / "x.raw")
    (tmp_path / "list.txt").write_text("x.raw\nx.raw\n")
    for name, text in SCRIPTS.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "net", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("EDGEWRIGHT_LOG", raising=False)
    main(["run", "linear.pte", "--quiet", "--repeat", "20", "--etdump_path", "profile.etdp"])
    return tmp_path


@pytest.mark.sample(24)
@pytest.mark.parametrize("block", BLOCKS, ids=[b.splitlines()[0][2:] for b in BLOCKS])
def test_example(block: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    code, asked = 0, False
    for command, shown in session(block):
        if command == "echo $?":
            assert shown == [str(code)]
            asked = True
            continue
        capfd.readouterr()
        code = call(command, monkeypatch)
        captured = capfd.readouterr()
        printed = [plain(line) for line in (captured.err + captured.out).splitlines()]
        for line in shown:
            assert line == "..." or plain(line) in printed
    assert code == 0 or asked


def test_every_command_has_an_example() -> None:
    commands = [command.split() for block in BLOCKS for command, _ in session(block)]
    assert {words[1] for words in commands if words[0] == "edgewright"} == set(cli_package.COMMANDS)


@pytest.mark.parametrize("command", cli_package.COMMANDS)
def test_every_option_is_documented(command: str) -> None:
    options = re.findall(r"--[a-z][a-z_-]+", build_parser(command).format_help())
    subparser = next(a for a in build_parser(command)._actions if a.dest == "command").choices
    assert subparser is not None
    options += re.findall(r"--[a-z][a-z_-]+", subparser[command].format_help())  # type: ignore[call-overload]
    spelled = {option.replace("-", "_") for option in options} - {"__help", "__version"}
    assert {o for o in spelled if o not in TEXT.replace("-", "_")} == set()


def test_the_table_has_every_command() -> None:
    rows = [f"| [`{name}`](#{name}) | {summary} |" for name, summary in cli_package.COMMANDS.items()]
    table = TEXT[TEXT.index("| [") : TEXT.index("\n\nAll commands take")]
    assert re.sub(r"`(\.[a-z]+)`", r"\1", table).splitlines() == rows


@pytest.mark.parametrize("command", cli_package.COMMANDS)
def test_the_examples_of_its_help_are_understood(command: str) -> None:
    parser = argparse.ArgumentParser()
    import_module(f"edgewright.cli.{command}").add_arguments(parser)
    calls = re.findall(r"^ .*?\bedgewright ([a-z].*?)(?= *(?:[|>#&)]|$))", parser.epilog or "", re.MULTILINE)
    assert calls
    for words in map(shlex.split, calls):
        assert build_parser(words[0]).parse_args(words).command == words[0]


def test_exit_codes_are_those_of_the_errors() -> None:
    assert exit_codes.markdown() in TEXT
