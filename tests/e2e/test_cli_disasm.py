"""``edgewright disasm``: finds the delegates of a file and prints their commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgewright.pte import read_program, write_program
from tests.e2e.cli import GOLDEN, Cli


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
    done = cli("disasm", GOLDEN / "linear_fp32_xnnpack.pte")
    assert done.code == 2 and "has no Ethos-U delegate" in done.err
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
