"""Machine code for AArch64 (Raspberry Pi, Apple silicon, Arm servers): run for real, by an Arm Python under qemu.

Every kind of XNNPACK node on each instruction set, and files that ExecuTorch made, beside the reference of the same
Python. ``tests/support/aarch64.sh`` gets both from Debian's packages, the first time.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from edgewright.engine.isa import ARM_LEVELS
from tests.engine.coverage.xnnpack import LEFT
from tests.support.programs import require

REPO = Path(__file__).parents[2]
FOLDER = Path.home() / ".cache" / "edgewright-tests" / "aarch64"
GOLDEN = REPO / "tests" / "golden"
FILES = ("conv_relu_fp32_xnnpack", "conv_relu_int8_pc_xnnpack", "mlp_dynq_int8_xnnpack", "conv_relu_fp32_portable",
         "misc_ops_fp32_xnnpack")  # fmt: skip


UNAVAILABLE = 3  # the script's exit code where apt has no such packages


@pytest.fixture(autouse=True, scope="module")
def arm_python() -> None:
    for name in ("bash", "apt-get", "dpkg"):
        require(name, "it installs qemu and an Arm Python from Debian's packages")
    script = REPO / "tests" / "support" / "aarch64.sh"
    done = subprocess.run(["bash", str(script), str(FOLDER)], timeout=600, capture_output=True, text=True, check=False)
    if done.returncode == UNAVAILABLE:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr


def on_arm(tmp_path: Path, *arguments: str, cpu: str = "") -> list[dict[str, Any]]:
    return [json.loads(line) for line in run_on_arm(tmp_path, "tests.support.aarch64_check", *arguments, cpu=cpu)]


def run_on_arm(tmp_path: Path, module: str, *arguments: str, cpu: str = "") -> list[str]:
    """The lines that a module of ours prints in the Arm Python."""
    told = {"PYTHONPATH": f"{REPO}:{FOLDER / 'site'}", "EDGEWRIGHT_CACHE": str(tmp_path), "OPENBLAS_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1", "EDGEWRIGHT_CPU": cpu}  # fmt: skip
    given = [word for name, value in told.items() for word in ("-E", f"{name}={value}")]
    command = [
        str(FOLDER / "qemu"),
        "-cpu",
        "max",
        "-L",
        str(FOLDER / "root"),
        *given,
        str(FOLDER / "root/usr/bin/python3"),
    ]
    done = subprocess.run(
        [*command, "-m", module, *arguments],
        capture_output=True, text=True, timeout=1500, check=False, cwd=REPO,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def check(found: list[dict[str, Any]]) -> None:
    """Integers are equal; real numbers differ in their last bits, 16-bit ones in theirs."""
    for told in found:
        name = told["case"]
        exact = name.startswith("bytes")
        bound = 0 if exact else 2e-3 if "16" in name else 1e-5
        assert told["difference"] <= bound, told
        assert bool(told.get("in_numpy")) == (name in LEFT), told


@pytest.mark.slow
@pytest.mark.parametrize("cpu", ARM_LEVELS)
def test_nodes_in_turn(cpu: str, tmp_path: Path) -> None:
    """A third of the node types on each instruction set."""
    found = on_arm(tmp_path, "nodes", cpu, str(ARM_LEVELS.index(cpu)), "3")
    assert len(found) > 20
    check(found)


@pytest.mark.slow
@pytest.mark.parametrize("cpu", ARM_LEVELS)
def test_nodes(cpu: str, tmp_path: Path) -> None:
    check(on_arm(tmp_path, "nodes", cpu, "0", "1"))


@pytest.mark.slow
def test_files_of_executorch(tmp_path: Path) -> None:
    found = on_arm(tmp_path, "files", *(str(GOLDEN / f"{name}.pte") for name in FILES))
    assert [told["case"] for told in found] == [f"{name}.pte" for name in FILES]
    check(found)
