"""ExecuTorch's own example scripts, from its wheel, run unmodified on Edgewright."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgewright.program.etrecord import IDENTIFIER
from edgewright.pte.reader import read_program

CASES = {
    "examples.xnnpack.aot_compiler --model_name add": ("add_xnnpack_fp32.pte", "XnnpackBackend"),
    "examples.xnnpack.aot_compiler --model_name linear --quantize -r r.etrecord": (
        "linear_xnnpack_q8.pte", "XnnpackBackend",
    ),
    "examples.qualcomm.scripts.export_example -m linear -g -q ptq": ("linear.pte", "QnnBackend"),
    "backends.arm.scripts.aot_arm_compiler -m add -d -q -t ethos-u55-128 --etrecord": (
        "add_arm_delegate_ethos-u55-128.pte", "EthosUBackend",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "command", [pytest.param(c, marks=pytest.mark.slow if c.endswith("name add") else ()) for c in CASES]
)
def test_an_example_of_executorch(command: str, tmp_path: Path) -> None:
    script, *arguments = command.split()
    words = [sys.executable, "-m", "edgewright", "compat", "-m", f"executorch.{script}", *arguments]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    name, backend = CASES[command]
    (plan,) = read_program(tmp_path / name).execution_plan
    assert [d.id for d in plan.delegates] == [backend]
    for record in tmp_path.glob("*etrecord*"):
        assert IDENTIFIER.encode() in record.read_bytes()
