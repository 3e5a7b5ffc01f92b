"""Options of ``compile`` for boards: Vela's, from the command line and from recipes; integer types; C sources."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import edgewright
from edgewright.api.recipe import as_recipe, read_recipe
from edgewright.backends.ethos_u.target import make_spec
from edgewright.errors import InputError, UsageError
from edgewright.formats import read_program
from edgewright.formats.operator_signatures import OPERATORS
from edgewright.lowering.kernel_resolution import kernel_set
from edgewright.units import duration
from tests.cli.cli import Cli

MODULE = """
import torch
def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval(), (torch.randn(1, 3, 8, 8),)
def data():
    return [make()[1]]
"""
QUICK: Any = {"quantize": "int8", "check": False, "evaluate": 0, "quiet": True}


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    (tmp_path / "board_net.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return Cli(capsys)


def flags_of(path: Path) -> list[str]:
    (delegate,) = read_program(path).execution_plan[0].delegates
    specs = {spec.key: bytes(spec.value).decode() for spec in delegate.compile_specs or ()}
    return specs["compile_flags"].split()


COMPILE = ("compile", "board_net:make", "--quantize", "int8", "--calibrate", "board_net:data", "--no-check", "-q")


def test_velas_options_and_c_sources_from_the_command_line(cli: Cli, tmp_path: Path) -> None:
    options = ("--optimise", "size", "--arena-cache-size", "256K", "--memory-mode", "Sram_Only", "--io", "int8")
    done = cli(*COMPILE, "--target", "ethos-u55-128", *options, "--emit", "c", "-o", "net.pte")
    assert done.code == 0, done.err
    flags = flags_of(tmp_path / "net.pte")
    assert {"--optimise=Size", "--arena-cache-size=262144", "--memory-mode=Sram_Only"} <= set(flags)
    assert sorted(p.name for p in (tmp_path / "net").iterdir()) == [
        "manifest.json", "net.c", "net.h", "selected_operators.yaml",
    ]  # fmt: skip
    assert "NET_INPUT_0_SCALE" in (tmp_path / "net" / "net.h").read_text()


def test_c_sources_are_listed_with_the_pools_of_each_target(cli: Cli, tmp_path: Path) -> None:
    command = [option for option in COMPILE if option != "-q"]
    done = cli(*command, "--target", "ethos-u55-128", "--target", "ethos-u55-32", "--emit", "c", "-o", "out")
    assert done.code == 0, done.err
    shown = done.out.replace("\n", "")
    for target in ("ethos-u55-128", "ethos-u55-32"):
        assert f"wrote out/make.{target}/make_{target.replace('-', '_')}.h" in shown
    assert shown.count("memory to provide") == 2 and shown.count("method allocator") == 2


def test_an_arena_limit_that_cannot_be_kept_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 3, 32, 32)
    for limit, warned in (("1K", True), ("64K", False)):
        caplog.clear()
        spec = make_spec("ethos-u55-128", {"arena_cache_size": limit})
        edgewright.compile(torch.nn.Conv2d(3, 4, 3), x, spec, calibration=[(x,)], **QUICK)
        texts = [record.getMessage() for record in caplog.records]
        assert any("cannot keep activations within 1.00 KiB" in text for text in texts) is warned, texts


def test_a_users_ini_from_the_command_line(cli: Cli, tmp_path: Path) -> None:
    from edgewright.backends.ethos_u.target import EthosUCompileSpec
    from edgewright.backends.ethos_u.vela import config_text

    ini = config_text(EthosUCompileSpec("ethos-u55-128")).replace("Ethos_U55_High_End_Embedded", "Board")
    (tmp_path / "board.ini").write_text(ini)
    options = ("--vela-ini", "board.ini", "--system-config", "Board", "--memory-mode", "Shared_Sram")
    done = cli(*COMPILE, "--target", "ethos-u55-128", *options, "-o", "net.pte")
    assert done.code == 0, done.err
    assert {"--config=board.ini", "--system-config=Board"} <= set(flags_of(tmp_path / "net.pte"))


def test_refusals(cli: Cli) -> None:
    for options, sentence in (
        (("--target", "xnnpack", "--optimise", "size"), "--optimise: is for Ethos-U targets"),
        (("--target", "ethos-u55-128", "--arena-cache-size", "lots"), "arena_cache_size: not a size"),
        (("--target", "ethos-u55-128", "--arena-cache-size", "0"), "arena_cache_size: must be more than 0 bytes"),
        (("--target", "ethos-u55-128", "--io", "int16"), "integer_io: input0: must be int16; got int8"),
        (("--target", "ethos-u55-128", "--vela-flags=--optimise=Size", "--optimise", "size"), "must not repeat"),
        (("--target", "ethos-u55-128", "--emit", "tflite"), "--emit: goes with --backend"),
        (("--target", "xnnpack", "--emit", "c"), "--emit c: is for targets on microcontrollers"),
    ):
        done = cli(*COMPILE, *options, "-o", "net.pte")
        assert done.code != 0 and sentence in done.err, done.err


def test_recipes_have_options_of_targets(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(
        'quantize = "int8"\n[targets.ethos-u55-128.options]\nmemory_mode = "Sram_Only"\narena_cache_size = 65536\n'
    )
    recipe = read_recipe(tmp_path / "r.toml")
    (tmp_path / "again.toml").write_text(recipe.to_toml())
    assert read_recipe(tmp_path / "again.toml") == recipe
    torch.manual_seed(0)
    x = torch.randn(1, 3, 8, 8)
    result = edgewright.compile(
        torch.nn.Conv2d(3, 4, 3), x, "ethos-u55-128", recipe=recipe, calibration=[(x,)], **{**QUICK, "quantize": None}
    )
    result.save(tmp_path / "net.pte")
    assert {"--memory-mode=Sram_Only", "--arena-cache-size=65536"} <= set(flags_of(tmp_path / "net.pte"))
    options = {"targets": {"xnnpack": {"options": {"memory_mode": "Sram_Only"}}}}
    with pytest.raises(UsageError, match="options of xnnpack: are for targets that have some"):
        edgewright.compile(torch.nn.Conv2d(3, 4, 3), x, "xnnpack", recipe=options, calibration=[(x,)], **QUICK)
    with pytest.raises(InputError, match="options: must be a table of strings and integers"):
        as_recipe({"targets": {"ethos-u55-128": {"options": {"memory_mode": 1.5}}}}, None)
    with pytest.raises(UsageError, match="memory_mod"):
        make_spec("ethos-u55-128", {"memory_mod": "Sram_Only"})


def test_a_cortex_m_runtime_has_portable_and_quantized_kernels() -> None:
    yaml = pytest.importorskip("yaml")
    executorch = pytest.importorskip("executorch")
    kernels = Path(next(iter(executorch.__path__))) / "kernels"
    listed = set()
    for path in ("portable/functions.yaml", "quantized/quantized.yaml"):
        for entry in yaml.safe_load((kernels / path).read_text()):
            name = entry.get("op") or entry["func"].partition("(")[0]
            listed.add(name if "::" in name else f"aten::{name}")
    ours = kernel_set("cortex-m-1.5").keys
    core = {key for key in ours - listed if key.startswith(("executorch_prim::", "aten::sym_", "aten::_local_scalar"))}
    assert ours - core == listed & set(OPERATORS) - {"et_copy::_d2h_copy.out", "et_copy::_h2d_copy.out"}
    assert kernel_set("cortex-m").name == "cortex-m-1.0" and "aten::linear.out" not in ours


def test_a_program_for_a_cortex_m_has_no_other_kernels(tmp_path: Path) -> None:
    net, x = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Softmax(-1)), torch.randn(1, 8)
    config = edgewright.EdgeCompileConfig(runtime="cortex-m")
    edge = edgewright.to_edge_transform_and_lower(torch.export.export(net.eval(), (x,)), compile_config=config)
    edge.to_executorch().save(tmp_path / "net.pte")
    called = {operator.key for operator in read_program(tmp_path / "net.pte").execution_plan[0].operators or ()}
    assert called and called <= kernel_set("cortex-m").keys and "aten::linear.out" not in called


def test_commands_show_what_an_npu_does_for_each_layer(cli: Cli, tmp_path: Path) -> None:
    """Vela's cycles and time, and the bytes of operands, by the model's own names: the same in three commands."""
    model = ("board_net:make", "--target", "ethos-u55-128", "--quantize", "int8")
    explained = cli("explain", *model, "--json")
    assert explained.code == 0, explained.err
    (facts,) = json.loads(explained.out)
    (row,) = facts["npu_layers"]
    assert row["layer"].startswith("0") and "conv" in row["operator"] and row["macs"] == 36 * 4 * 27
    assert row["cycles"] > 0 and row["seconds"] == pytest.approx(row["cycles"] / 500e6, rel=1e-4)  # its clock: 500 MHz
    # The input, in 8 bits and with its pixels as Vela stores them, is read, and the result is written.
    assert row["traffic"]["scratch"] >= 64 * 3 + 36 * 4 and row["traffic"]["constants"] > 4 * 27
    assert cli(*COMPILE, "--target", "ethos-u55-128", "-o", "net.pte").code == 0
    for command in (("size", "net.pte"), ("profile", "net.pte", "--repeat", "1")):
        assert json.loads(cli(*command, "--json").out)["npu_layers"] == [row]
    shown = cli("size", "net.pte").out
    assert "NPU by layer" in shown and f"{row['cycles']:,}" in shown
    page = cli("report", "net.pte", "-o", "net.html")
    assert page.code == 0, page.err
    text = (tmp_path / "net.html").read_text()
    assert re.search(rf">{row['cycles']:,}<.{{1,200}}>{re.escape(duration(row['seconds']))}<", text)
