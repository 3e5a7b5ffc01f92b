"""Object files from the command line: ``compile --emit object`` and ``export --object``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgewright.bare_metal.object_export import export_object
from tests.bare_metal.programs import U55
from tests.cli.cli import Cli


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli = Cli(capsys)
    done = cli("export", U55, "--object", tmp_path, "--cpu", "cortex-m55", "--name", "net")
    assert done.code == 0, done.err
    assert (tmp_path / "net.o").read_bytes()[:4] == b"\x7fELF" and "int net_run(" in (tmp_path / "net.h").read_text()
    for options in (("--object", tmp_path), ("--c", tmp_path, "--cpu", "cortex-m4"), ()):
        assert cli("export", U55, *options).code == 2


_MODULE = """
import torch
def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval(), (torch.randn(1, 3, 8, 8),)
def data():
    return [make()[1]]
"""


def test_compile_emits_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    (tmp_path / "object_net.py").write_text(_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    cli = Cli(capsys)
    command = ("compile", "object_net:make", "--quantize", "int8", "--calibrate", "object_net:data", "--no-check",
               "--emit", "object")  # fmt: skip
    done = cli(*command, "--target", "cortex-m55")
    assert done.code == 0, done.err
    assert "cortex-m55" in done.out
    assert "xnnpack is the graph that the object file was made of, measured on this machine" in done.out
    assert "int model_run(const model_inputs *" in (tmp_path / "model.h").read_text()
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["model.h", "model.o", "object_net.py"]
    # export of the program is the same code
    done = cli(*command, "--target", "cortex-m4", "--target", "cortex-m33", "-o", "net.pte")
    assert done.code == 0, done.err
    for cpu in ("cortex-m4", "cortex-m33"):
        export_object(tmp_path / "net.pte", tmp_path / "again", cpu, name="net")
        assert (tmp_path / "again" / "net.o").read_bytes() == (tmp_path / cpu / "net.o").read_bytes()
    done = cli(*command, "--target", "ethos-u55-128", "--cpu", "cortex-m55", "-o", "net.o", "--io", "int8")
    assert done.code == 0, done.err
    assert "net_npu_invoke" in (tmp_path / "net.h").read_text()


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (("--target", "cortex-m55", "-o", "m.pte"), "--target: is a processor that object files"),
        (("--target", "ethos-u55-128", "--emit", "object"), "--emit object: needs a processor"),
        (("--target", "cortex-m5", "--emit", "object"), "got cortex-m5\n  Did you mean cortex-m55"),
        (("--target", "qcc999", "--emit", "object"), "target: must be one that a backend declares; got qcc999"),
        (("--target", "cortex-m4", "--target", "xnnpack", "--emit", "object"), "must not name processors and other"),
        (("--target", "cortex-m4", "--cpu", "cortex-m7", "--emit", "object"), "--cpu: is for an NPU's --target"),
        (("--target", "sm8550", "--cpu", "cortex-m7", "--emit", "object"), "--emit object: is for processors"),
        (("--target", "cortex-m4", "--emit", "object", "-o", "out"), "-o: must end in .o"),
        (("--backend", "xnnpack", "--emit", "object"), "--emit object: goes with --target"),
        (("--target", "xnnpack", "-o", "m.pte", "--flash", "1M"), "--flash: goes with --emit object"),
        (("--target", "xnnpack"), "-o: must name the output file"),
    ],
)
def test_compile_rejects(options: tuple[str, ...], rule: str, capsys: Any) -> None:
    done = Cli(capsys)("compile", "missing:make", *options)
    assert done.code == 2
    assert rule in done.err
