"""ExecuTorch's own example scripts, from its wheel, run unmodified on Edgewright."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgewright.backends.ethos_u.blob import read_blob
from edgewright.formats.etrecord import IDENTIFIER
from edgewright.formats.pte_reader import read_program
from edgewright.runtime import Runtime

ROOT = Path(__file__).parents[2]
NEUTRON = ROOT / "tests" / "backends" / "nxp" / "standin"  # stands for NXP's converter
# torchvision's own library may be of another release of torch; its models need none of it.
TORCHVISION = """
import torch
for name in ("nms", "qnms"):
    try:
        torch.library.define(f"torchvision::{name}", "(Tensor a, Tensor b, float c) -> Tensor")
    except RuntimeError:
        pass
try:
    import torchvision
except ImportError:  # scripts import it at their top, and the models tried here do without it
    import importlib.abc, importlib.machinery, sys, types

    class Absent(types.ModuleType):
        __path__ = []

        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return Absent(f"{self.__name__}.{name}")

    class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] == "torchvision":
                return importlib.machinery.ModuleSpec(name, self, is_package=True)

        def create_module(self, spec):
            return Absent(spec.name)

        def exec_module(self, module):
            pass

    sys.meta_path.append(Finder())
"""
CASES = {
    "examples.xnnpack.aot_compiler --model_name add": ("add_xnnpack_fp32.pte", "XnnpackBackend"),
    "examples.xnnpack.aot_compiler --model_name linear --quantize -r r.etrecord": (
        "linear_xnnpack_q8.pte", "XnnpackBackend",
    ),
    "examples.qualcomm.scripts.export_example -m linear -g -q ptq": ("linear.pte", "QnnBackend"),
    "examples.nxp.aot_neutron_compile -m mlperf_tiny_image_classification -d -q --use_random_dataset": (
        "mlperf_tiny_image_classification_nxp_delegate.pte", "NeutronBackend",
    ),
    "examples.qualcomm.util_scripts.gen_etrecord --soc_model SM8750 --build_folder none --num_rows 3": (
        "qnn_simple_model.pte", "QnnBackend",
    ),
}  # fmt: skip


def run(folder: Path, command: str, *options: str, path: str = f"{NEUTRON}:{ROOT}") -> str:
    """Run one of ExecuTorch's scripts as a user would; what it printed. ``options``: of ``edgewright compat``."""
    script, *arguments = command.split()
    (folder / "torchvision_library.py").write_text(TORCHVISION)
    start = [sys.executable, "-m", "edgewright", "--import", "torchvision_library", "compat", *options, "-m"]
    done = subprocess.run(
        [*start, f"executorch.{script}", *arguments], cwd=folder, capture_output=True, text=True, timeout=600,
        check=False, env=os.environ | {"PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [pytest.param(c, marks=pytest.mark.slow if c.endswith("name add") else ()) for c in CASES]
)
def test_an_example_of_executorch(command: str, tmp_path: Path) -> None:
    told = run(tmp_path, command)
    if "gen_etrecord" in command:
        assert "DELEGATE_CALL" in told and "QnnBackend" in told and "conv2d.default" in told
    name, backend = CASES[command]
    (plan,) = read_program(tmp_path / name).execution_plan
    assert [d.id for d in plan.delegates] == [backend]
    for record in tmp_path.glob("*etrecord*"):
        assert IDENTIFIER.encode() in record.read_bytes()


@pytest.mark.slow
def test_scripts_that_read_what_others_wrote(tmp_path: Path) -> None:
    """Arm's scripts: conversions outside the NPU call the Cortex-M's kernels, and the scratch memory is found."""
    run(tmp_path, "backends.arm.scripts.aot_arm_compiler -m add -d -q -t ethos-u55-128 --etrecord")
    program = read_program(tmp_path / "add_arm_delegate_ethos-u55-128.pte")
    (plan,) = program.execution_plan
    kernels = {"cortex_m::quantize_per_tensor.out", "cortex_m::dequantize_per_tensor.out"}
    assert {o.key for o in plan.operators or ()} == kernels
    method = Runtime.get().load_program(tmp_path / "add_arm_delegate_ethos-u55-128.pte").load_method("forward")
    assert method.execute([np.ones(1, np.float32)] * 2)[0] == pytest.approx(2, abs=0.02)
    told = run(tmp_path, "backends.arm.scripts.get_ethosu_scratch_from_pte add_arm_delegate_ethos-u55-128.pte")
    assert all(IDENTIFIER.encode() in p.read_bytes() for p in tmp_path.glob("*etrecord*"))
    assert f"max_scratch_size={read_blob(program.blob(plan.delegates[0])).scratch_size} bytes" in told


@pytest.mark.slow
def test_a_script_for_neutron_without_its_converter(tmp_path: Path) -> None:
    (command,) = (c for c in CASES if "nxp" in c)
    run(tmp_path, command, "--simulate-only", path=str(ROOT))
    method = Runtime.get().load_program(tmp_path / CASES[command][0]).load_method("forward")
    assert method.execute([np.ones((1, 3, 32, 32), np.float32)])[0].shape == (1, 10)


@pytest.mark.slow
def test_a_script_trains_for_neutron(tmp_path: Path) -> None:
    """In batches of 20, where the exported program has one of 1."""
    (command,) = (c for c in CASES if "nxp" in c)
    told = run(tmp_path, f"{command} --use_qat", "--simulate-only", path=str(ROOT))
    assert "two epochs of QAT training" in told
    method = Runtime.get().load_program(tmp_path / CASES[command][0]).load_method("forward")
    assert method.execute([np.ones((1, 3, 32, 32), np.float32)])[0].shape == (1, 10)
