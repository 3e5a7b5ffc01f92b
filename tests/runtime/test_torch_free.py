"""Installed in an environment without torch, the runtime runs programs."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest

from edgewright import Runtime
from tests.support import golden

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts folder of a fresh environment with nothing but Edgewright's base install."""
    pytest.importorskip("ensurepip", reason="this Python makes no environments: Debian's is in python3-venv")
    home = tmp_path_factory.mktemp("bare")
    venv.create(home, with_pip=True)
    scripts = home / ("Scripts" if sys.platform == "win32" else "bin")
    subprocess.run([scripts / "python", "-m", "pip", "install", "--quiet", str(ROOT)], check=True, cwd=home)
    return scripts


def test_torch_is_not_there(bare: Path) -> None:
    listed = subprocess.run([bare / "python", "-m", "pip", "list"], capture_output=True, text=True, check=True).stdout
    assert "edgewright" in listed
    assert "torch" not in listed


def test_the_bill_of_materials_is_installed(bare: Path) -> None:
    code = (
        "from importlib.metadata import files; print(*(f.read_text() for f in files('edgewright') if 'sbom' in str(f)))"
    )
    command = [bare / "python", "-I", "-c", code]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=bare).stdout
    scopes = {component["name"]: component.get("scope") for component in json.loads(listed)["components"]}
    assert scopes["numpy"] == scopes["llvmlite"] == "required" and scopes["torch"] == "optional"


NAMES = ["linear_fp32_portable", "mix_portable", "conv_relu_int8_portable", "mlp_ptd_portable"]


@pytest.mark.parametrize("name", NAMES)
def test_programs_run(bare: Path, name: str, tmp_path: Path) -> None:
    case = next(golden.cases(name))
    np.savez(tmp_path / "x.npz", **{f"in{i}": x for i, x in enumerate(case.inputs)})
    command = [bare / "edgewright", "run", golden.path(name), "--inputs", "x.npz", "--output", "y.npz"]
    if golden.data(name):
        command += ["--data", golden.data(name)]
    subprocess.run(command, check=True, cwd=tmp_path)
    with np.load(tmp_path / "y.npz") as outputs:
        for array, stock in zip(outputs.values(), case.outputs, strict=True):
            np.testing.assert_allclose(array, stock, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["ethos_u55_128", "ethos_u65_256"])
def test_ethos_u_delegates_run(bare: Path, name: str, tmp_path: Path) -> None:
    """Neither torch nor Vela is there: the commands are run by what the base install brings."""
    path = golden.GOLDEN / "ethos_u" / f"{name}.pte"
    x = np.random.default_rng(0).normal(size=(1, 4, 16, 16)).astype(np.float32)
    np.savez(tmp_path / "x.npz", in0=x)
    command = [bare / "edgewright", "run", path, "--inputs", "x.npz", "--output", "y.npz"]
    subprocess.run(command, check=True, cwd=tmp_path)
    (here,) = Runtime.get().load_program(path).load_method("forward").execute([x])
    with np.load(tmp_path / "y.npz") as outputs:
        assert (outputs["out0"] == here).all() and len(np.unique(here)) > 50
    shown = subprocess.run([bare / "edgewright", "disasm", path], capture_output=True, text=True, check=True)
    assert "DEPTHWISE" in shown.stdout


def test_qualcomm_twins_run(bare: Path, tmp_path: Path) -> None:
    """Neither torch nor Qualcomm's libraries are there: the host twin runs, and says so."""
    import torch

    from edgewright.backends.qualcomm import QnnPartitioner
    from edgewright.program.edge import to_edge_transform_and_lower

    torch.manual_seed(0)
    net, x = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).eval(), torch.randn(1, 3, 8, 8)
    partitioner = QnnPartitioner.for_target("SM8650")
    edge = to_edge_transform_and_lower(torch.export.export(net, (x,)), partitioner=[partitioner])
    edge.to_executorch().save(str(tmp_path / "m.pte"))
    np.savez(tmp_path / "x.npz", in0=x.numpy())
    command = [bare / "edgewright", "run", "m.pte", "--inputs", "x.npz", "--output", "y.npz"]
    done = subprocess.run(command, check=True, cwd=tmp_path, capture_output=True, text=True)
    assert "host twins run in place of Qualcomm's emulator: Qualcomm's libraries are not installed" in done.stderr
    (emulated,) = Runtime.get().load_program(tmp_path / "m.pte").load_method("forward").execute([x.numpy()])
    with np.load(tmp_path / "y.npz") as outputs:
        np.testing.assert_allclose(outputs["out0"], emulated, 1e-2, 1e-2)


def test_the_demo_runs(bare: Path, tmp_path: Path) -> None:
    shown = subprocess.run([bare / "edgewright", "demo"], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "images correct: 82" in shown.stdout
