"""``edgewright compat --checkout``: lines of ExecuTorch's pages that call its scripts and programs, as they stand."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgewright.errors import FileAccessError
from tests.cli.cli import GOLDEN, Cli
from tests.compat.seeds import PAGES

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``executorch`` in an empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    done = cli("compat", "--simulate-only", "--checkout", "executorch")
    assert done.code == 0, done.err
    return tmp_path / "executorch"


def line(page: str, start: str) -> str:
    """The page's line, or its words in backquotes, that start this way, as they are."""
    found = re.search(rf"(?m)^`?({re.escape(start)}[^`\n]*)`?", PAGES[page])
    assert found is not None
    return found[1].removesuffix("```")


def shell(command: str, folder: Path, code: int = 0) -> str:
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, text=True, capture_output=True, timeout=300, check=False,
        env={"PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(Path.home())},
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_the_runner_of_xnnpacks_page(checkout: Path) -> None:
    shutil.copy(GOLDEN / "linear_fp32_xnnpack.pte", checkout / "mv2_xnnpack.pte")
    said = shell(line("xnnpack", "./cmake-out/"), checkout)
    assert "xnn_executor_runner] 1 inference(s)" in said and "Output 0: float32" in said


@pytest.mark.slow
def test_the_runner_of_qualcomms_page(checkout: Path) -> None:
    (checkout / "deeplab_v3").mkdir()
    shutil.copy(GOLDEN / "linear_fp32_xnnpack.pte", checkout / "deeplab_v3" / "dlv3_qnn.pte")
    said = shell(line("qualcomm", "examples/qualcomm/executor_runner/"), checkout / "build-x86")
    assert "qnn_executor_runner] 1 inference(s)" in said
    assert "Write etdump to etdump.etdp" in said


@pytest.mark.slow
def test_the_scripts_of_ethos_us_page(checkout: Path) -> None:
    """Built, and run on the simulator of the NPU that the program was compiled for, and on no other."""
    import torch

    import edgewright as ew

    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).eval()
    inputs = (torch.randn(1, 3, 8, 8),)
    result = ew.compile(model, inputs, target="ethos-u55-128", quantize="int8", calibration=[inputs])
    result.save("mv2_arm_ethos_u55.pte")
    scripts = "executorch/backends/arm/scripts"
    here = checkout.parent
    assert "Nothing to build" in shell(line("ethos_u", f"{scripts}/build_executorch.sh"), here)
    build = line("ethos_u", f"{scripts}/build_executor_runner.sh")
    assert "runs mv2_arm_ethos_u55.pte" in shell(build, here)
    said = shell(line("ethos_u", f"{scripts}/run_fvp.sh"), here)
    assert "a simulator of ethos-u55-128, not on Arm's virtual platform" in said
    assert "arm_executor_runner] Output 0: float32" in said
    refused = shell(build.replace("u55-128", "u85-256"), here, code=2)
    assert "must be compiled for ethos-u85-256; got ethos-u55-128" in refused


@pytest.mark.slow
def test_a_module_of_the_examples(checkout: Path) -> None:
    shell("python -m examples.qualcomm.scripts.export_example -m linear -g -q ptq", checkout)
    assert (checkout / "linear.pte").exists()


@pytest.mark.slow
def test_the_tutorial_of_ethos_u(checkout: Path) -> None:
    """Set up, compile with Arm's script, build, run: the sum of two ones is 2."""
    setup = "./examples/arm/setup.sh --i-agree-to-the-contained-eula && source examples/arm/arm-scratch/setup_path.sh"
    assert str(checkout) in shell(f"{setup} && echo $EXECUTORCH_ROOT", checkout)
    compiler = "python -m backends.arm.scripts.aot_arm_compiler --model_name=add --delegate --quantize"
    shell(f"{compiler} --output=ethos_u_minimal_example.pte", checkout)
    shell("./backends/arm/scripts/build_executor_runner.sh --pte=ethos_u_minimal_example.pte", checkout)
    runner = "$(find ethos_u_minimal_example -name arm_executor_runner)"
    said = shell(f"backends/arm/scripts/run_fvp.sh --elf={runner} --target=ethos-u55-128", checkout)
    assert "Output 0: float32[1], 2 .. 2" in said


@pytest.mark.slow
def test_setups_say_what_is_here(checkout: Path) -> None:
    assert "Vela" in shell("executorch/examples/arm/setup.sh; true", checkout.parent)
    assert "pip install --index-url" in shell("./examples/nxp/setup.sh; true", checkout)


def test_a_folder_with_something_in_it_is_left_alone(cli: Cli, checkout: Path) -> None:
    done = cli("compat", "--checkout", "executorch")
    assert done.code == FileAccessError.exit_code
    assert "must be a new folder, or an empty one" in done.err
