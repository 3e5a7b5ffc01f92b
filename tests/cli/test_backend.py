"""``edgewright compile --backend``: coverage in the summary, as a condition, and as a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgewright.cli import main
from edgewright.errors import CoverageError

NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)
    def forward(self, x):
        return torch.cumsum(self.fc(x), 1) if self.sums else self.fc(x)
    sums = True
    example_inputs = (torch.ones(2, 4),)

class Volume(torch.nn.Module):
    def forward(self, x):
        return torch.conv3d(x, x[:, :, :1, :1, :1]).relu()
    example_inputs = (torch.ones(1, 1, 2, 2, 2),)

def quantized():
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from edgewright.backends.ethos_u import EthosUCompileSpec, EthosUQuantizer, get_symmetric_quantization_config

    quantizer = EthosUQuantizer(EthosUCompileSpec("ethos-u55-128"))
    quantizer.set_global(get_symmetric_quantization_config())
    inputs = (torch.linspace(-1, 1, 8).reshape(2, 4),)
    prepared = prepare_pt2e(torch.export.export(torch.nn.Linear(4, 3), inputs).module(check_guards=False), quantizer)
    prepared(*inputs)
    return torch.export.export(convert_pt2e(prepared), inputs)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "nets_for_backends.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def compile_net(name: str, *options: str) -> int:
    return main(["compile", f"nets_for_backends:{name}", "-o", "m.pte", *options])


def test_the_summary_has_the_coverage(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compile_net("Net", "--backend", "xnnpack") == 0
    assert "forward: 1 of 2 operators delegated to xnnpack in 1 group" in capsys.readouterr().out
    assert main(["run", "m.pte", "--quiet", "--output", "y.npz"]) == 0


def test_no_backend_no_coverage(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compile_net("Net") == 0
    assert "operators delegated to" not in capsys.readouterr().out


def test_a_report_says_why_not(folder: Path) -> None:
    assert compile_net("Net", "--backend", "xnnpack", "--report", "r.json", "--quiet") == 0
    report = json.loads((folder / "r.json").read_text())["forward"]
    assert report["coverage"]["macs"] == 1.0
    rejections = {o["operator"]: o["rejections"] for o in report["operators"]}
    assert rejections == {"linear": [], "cumsum": ["xnnpack has no row for cumsum"]}


def test_too_little_is_an_error_and_no_program(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--backend", "xnnpack", "--require-delegated", "95%", "--report", "r.json")
    assert compile_net("Volume", *options) == CoverageError.exit_code == 12
    told = capsys.readouterr().err
    assert "at least 95.0% of multiply-accumulates must be delegated to xnnpack; got 0.0%" in told
    assert "'conv3d': weight and bias must be constant; got weight" in told
    assert not (folder / "m.pte").exists()
    assert (folder / "r.json").exists()  # which says what to change


def test_enough_is_enough(folder: Path) -> None:
    assert compile_net("Net", "--backend", "xnnpack", "--require-delegated", "100%", "--quiet") == 0


def test_a_backend_may_be_named_twice(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compile_net("Net", "--backend", "xnnpack", "--backend", "xnnpack") == 0
    assert "1 of 2 operators delegated to xnnpack" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--backend", "abacus"], "--backend: must be one of"),
        (["--require-delegated", "95%"], "--require-delegated: needs a --backend"),
        (["--report", "r.json"], "--report: needs a --backend"),
    ],
)
def test_options_that_make_no_sense(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert compile_net("Net", *options) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("share", ["95", "101%", "-1%", "much%", "nan%"])
def test_shares_are_percentages(folder: Path, capsys: pytest.CaptureFixture[str], share: str) -> None:
    assert compile_net("Net", "--backend", "xnnpack", f"--require-delegated={share}") == 2
    assert "must be a share from 0% to 100%" in capsys.readouterr().err


def test_a_backend_of_several_chips_needs_a_target(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compile_net("quantized", "--backend", "ethos_u:ethos-u65-256", "--require-delegated", "100%") == 0
    assert "Vela's estimate for ethos-u65-256 (Ethos_U65_High_End, Dedicated_Sram_384KB): " in capsys.readouterr().out
    assert main(["run", "m.pte", "--quiet", "--output", "y.npz"]) == 0
    assert compile_net("quantized", "--backend", "ethos_u") == 2
    assert "needs a target" in capsys.readouterr().err
    assert compile_net("quantized", "--backend", "ethos_u:ethos-u66") == 2
    assert "must be one of ethos-u55-32" in capsys.readouterr().err
    assert compile_net("Net", "--backend", "xnnpack:pixel") == 2
    assert "takes no target; got pixel" in capsys.readouterr().err
