"""``docs/adding-an-op.md``: its edits apply to a copy of the repository, where the new operator runs everywhere."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgewright import to_edge
from edgewright.ir.aten.ops import OPS
from edgewright.runtime import Runtime
from edgewright.runtime.registry import all_kernels

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "adding-an-op.md").read_text(encoding="utf-8")
EDITS = re.findall(r"`([\w/.]+\.py)`:\n\n```diff\n(.*?)```", TEXT, re.DOTALL)
NEW = "exp2"


def apply(edit: str, source: str) -> str:
    """The source with a hunk applied: its lines stand in it exactly once."""
    lines = edit.splitlines()
    assert all(line[:1] in "+- " for line in lines), edit
    before, after = ("".join(f"{line[1:]}\n" for line in lines if line[:1] in marks) for marks in ("- ", "+ "))
    assert source.count(before) == 1, before
    return source.replace(before, after)


@pytest.mark.parametrize(("path", "edit"), EDITS, ids=[path for path, _ in EDITS])
def test_edits_apply_to_the_source(path: str, edit: str) -> None:
    changed = apply(edit, (ROOT / path).read_text(encoding="utf-8"))
    compile(changed, path, "exec")
    assert NEW in changed
    assert all(len(line) <= 121 for line in edit.splitlines())  # 120, and the mark


def test_every_step_is_one_edit_and_the_operator_is_new() -> None:
    assert len(re.findall(r"^## \d", TEXT, re.MULTILINE)) == 5
    assert len(EDITS) == 4  # a backend derives its row from the op table
    assert sum(path.startswith("edgewright/") for path, _ in EDITS) <= 8
    assert NEW not in OPS


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What ``RUN`` printed in a copy of the repository with the page's edits."""
    copy = tmp_path_factory.mktemp("copy")
    for folder in ("edgewright", "tests/ir", "tests/support"):
        shutil.copytree(ROOT / folder, copy / folder)  # with bytecode, which is valid as long as times are
    shutil.copy(ROOT / "tests" / "__init__.py", copy / "tests")
    for path, edit in EDITS:
        changed = apply(edit, (copy / path).read_text(encoding="utf-8"))
        (copy / path).write_text(changed, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(list(TARGETS))],
        cwd=copy, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]
    printed: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    assert printed["package"] == str(copy / "edgewright")
    return printed


# The table of the page: what runs on the device, and what on the CPU, with the reason.
TARGETS = {
    tuple(row[0].replace("`", "").split(", ")): (set(re.findall(r"`(\w+)`", row[1])), row[2].replace("`", ""))
    for row in (line.strip("| ").split("|") for line in re.findall(r"^\| `.*\|$", TEXT, re.MULTILINE))
    for row in [[cell.strip() for cell in (*row, "")]]
}

RUN = """
import json, logging, sys, warnings
from pathlib import Path
import numpy as np, torch
import edgewright
from edgewright.ir.aten.ops import OPS
from edgewright.runtime import Runtime
from edgewright.runtime.jit.segment_step import SegmentStep
from tests.ir.aten.overload_calls import calls_of

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)


class Net(torch.nn.Module):
    def forward(self, x):
        return torch.exp2(x)


x = torch.linspace(-3, 3, 24).reshape(2, 12)
expected = torch.exp2(x).numpy()
found = {"package": str(Path(edgewright.__file__).parent), "targets": [], "samples": 0}

for call in calls_of(OPS["exp2"], "aten.exp2.default"):
    (ours,), theirs = OPS["exp2"].call(call.args), torch.exp2(torch.from_numpy(call.args["self"])).numpy()
    np.testing.assert_allclose(ours, theirs, 1e-5)
    found["samples"] += 1

for target, *precision in json.loads(sys.argv[1]):
    compiled = edgewright.compile(
        Net(), (x,), target, quantize=precision[0] if precision else None, quiet=True, evaluate=0, check=False,
        calibration=[(x,)] if precision else None, simulate=True if target[0] in "sei" and target[1] != "t" else None,
    )
    report = compiled.program.partition_reports["forward"]
    result = Runtime.get().load_program(compiled.program.buffer).load_method("forward").execute([x.numpy()])[0]
    found["targets"].append({
        "device": [v.operator for v in report.delegated if "quantize" not in v.operator],
        "cpu": [f"{v.operator}: {v.rejections[0]}" for v in report.rejected if "quantize" not in v.operator],
        "error": float(np.abs(result - expected).max() / expected.max()),
    })

# A linear layer behind it makes the calls worth compiling.
model, x = torch.nn.Sequential(Net(), torch.nn.Linear(64, 64)).eval(), torch.linspace(-3, 3, 1 << 15).reshape(512, 64)
program = edgewright.to_edge(torch.export.export(model, (x,))).to_executorch().buffer
method = Runtime(threads=1).load_program(program).load_method("forward")
np.testing.assert_allclose(method.execute([x.numpy()])[0], model(x).detach().numpy(), 1e-4, 1e-5)
found["engine"] = [step.label for chain in method._chains for step in chain]
print(json.dumps(found))
"""


def test_the_new_operator_runs_on_every_backend_as_the_page_says(ran: dict[str, Any]) -> None:
    assert len(TARGETS) == len(ran["targets"]) == 5
    for (names, (device, cpu)), outcome in zip(TARGETS.items(), ran["targets"], strict=True):
        assert (set(outcome["device"]), "; ".join(outcome["cpu"])) == (device, cpu), names
        assert outcome["error"] < (2.5 / 256 if "int8" in names else 2e-3), names


def test_the_new_operator_agrees_with_eager_torch_and_runs_in_the_engine(ran: dict[str, Any]) -> None:
    assert ran["samples"] >= 3
    assert ran["engine"][0].startswith("3 calls (engine, ")


def test_a_kernel_of_your_own() -> None:
    exec(re.findall(r"```python\n(from edgewright.runtime.*?)```", TEXT, re.DOTALL)[0], {})
    kernel = all_kernels().pop("my::cube.out")
    assert np.array_equal(kernel.fn(np.arange(3)), [0, 1, 8])


def test_an_operator_of_your_own() -> None:
    """As the page defines it, it compiles, and this process computes it with torch."""
    space: dict[str, object] = {}
    exec(re.findall(r"```python\n(import torch\n\nlibrary.*?)```", TEXT, re.DOTALL)[0], space)

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = torch.ops.my.cube(x) + 1
            return made

    try:
        program = to_edge(torch.export.export(Net(), (torch.ones(3),))).to_executorch()
        (found,) = (
            Runtime.get().load_program(program.buffer).load_method("forward").execute([np.arange(3.0, dtype="f4")])
        )
        assert np.array_equal(found, [1, 2, 9])
    finally:
        all_kernels().pop("my::cube.out", None)
