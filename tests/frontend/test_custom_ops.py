"""Operators of the user's own (``torch.library``): a call of their out variant, which the application brings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from edgewright import to_edge, to_edge_transform_and_lower
from edgewright.backends.xnnpack import XnnpackPartitioner
from edgewright.errors import UnsupportedOperatorError
from edgewright.runtime import Runtime
from tests.cli.cli import Cli

OPS = """
import torch

library = torch.library.Library("own_ops", "DEF")
library.define("shift(Tensor x, float by, int[] times, Tensor? more=None) -> Tensor")
library.define("shift.out(Tensor x, float by, int[] times, Tensor? more=None, *, Tensor(a!) out) -> Tensor(a!)")
library.define("ends(Tensor x) -> (Tensor, Tensor)")
library.define("ends.out(Tensor x, *, Tensor(a!) low, Tensor(b!) high) -> (Tensor(a!), Tensor(b!))")
library.define("alone(Tensor x) -> Tensor")

def shift(x, by, times, more=None):
    return x + by * sum(times) + (0 if more is None else more)

for name, fn in (("shift", shift), ("ends", lambda x: (x.amin(-1), x.amax(-1))), ("alone", torch.clone)):
    library.impl(name, fn, "CompositeExplicitAutograd")
    torch.library.register_fake(f"own_ops::{name}", fn, lib=library)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        low, high = torch.ops.own_ops.ends(torch.ops.own_ops.shift(self.linear(x), 0.5, [1, 2]).relu())
        return low + high

def model():
    return Net().eval(), (torch.ones(2, 4),)
"""
KERNELS = """
from edgewright.runtime import register_kernel

register_kernel("own_ops::shift.out", lambda x, by, times, more: x + by * sum(times))
register_kernel(
    "own_ops::ends.out(x: Tensor, low: Tensor!, high: Tensor!)", lambda x: (x.min(-1), x.max(-1)),
    shape=lambda x: [x.shape[:-1], x.shape[:-1]],
)
"""


@pytest.fixture(scope="module")
def ops() -> dict[str, object]:
    space: dict[str, object] = {"__name__": "own_ops_of_a_test"}
    exec(OPS, space)
    return space


def test_a_call_becomes_one_of_the_out_variant(ops: dict[str, object]) -> None:
    model, inputs = ops["model"]()  # type: ignore[operator]
    program = to_edge_transform_and_lower(torch.export.export(model, inputs), partitioner=[XnnpackPartitioner()])
    made = program.to_executorch()
    (plan,) = made.executorch_program.execution_plan
    assert [o.key for o in plan.operators or ()] == ["own_ops::shift.out", "own_ops::ends.out"]
    assert len(plan.delegates) >= 2
    (found,) = Runtime.get().load_program(made.buffer).load_method("forward").execute([inputs[0].numpy()])
    assert np.allclose(found, model(*inputs).detach().numpy(), atol=1e-6)


def test_without_an_out_variant_the_error_says_what_to_define(ops: dict[str, object]) -> None:
    class Alone(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.own_ops.alone(x)

    assert ops
    with pytest.raises(UnsupportedOperatorError, match=r"own_ops.alone.* define own_ops::alone.out") as caught:
        to_edge(torch.export.export(Alone(), (torch.ones(2),)))
    assert Path(__file__).name in str(caught.value)


def test_the_command_line(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was compiled in one process runs in another that has kernels for it, and says which it lacks."""
    monkeypatch.chdir(tmp_path)
    Path("kernels_of_mine.py").write_text(KERNELS)
    Path("net_of_mine.py").write_text(OPS.replace("own_ops", "more_ops"))
    Path("kernels_of_mine.py").write_text(KERNELS.replace("own_ops", "more_ops"))
    done = cli("compile", "net_of_mine:model", "--target", "xnnpack", "-o", "m.pte")
    assert done.code == 0, done.err
    assert "the application must provide more_ops::ends.out, more_ops::shift.out" in done.out
    start = [sys.executable, "-m", "edgewright", "run", "m.pte", "--quiet"]
    without = subprocess.run(start, capture_output=True, text=True, timeout=300, check=False)
    assert without.returncode == 6
    assert "more_ops::ends.out, more_ops::shift.out" in without.stderr and "--import" in without.stderr
    command = [*start, "--import", "kernels_of_mine", "--output", "y.npz"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert np.load("y.npz")["out0"].shape == (2,)


@pytest.mark.slow
def test_stocks_runtime_runs_such_calls(tmp_path: Path) -> None:
    """ExecuTorch's wheel has operators of a namespace of their own, and their kernels."""
    script = """
import sys
import numpy as np, torch
from executorch.extension.llm.custom_ops import custom_ops
from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer
from edgewright import to_edge

class Net(torch.nn.Module):
    def forward(self, x):
        return torch.ops.llama.fast_hadamard_transform(x * 2.0) + 1.0

x = torch.randn(3, 64)
made = to_edge(torch.export.export(Net(), (x,))).to_executorch()
assert "llama::fast_hadamard_transform.out" in [o.key for o in made.executorch_program.execution_plan[0].operators]
found = _load_for_executorch_from_buffer(made.buffer).forward([x])[0]
print(torch.allclose(found, Net()(x), atol=1e-5))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["True"]), done.stderr
