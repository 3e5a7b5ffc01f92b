# ruff: noqa: F811
"""``edgewright device run`` for XNNPACK and Exynos: ExecuTorch's runners, with a stand-in for the phone."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.export import ExportedProgram

import edgewright as ew
from edgewright.backends.samsung import EnnPartitioner, gen_samsung_backend_compile_spec
from edgewright.frontend.delegate import LoweredBackendModule
from edgewright.ir.graph import Graph
from edgewright.program.edge import to_edge_transform_and_lower
from edgewright.runtime import Runtime
from tests.cli.cli import GOLDEN, Cli
from tests.cli.test_device_phone import own_client, phones  # noqa: F401  (fixtures)
from tests.support.adb_server import StandIn

PYTHON = f"{sys.executable} -c 'from edgewright.cli.runner import main; raise SystemExit(main())'"
XNNPACK = f'#!/bin/sh\nexec {PYTHON} "$@"\n'
# The flags of enn_executor_runner, given to ours: inputs with spaces between them, a folder for output_<index>.bin.
ENN = f"""#!/bin/sh
[ "$1 $3 $5" = "--model --input --output_path" ] || exit 64
{PYTHON} --model_path "$2" --inputs "$(echo $4 | tr ' ' ',')" --output_file "$6/output" || exit $?
for f in "$6"/output-*.bin; do mv "$f" "$(echo $f | sed 's/output-/output_/')"; done
"""


class Exynos(EnnPartitioner):
    """Lowers as for a device; AI LiteCore's output is made up, as it does not run here."""

    def lower(self, group: Graph) -> LoweredBackendModule:
        lowered = EnnPartitioner.for_spec(self.compile_specs, simulate_only=True).lower(group)
        specs = {spec.key: bytes(spec.value) for spec in self.compile_specs}
        return LoweredBackendModule(self.backend.id, b"NNC" + bytes(61), specs, {}, bytes(lowered.processed_bytes))

    def delegate(self, exported: ExportedProgram, method: str = "forward") -> ExportedProgram:
        return super(EnnPartitioner, self).delegate(exported, method)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(8, 4)

        def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.fc(a) + self.fc(b), a - b

    inputs = (torch.ones(2, 8), torch.ones(2, 8))
    ew.compile(Net(), inputs, "xnnpack").save(folder / "xnnpack.pte")
    spec = gen_samsung_backend_compile_spec("E9955")
    exported = torch.export.export(Net(), inputs)
    to_edge_transform_and_lower(exported, partitioner=[Exynos([spec])]).to_executorch().save(folder / "e9955.pte")
    ew.compile(Net(), inputs, "e9955").save(folder / "simulated.pte")
    random = np.random.default_rng(0)
    np.savez(folder / "x.npz", in0=random.random((2, 8), np.float32), in1=random.random((2, 8), np.float32))
    return folder


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """Android builds of ExecuTorch, with runners that run here."""
    for place, text in (("executor_runner", XNNPACK), ("backends/samsung/enn_executor_runner", ENN)):
        path = tmp_path / "build-android" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    return tmp_path / "build-android"


@pytest.mark.parametrize(("name", "where"), [("xnnpack", "executorch_xnnpack"), ("e9955", "executorch_exynos")])
@pytest.mark.usefixtures("own_client")
def test_a_program_runs_on_a_phone(
    cli: Cli,
    programs: Path,
    build: Path,
    phones: list[StandIn],
    tmp_path: Path,
    name: str,
    where: str,
) -> None:
    phones[:] = [StandIn("ABC123", tmp_path / "phone", properties={"ro.soc.model": "s5e9955"})]
    model, results = programs / f"{name}.pte", tmp_path / "results"
    folder = phones[0].root / "data/local/tmp" / where
    folder.mkdir(parents=True)
    if name == "e9955":
        (folder / "e9955.twin").write_bytes(model.with_suffix(".twin").read_bytes())  # the stand-in has no Exynos
    options = ("-b", build, "--inputs", programs / "x.npz", "--output", tmp_path / "y.npz", "--output-folder", results)
    done = cli("device", "run", model, *options)
    assert done.code == 0, done.err
    assert "ABC123: 4 files pushed" in done.out and "2 outputs in" in done.out
    with np.load(programs / "x.npz") as given, np.load(tmp_path / "y.npz") as found:
        wanted = Runtime.get().load_program(str(model)).load_method("forward").execute([given["in0"], given["in1"]])
        for index, value in enumerate(wanted):
            np.testing.assert_array_equal(found[f"out{index}"], value)
    facts = json.loads(cli("device", "run", model, *options, "--json").out)
    assert (facts["pushed"], facts["there_already"], len(facts["outputs"])) == (0, 4, 2)


@pytest.mark.usefixtures("own_client")
def test_an_exynos_of_another_number_or_vendor_is_refused(
    cli: Cli,
    programs: Path,
    build: Path,
    phones: list[StandIn],
    tmp_path: Path,
) -> None:
    model = programs / "e9955.pte"
    for index, (properties, told) in enumerate((
        ({"ro.soc.model": "s5e9945"}, "was compiled for E9955, and this phone is; got s5e9945"),
        ({"ro.soc.manufacturer": "QTI"}, "this phone's SoC is by; got QTI"),
    )):  # fmt: skip
        phones[:] = [StandIn("X", tmp_path / f"phone{index}", properties=properties)]
        done = cli("device", "push", model, "-b", build)
        assert (done.code, told in done.err) == (2, True), done.err
        assert cli("device", "push", model, "-b", build, "--any-soc").code == 0
    refused = cli("device", "push", programs / "simulated.pte", "-b", build)
    assert (refused.code, "is for this machine only" in refused.err) == (2, True)


@pytest.mark.parametrize("name", ["xnnpack", "e9955"])
def test_a_dry_run_shows_the_runners_flags(cli: Cli, programs: Path, build: Path, name: str) -> None:
    done = cli("device", "run", programs / f"{name}.pte", "-b", build, "--inputs", programs / "x.npz", "--dry-run")
    flags = {
        "xnnpack": "./executor_runner --model_path ./xnnpack.pte --inputs input_0_0.raw,input_0_1.raw "
        "--output_file ./outputs/output",
        "e9955": "./enn_executor_runner --model ./e9955.pte --input 'input_0_0.raw input_0_1.raw' "
        "--output_path ./outputs",
    }
    assert done.out.splitlines()[-1].endswith(flags[name])
    repeated = cli("device", "run", programs / f"{name}.pte", "-b", build, "--repeat", "20", "--dry-run")
    if name == "xnnpack":
        assert repeated.out.splitlines()[-1].endswith(" --num_executions 20")
    else:
        assert (repeated.code, "runs a program once; got 20" in repeated.err) == (2, True)


def test_what_is_missing_is_named(cli: Cli, programs: Path, tmp_path: Path) -> None:
    model = programs / "xnnpack.pte"
    assert "EXECUTORCH_BUILD_XNNPACK=ON" in cli("device", "run", model, "--dry-run").err
    done = cli("device", "run", model, "-b", tmp_path, "--dry-run")
    assert (done.code, "must hold executor_runner" in done.err) == (6, True)
    assert cli("device", "run", GOLDEN / "linear_fp32_portable.pte", "-b", tmp_path, "--dry-run").code == 6
    npu = tmp_path / "npu.pte"
    ew.compile(torch.nn.ReLU(), torch.rand(2, 8), "ethos-u55-128", quantize="int8", calibration=[torch.rand(2, 8)] * 2,
               check=False).save(npu)  # fmt: skip
    assert "edgewright device fvp" in cli("device", "run", npu, "--dry-run").err
