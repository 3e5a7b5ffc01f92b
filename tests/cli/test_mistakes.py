"""What people do wrong on their first day, and what they are told: the thing, the rule, and what to do next."""

from __future__ import annotations

import argparse
import errno
import logging
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgewright import files
from edgewright.backends.targets import find_target
from edgewright.cli import COMMANDS, build_parser, exit_codes
from edgewright.cli.completion import _subparser
from edgewright.cli.image_arguments import add_image_arguments
from edgewright.cli.npu_layers import show_npu_layers
from edgewright.cli.parser import wrap_line
from edgewright.errors import UsageError
from tests.cli.cli import GOLDEN, Cli
from tests.cli.terminal import run_on_terminal

LINEAR = GOLDEN / "linear_fp32_portable.pte"


def test_help_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert [line for line in build_parser().format_help().splitlines() if len(line) > 80] == []
    for command in COMMANDS:
        parser = _subparser(build_parser(command), command)
        shown = parser.format_help()
        assert [line for line in shown.splitlines() if len(line) > 80] == [], command
        assert set(str(parser.epilog).split()) <= set(shown.split()), command  # nothing is cut off


def test_examples_stay_commands_when_they_are_broken() -> None:
    line = "  edgewright compile net:Net --target xnnpack --quantize int8 --calibrate calib.npz -o net.pte"
    parts = list(wrap_line(line, 40))
    assert len(parts) > 2
    assert max(map(len, parts)) <= 40
    assert "".join(part.removesuffix("\\") for part in parts).split() == line.split()


def test_reader_that_goes_away_ends_tables_as_it_ends_json() -> None:
    """``edgewright inspect m.pte | head -1``: tables are printed by rich, which has an ending of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "edgewright", "inspect", str(LINEAR)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == exit_codes.BROKEN_PIPE


def test_files_that_were_cut_short_are_told_what_to_do(cli: Cli, tmp_path: Path) -> None:
    whole = LINEAR.read_bytes()
    cut = tmp_path / "cut.pte"
    for length in (0, 20, len(whole) - 30):
        cut.write_bytes(whole[:length])
        result = cli("run", cut)
        assert result.code == 4
        assert "truncated" in result.err.splitlines()[-1]


def test_remedy_of_an_error_is_said_once(cli: Cli, tmp_path: Path) -> None:
    result = cli("run", tmp_path / "none.pte")
    assert result.code == 3
    assert result.err.count("Check the path") == 1


def test_batch_that_is_too_large_says_how_many_fit(cli: Cli, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", in0=np.ones((500, 4), np.float32))
    result = cli("run", LINEAR, "--inputs", tmp_path / "x.npz")
    assert result.code == 7
    assert "got float32[500, 4]" in result.err
    assert "at most 2 at a time" in result.err
    np.savez(tmp_path / "x.npz", in0=np.ones((2, 8), np.float32))
    assert "at a time" not in cli("run", LINEAR, "--inputs", tmp_path / "x.npz").err


def test_folder_that_is_not_there_comes_with_the_command_that_makes_it(cli: Cli, tmp_path: Path) -> None:
    missing = tmp_path / "not here"
    result = cli("run", LINEAR, "--output", missing / "y.npz")
    assert result.code == 3
    assert f"mkdir -p '{missing}'" in result.err


def test_full_disk_says_so_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "m.pte"
    target.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(files.FileAccessError, match=r"No space left on device\n  Free disk space"):
        files.write_file(target, [b"new"])
    assert [path.name for path in tmp_path.iterdir()] == ["m.pte"]
    assert target.read_bytes() == b"old"


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["run", "m.pte", "cat.jpg"], "--inputs cat.jpg"),
        (["compile", "net:Net", "xnnpack"], "'xnnpack' needs an option: --calibrate, --quantize, --target and others."),
        (["compile", "net:Net", "--target", "xnnpack", "--report", "r.html"], "--html r.html writes a page"),
        (["run", "m.pte", ""], "An argument is empty"),
    ],
)
def test_an_argument_without_its_option(cli: Cli, arguments: list[str], remedy: str) -> None:
    result = cli(*arguments)
    assert result.code == 2
    assert remedy in " ".join(result.err.split())


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("snapdragon 8 gen 3", "Did you mean sm8650?"),
        ("gen 3 hexagon", "Did you mean sm8650?"),
        ("exynos 2500", "Did you mean e9955?"),
        ("snapdragon", r"`edgewright targets snapdragon` lists the \d+ that match\."),
        ("toaster", r"\A`edgewright targets` lists them all\."),
    ],
)
def test_a_device_by_the_name_on_its_box(name: str, remedy: str) -> None:
    with pytest.raises(UsageError) as raised:
        find_target(name)
    assert re.search(remedy, raised.value.remedy)


def test_lines_of_the_log_are_above_the_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not behind it, where the next drawing of the bar leaves a part of it."""

    def log_while_measuring(self: object, *_: object, **__: object) -> None:
        logging.getLogger("edgewright.test").warning("said meanwhile")

    monkeypatch.setattr("edgewright.runtime.program.Method.reset", log_while_measuring)
    code, sent = run_on_terminal(monkeypatch, "profile", str(LINEAR), "--repeat", "2")
    assert code == 0
    assert sent.count(b"W edgewright.test: said meanwhile") == 2
    assert b"\x1b[2KW edgewright.test: said meanwhile\r\n" in sent  # on a line that was cleared


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ("net.py", "Write net:NAME, with the name of the model in it."),
        ("net", "Write net:NAME, with the name of the model in it."),
        ("models/net.py:Net", "Write models.net:Net."),
        ("my-net.py", "Write a function that returns (module, inputs), and name it: net:make for make in net.py."),
        ("m.pte", "It is compiled already: `edgewright run`, `profile`, `report` and `inspect` read it."),
        ("resnet18.pth", "Weights alone are no model. Write a function that returns (module, inputs)"),
        ("models/m.onnx", "Only PyTorch models are compiled, not what they were converted to. Write a function"),
        ("m.gguf", "Language models have a command of their own: edgewright llm compile m.gguf -o m.pte."),
        ("google/mobilenet_v2", "for make in net.py, with from_pretrained for a model of Hugging Face."),
        ("", "Write a function that returns (module, inputs)"),
    ],
)
def test_what_is_no_name_of_a_model_is_told_how_to_name_it(given: str, remedy: str) -> None:
    from edgewright.frontend.model_spec import load_spec

    with pytest.raises(UsageError, match=r"must be package\.module:factory, or a \.pt2 file") as raised:
        load_spec(given)
    assert remedy in raised.value.remedy


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["compile", "net:Net", "--inputs", "x.npz"], "Example inputs come with the model: SPEC names a function"),
        (["compile", "net:Net", "--soc", "sm8550"], "Did you mean --target?"),
        (["compile", "net:Net", "--precision", "int8"], "Did you mean --quantize?"),
        (["run", "m.pte", "--input", "x.npz"], "Did you mean --inputs?"),
        (["export", "m.pte", "-o", "firmware"], "Did you mean --c?"),
        (["report", "m.pte"], "Add -o report.html."),
        (["compile", "net:Net", "--target", "sm8540"], "Did you mean sm8550 or"),  # before the missing -o
        (["compare", "net:Net", "--target", "xnnpack"], "Name a preset of the target: --quantize int8."),
        (["profile", "net:Net"], "Compile that first: edgewright compile net:Net -o m.pte."),
    ],
)
def test_what_was_meant(cli: Cli, arguments: list[str], remedy: str) -> None:
    result = cli(*arguments)
    assert result.code in (2, 3)
    assert remedy in result.err


def test_file_in_this_folder_and_a_class_that_needs_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgewright.frontend.model_spec import load_spec

    (tmp_path / "needy_net.py").write_text("class Net:\n    def __init__(self, width, depth=1): pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    with pytest.raises(UsageError, match=r"Write needy_net:Net\."):
        load_spec("needy_net.py:Net")
    with pytest.raises(UsageError, match=r"without arguments; got width\n.*returns \(module, inputs\)"):
        load_spec("needy_net:Net")


def test_numbers_of_channels_with_commas() -> None:
    parser = argparse.ArgumentParser()
    add_image_arguments(parser)
    args = parser.parse_args(["--mean", "1,2.5,3", "--std", "4,", "5", "6"])
    assert (args.mean, args.std) == ([1, 2.5, 3], [4, 5, 6])


def test_numbers_of_channels_that_are_none(cli: Cli) -> None:
    result = cli("run", "m.pte", "--inputs", "a.png", "--mean", "imagenet", "--std", "1")
    assert result.code == 2
    assert "argument --mean: must be one number, or one per channel; got imagenet" in " ".join(result.err.split())


@pytest.mark.parametrize(("width", "tables"), [(80, 2), (160, 1)])
def test_layers_of_an_npu_fit_the_terminal(
    width: int, tables: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No word is broken, no number cut: what does not fit beside each other is a table of its own."""
    monkeypatch.setenv("COLUMNS", str(width))
    traffic = {"constants": 12288, "internal": 12288, "scratch": 1188}
    row = {"layer": "features.11.conv.1.0", "operator": "8 pool, 18 elementwise, 6 dma", "cycles": 14275,
           "seconds": 28.6e-6, "macs": 512000, "traffic": traffic}  # fmt: skip
    show_npu_layers([row])
    shown = capsys.readouterr().out
    assert shown.count("NPU by layer") == tables
    for text in ("features.11.conv.1.0", "elementwise", "14,275", "28.6 µs", "512,000", "12.0 KiB", "1.16 KiB"):
        assert shown.count(text) >= (tables if text.startswith("features") else 1)
    assert max(map(len, shown.splitlines()[:-1])) <= width  # the last is prose, which a pipe gets whole


def test_a_file_that_is_not_there_and_one_with_a_similar_name(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "u8.xnnpack.pte").write_bytes(LINEAR.read_bytes())
    (tmp_path / "model.xnnpack.twin").write_bytes(b"")
    result = cli("run", tmp_path / "model.xnnpack.pte")
    assert result.code == 3
    assert f"Did you mean {tmp_path}/u8.xnnpack.pte? Check the path" in " ".join(result.err.split())
    for other in (tmp_path / "quite_different.pte", tmp_path / "nowhere" / "u8.xnnpack.pte"):
        assert "Did you mean" not in cli("run", other).err
