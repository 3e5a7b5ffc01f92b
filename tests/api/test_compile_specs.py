"""Compile specs of backends as targets, and their options on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import edgewright as ew
from edgewright.backends.ethos_u import ArmCompileSpecBuilder, EthosUCompileSpec
from edgewright.backends.nxp.target import generate_neutron_compile_spec
from edgewright.backends.qualcomm import generate_htp_compiler_spec, generate_qnn_executorch_compiler_spec
from edgewright.backends.samsung import gen_samsung_backend_compile_spec
from edgewright.backends.targets import find_targets
from edgewright.cli import main
from edgewright.errors import UsageError
from tests.api.models import calls, net
from tests.cli.cli import Cli

INT8 = ("--quantize", "int8", "--calibrate", "tests.api.models:stream")
SPECS: dict[str, Callable[[], Any]] = {
    "ethos-u55-64": lambda: EthosUCompileSpec("ethos-u55-64", memory_mode="Sram_Only"),
    "ethos-u85-256": lambda: ArmCompileSpecBuilder().ethosu_compile_spec("ethos-u85-256").build(),
    "sm8650": lambda: generate_qnn_executorch_compiler_spec("SM8650", generate_htp_compiler_spec(True), vtcm_mb=2),
    "e9965": lambda: gen_samsung_backend_compile_spec("E9965"),
    "imxrt700": lambda: generate_neutron_compile_spec("imxrt700", operators_not_to_delegate=["relu"]),
}


@pytest.mark.parametrize("name", SPECS)
def test_a_compile_spec_is_a_target(name: str) -> None:
    spec = SPECS[name]()
    (target,) = find_targets(spec)
    assert (target.name, target.spec is spec) == (name, True)
    assert [t.name for t in find_targets([spec, "xnnpack"])] == [name, "xnnpack"]


def test_its_options_act() -> None:
    spec = EthosUCompileSpec("ethos-u55-128", memory_mode="Sram_Only")
    result = ew.compile(net(), calls(1)[0], spec, quantize="int8", calibration=calls(4))
    assert "Sram_Only" in result.summary
    flags = result.program.executorch_program.execution_plan[0].delegates[0].compile_specs
    assert b"--memory-mode=Sram_Only" in next(bytes(s.value) for s in flags if s.key == "compile_flags")


@pytest.mark.parametrize("name", ["e9965", "imxrt700"])
def test_without_the_vendors_compiler_it_is_simulated(name: str) -> None:
    spec = SPECS[name]()
    result = ew.compile(net(), calls(1)[0], spec, quantize="int8", calibration=calls(4))
    assert result.report.simulated
    assert result.report.target == name
    if name == "imxrt700":  # the option of the spec is still there
        left = {v.operator for v in result.report.methods["forward"].rejected}
        assert "relu" in left


def test_a_spec_for_simulation_says_so() -> None:
    spec = gen_samsung_backend_compile_spec("E9955", simulate_only=True)
    result = ew.compile(
        net(), calls(1)[0], [spec], quantize="int8", calibration=calls(4)
    )  # a list, as partitioners take
    assert result.report.simulated == "requested"


def test_one_device_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="must name a device once; got ethos-u55-64 twice"):
        find_targets(["ethos-u55-64", EthosUCompileSpec("ethos-u55-64")])


def test_memory_modes_on_the_command_line(cli: Cli, tmp_path: Path) -> None:
    sizes = {}
    for mode in ("Shared_Sram", "Sram_Only"):
        report = tmp_path / f"{mode}.json"
        result = cli("compile", "tests.api.models:net", "--target", "ethos-u55-128", *INT8, "--memory-mode", mode,
                     "-o", tmp_path / "m.pte", "--report", report)  # fmt: skip
        assert result.code == 0, result.err
        facts = json.loads(report.read_text())["targets"]["ethos-u55-128"]
        estimate = facts["methods"]["forward"]["estimates"][0]
        sizes[mode] = estimate["memory"]
        assert estimate["memory_mode"] == mode
    assert "off_chip_flash" in sizes["Shared_Sram"] and "off_chip_flash" not in sizes["Sram_Only"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--target", "xnnpack", *INT8, "--memory-mode", "Sram_Only"), "is for Ethos-U targets"),
        (("--backend", "xnnpack", "--system-config", "Ethos_U65_Embedded"), "is for Ethos-U targets"),
        (("--target", "ethos-u55-128", *INT8, "--memory-mode", "Sram_Onli"), "Did you mean Sram_Only"),
        (("--backend", "xnnpack", "--integer-io"), "needs a --target"),
        (("--target", "xnnpack", "--report", "r.html"), "must end in .json, not 'r.html'"),
    ],
)
def test_options_that_do_not_fit(cli: Cli, tmp_path: Path, options: tuple[str, ...], told: str) -> None:
    result = cli("compile", "tests.api.models:net", *options, "-o", tmp_path / "m.pte")
    assert result.code == 2
    assert told in result.err


@pytest.mark.parametrize("way", ["target", "backend"])
def test_the_npus_memory_counts(cli: Cli, tmp_path: Path, way: str) -> None:
    """Planned memory alone is within the limit; with the NPU's scratch it is not."""
    model = torch.export.export(net(), (calls(1)[0],))
    path = tmp_path / "m.pte"
    if way == "target":
        options: tuple[object, ...] = ("tests.api.models:net", "--target", "ethos-u55-128", *INT8)
    else:
        quantized = ew.compile(model, target="ethos-u55-128", quantize="int8", calibration=calls(4)).exported
        torch.export.save(quantized, tmp_path / "q.pt2")
        options = (tmp_path / "q.pt2", "--backend", "ethos_u:ethos-u55-128")
    result = ew.compile(model, target="ethos-u55-128", quantize="int8", calibration=calls(4))
    planned = result.report.planned_bytes
    scratch = result.report.estimates[0]["scratch"]
    result.save(tmp_path / "saved.pte")
    assert json.loads(cli("size", tmp_path / "saved.pte", "--json").out)["npu_bytes"] == scratch
    refused = cli("compile", *options, "--max-memory", planned + scratch - 1, "-o", path)
    assert refused.code == 5
    assert "planned and" in refused.err and "of the NPU's" in refused.err
    assert not path.exists()
    assert main(["compile", *map(str, options), "--max-memory", str(planned + scratch), "-o", str(path), "-q"]) == 0
