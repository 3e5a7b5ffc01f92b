"""``edgewright disasm``: finds the delegates of a file and prints their commands."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from edgewright import compile as compile_model
from edgewright.formats import read_program, write_program
from tests.api.models import calls, net
from tests.backends.nxp.litert import interpreter
from tests.cli.cli import GOLDEN, Cli


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


@pytest.mark.parametrize("name", ["ethos_u55_128", "ethos_u65_256", "ethos_u85_256"])
def test_stocks_files(name: str, cli: Cli) -> None:
    path = GOLDEN / "ethos_u" / f"{name}.pte"
    done = cli("disasm", path)
    assert done.code == 0, done.err
    assert f"forward, delegate 0, {name.replace('_', '-')}: 1 input, 1 output" in done.out
    operations = [line.split()[1] for line in done.out.splitlines() if line.startswith("0x")]
    assert [o for o in operations if "DMA" not in o] == ["CONV", "DEPTHWISE", "CONV", "ELEMENTWISE", "POOL", "STOP"]
    full = cli("disasm", path, "--full")
    assert len(full.out) > len(done.out) and "IFM_REGION" in full.out


def test_json(cli: Cli) -> None:
    done = cli("disasm", GOLDEN / "ethos_u" / "ethos_u55_128.pte", "--json", "--delegate", "0")
    (found,) = json.loads(done.out)
    assert (found["target"], found["scratch_bytes"]) == ("ethos-u55-128", 3568)
    assert found["outputs"][0]["shape"] == [1, 1, 1, 4, 4, 16]
    assert "DEPTHWISE" in found["text"]


def test_files_without_such_delegates(cli: Cli) -> None:
    done = cli("disasm", GOLDEN / "linear_fp32_portable.pte")
    assert done.code == 2 and "has no delegates" in done.err
    done = cli("disasm", GOLDEN / "ethos_u" / "ethos_u55_128.pte", "--delegate", "1")
    assert done.code == 2 and "must be from 0 to 0; got 1" in done.err


def test_broken_commands_are_named(tmp_path: Path, cli: Cli) -> None:
    raw = bytearray((GOLDEN / "ethos_u" / "ethos_u55_128.pte").read_bytes())
    at = raw.index(b"COP1")
    raw[at + 36] = 0xFF
    path = tmp_path / "m.pte"
    path.write_bytes(raw)
    assert write_program(read_program(path))  # the program around it is sound
    done = cli("disasm", path)
    assert done.code == 4 and "cmd_data at byte" in done.err


def test_xnnpacks_graph(cli: Cli) -> None:
    done = cli("disasm", GOLDEN / "conv_relu_int8_pc_xnnpack.pte")
    assert done.code == 0, done.err
    assert "forward, delegate 0, xnnpack: 1 input, 1 output, 5 operators" in done.out
    assert "%v4 = conv2d(%v2, %v3[8, 3, 3, 3], %v5[8], padding=[1, 1, 1, 1]" in done.out
    assert "-> int8[1, 8, 8, 8] scale 0.0100189 zero -128" in done.out
    full = cli("disasm", GOLDEN / "conv_relu_int8_pc_xnnpack.pte", "--full")
    assert "data %v3 int8[8, 3, 3, 3] 8 scales along 0" in full.out


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program for each of the NPUs whose blobs are graphs, made for this machine where needed."""
    folder = tmp_path_factory.mktemp("disassembled")
    model, inputs = net(), calls(2)
    for target in ("sm8550", "e9955", "imxrt700"):
        made = compile_model(model, inputs[0], target=target, quantize="int8", calibration=inputs)
        made.save(folder / f"{target}.pte")
    return folder


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("sm8550", ["soc_type = SM8550", "graph 'forward'", "the graph passed to QNN:", "qnn.Conv2d("]),
        ("e9955", ["the graph passed to AI LiteCore:", "enn.CONV2D("]),
        ("imxrt700", ["delegate 0, imxrt700", "1 input, 1 output", "tflite.CONV_2D("]),
    ],
)
def test_the_graphs_of_npus(compiled: Path, target: str, told: list[str], cli: Cli) -> None:
    done = cli("disasm", compiled / f"{target}.pte")
    assert done.code == 0, done.err
    for text in told:
        assert text in done.out
    (facts,) = json.loads(cli("disasm", compiled / f"{target}.pte", "--json").out)
    assert facts["operators"] > 3 and facts["blob_bytes"] > 100


def test_a_twin_that_is_not_there_is_named(compiled: Path, tmp_path: Path, cli: Cli) -> None:
    shutil.copy(compiled / "sm8550.pte", tmp_path)
    done = cli("disasm", tmp_path / "sm8550.pte")
    assert done.code == 0 and "is in the host twin (m.twin), which is missing next to the file" in done.out
    assert "SM8550: 1 input, 1 output" in done.out


def test_neutrons_graph_as_tflite(compiled: Path, tmp_path: Path, cli: Cli) -> None:
    """LiteRT opens it, and finds the layers."""
    done = cli("disasm", compiled / "imxrt700.pte", "--tflite", tmp_path / "net.tflite")
    assert done.code == 0 and "wrote" in done.out, done.err
    ready = interpreter((tmp_path / "net.tflite").read_bytes())
    assert "CONV_2D" in {op["op_name"] for op in ready._get_ops_details()}
    done = cli("disasm", compiled / "e9955.pte", "--tflite", tmp_path / "none.tflite")
    assert done.code == 2 and not (tmp_path / "none.tflite").exists()
