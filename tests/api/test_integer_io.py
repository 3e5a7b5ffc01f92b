"""Programs that take and return integers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import edgewright as ew
from tests.api.models import calls, mean_of_first, net
from tests.cli.cli import Cli


@pytest.mark.parametrize("target", ["xnnpack", "ethos-u55-128", "ethos-u85-256", "imxrt700"])
def test_integers_in_and_out(target: str) -> None:
    data = calls(6)
    opened = ew.compile(
        net(), data[0], target, quantize="int8", calibration=data, integer_io=True, metric=mean_of_first
    )
    usual = ew.compile(net(), data[0], target, quantize="int8", calibration=data)
    metadata = opened.method().metadata
    assert [t.dtype for t in (*metadata.inputs, *metadata.outputs)] == ["int8", "int8"]
    # The same numbers as the program that converts: the conversions are outside now, and nothing else changed.
    assert opened.report.sqnr == pytest.approx(usual.report.sqnr, abs=0.2)
    np.testing.assert_allclose(opened.run_real(data[0]), usual.run(data[0]), atol=1e-6)
    assert opened.report.metric == pytest.approx(mean_of_first(usual.run), abs=1e-6)
    given = opened.io.parameters["input0"]
    sign = "-" if given.zero_point >= 0 else "+"
    assert f"input0: int8, x = {given.scale:.9g} * (q {sign} {abs(given.zero_point)})" in opened.summary
    assert opened.report.check.inputs and not opened.report.check.skipped


class TwoKinds(torch.nn.Module):
    """Integers that are indices stay as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(16, 8)
        self.fc = torch.nn.Linear(8, 4)

    def forward(self, tokens: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.fc(self.table(tokens) + x)
        return y


def test_only_floats_are_converted() -> None:
    torch.manual_seed(0)
    data = [(torch.randint(0, 16, (2,)), torch.rand(2, 8)) for _ in range(6)]
    result = ew.compile(TwoKinds(), data[0], "xnnpack", quantize="int8", calibration=data, integer_io=True)
    assert list(result.report.integer_io) == ["input1", "output0"]
    assert (result.report.sqnr or 0) > 25


class FloatEnds(torch.nn.Module):
    """XNNPACK computes a softmax and ``exp`` in floating point; the input has readers of both kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y = self.fc(x)
        return torch.softmax(y, -1), torch.exp(x), y


@pytest.mark.parametrize("target", ["xnnpack", "ethos-u55-128"])
def test_inputs_and_outputs_of_operators_in_floating_point(target: str) -> None:
    torch.manual_seed(0)
    model, data = FloatEnds(), [(torch.randn(2, 8),) for _ in range(8)]
    usual = ew.compile(model, data[0], target, quantize="int8", calibration=data)
    result = ew.compile(model, data[0], target, quantize="int8", calibration=data, integer_io="int8")
    assert {t.dtype for t in (*result.method().metadata.inputs, *result.method().metadata.outputs)} == {"int8"}
    softmax = result.io.parameters["output0"]
    assert softmax.zero_point == -128 and softmax.scale == pytest.approx(1 / 255)  # its range is known
    for found, expected, parameters in zip(result.run_real(*data[0]), usual.run(*data[0]),
                                           list(result.io.parameters.values())[1:], strict=True):  # fmt: skip
        np.testing.assert_allclose(found, expected, atol=3 * parameters.scale)


def test_bundles_of_the_command_line_pass(cli: Cli, tmp_path: Path) -> None:
    done = cli("compile", "tests.api.models:net", "--target", "xnnpack", "--quantize", "int8", "--calibrate",
               "tests.api.models:stream", "--integer-io", "--bundle", "-o", tmp_path / "m.pte")  # fmt: skip
    assert done.code == 0, done.err
    assert "xnnpack: input0 is int8, x = " in done.out
    assert cli("verify", tmp_path / "m.bpte").code == 0
