"""``edgewright budget``: the parts add up to the file and the pools, limits fail, advice has figures of the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import edgewright
from edgewright.bare_metal.budget import FLASH, RUNTIME_CODE, SRAM, Budget, Row, make_budget
from edgewright.bare_metal.describe import describe
from tests.cli.cli import GOLDEN, Cli


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


FILES = [f"ethos_u/{name}" for name in ("ethos_u55_128", "ethos_u65_256", "ethos_u85_256")]


@pytest.mark.parametrize("name", [*FILES, "conv_relu_fp32_portable"])
def test_parts_add_up(name: str) -> None:
    path = GOLDEN / f"{name}.pte"
    about = describe(str(path))
    budget = make_budget(about, str(path))
    assert budget.total(FLASH) == path.stat().st_size + RUNTIME_CODE
    rows = {row.part: row for row in budget.rows}
    assert all(row.bytes > 0 for row in budget.rows)
    assert rows["method allocator"].bytes == about.pools.method[32]
    assert make_budget(about, str(path), code=1000).total(FLASH) == path.stat().st_size + 1000
    dedicated = "u65" in name  # its default memory mode has the scratch in DRAM
    pools = sum(about.pools.planned) + about.pools.method[32] + about.pools.fast_scratch
    if "u85" in name:  # its default memory mode has everything in SRAM
        pools += rows["NPU: commands and constants, in SRAM by the memory mode"].bytes
    assert budget.total(SRAM) == pools + (0 if dedicated else about.pools.temp[32])


U55 = GOLDEN / "ethos_u" / "ethos_u55_128.pte"


def test_limits(cli: Cli) -> None:
    path = U55
    assert cli("budget", path, "--flash", "512K", "--sram", "256K").code == 0
    over = cli("budget", path, "--flash", "50K", "--sram", "3K")
    assert over.code == 5
    assert "flash: the program must fit 50.0 KiB" in over.err and "SRAM: the program must fit 3.00 KiB" in over.err
    assert (
        "The largest part: planned memory 0, 5.00 KiB." in over.err and "pass the size in the linker's map" in over.err
    )
    facts = json.loads(cli("budget", path, "--sram", "3K", "--json").out)
    assert facts["fits"] is False and facts["limits"]["SRAM"] == 3072 and facts["totals"]["SRAM"] > 3072
    assert cli("budget", path, "--sram", "lots").code == 2


def test_parts_of_the_npu_that_do_not_fit_have_a_remedy() -> None:
    rows = [Row("temp allocator, with the NPU's scratch", SRAM, 4096), Row("NPU: weights and biases", FLASH, 9000)]
    remedies = [error.remedy for error in Budget(rows, []).errors({FLASH: 8192, SRAM: 4095})]
    assert "edgewright.compress" in remedies[0] and "--optimise size" in remedies[1]
    named = {row.part for row in make_budget(describe(str(U55)), str(U55)).rows}
    assert {row.part for row in rows} <= named


def test_a_final_softmax_is_advised_against_with_what_it_takes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    linear, x = torch.nn.Linear(32, 12), torch.randn(1, 32)
    sizes = {}
    for name, net in (("with", torch.nn.Sequential(linear, torch.nn.Softmax(-1))), ("without", linear)):
        options = {"quantize": "int8", "calibration": [(x,)], "check": False, "evaluate": 0, "quiet": True}
        path = tmp_path / f"{name}.pte"
        edgewright.compile(net, x, "ethos-u55-128", **options).save(path)
        about = describe(str(path))
        budget, (memory,) = make_budget(about, str(path)), about.pools.delegates
        sizes[name] = sum(memory.parts.values()), memory.final_table_bytes + memory.final_command_bytes
        advised = [text for text in budget.advice if "after the last matrix product" in text]
        assert len(advised) == (name == "with")
        assert name == "without" or "after the last matrix product, 1 takes" in advised[0]  # the module's name
    assert sizes["without"][1] == 0
    saved = sizes["with"][0] - sizes["without"][0]
    assert sizes["with"][1] == pytest.approx(saved, rel=0.05)  # what the advice says is what leaving it out saves
