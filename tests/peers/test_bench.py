"""``bench --peer``: other runtimes, measured beside ours in processes of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from edgewright import peers, to_edge
from edgewright.backends.nxp.tflite_file import write_tflite
from tests.backends.nxp.litert import graph, value
from tests.cli.cli import GOLDEN, Cli

LINEAR, CONV = GOLDEN / "linear_fp32_portable.pte", GOLDEN / "conv_relu_fp32_xnnpack.pte"


@pytest.mark.slow
def test_bench_beside_executorch(cli: Cli) -> None:
    result = cli("bench", CONV, "--seconds", "0.05", "--peers")
    assert result.code == 0
    assert "ExecuTorch" in result.out
    assert "Edgewright is " in result.out


def test_bench_without_peers_says_so(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers.sys, "executable", "/usr/bin/false")
    result = cli("bench", LINEAR, "--seconds", "0.01", "--peers")
    assert result.code == 0
    assert "pip install executorch" in result.err


def test_bench_beside_litert(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of another runtime's, whose images are of bytes, and have their channels last."""
    monkeypatch.chdir(tmp_path)
    x, y = (value(name, (1, 4, 5, 3), 1 / 64) for name in "xy")
    Path("net.tflite").write_bytes(write_tflite(graph("RELU", [x], y)))
    to_edge(torch.export.export(torch.nn.ReLU(), (torch.ones(1, 3, 4, 5),))).to_executorch().save("net.pte")
    result = cli("bench", "net.pte", "--seconds", "0.02", "--peer", "net.tflite", "--json")
    ours, theirs = json.loads(result.out)
    assert (ours["runtime"], theirs["runtime"], theirs["runs"] >= 3) == ("Edgewright", "LiteRT", True), result.err
    assert theirs["version"] and theirs["file"] == "net.tflite" and theirs["sqnr"] == 200


def test_bench_says_what_a_peer_cannot_do(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(b"no model")
    result = cli("bench", LINEAR, "--seconds", "0.01", "--peer", tmp_path / "net.tflite")
    assert result.code == 0 and "LiteRT on" in result.err and "failed" in result.err
    assert cli("bench", LINEAR, "--peer", tmp_path / "net.weights").code == 2
    assert cli("bench", LINEAR, "--peer", tmp_path / "none.onnx").code == 2
