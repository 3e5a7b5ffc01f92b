"""Generated code: hardly a vector is spilled, names say what texts depend on, and torch is not needed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import pytest

from edgewright.engine import make_plan
from edgewright.engine.codegen.builder import PTR, Module
from edgewright.engine.jit.build import target_machine
from edgewright.ir.graph import Graph
from tests.engine.graphs import cpus
from tests.engine.lower.test_conv import conv

GRAPHS: dict[str, Callable[[bool], Graph]] = {
    "pointwise": lambda q: conv((1, 28, 28, 96), 192, quantize=q),
    "narrow": lambda q: conv((1, 56, 56, 96), 24, quantize=q),
    "window": lambda q: conv((1, 28, 28, 64), 64, (3, 3), (2, 2), (1, 1, 1, 1), quantize=q),
    "first": lambda q: conv((1, 64, 64, 3), 32, (3, 3), (2, 2), (1, 1, 1, 1), quantize=q, limits=(0.0, 6.0)),
    "depthwise": lambda q: conv((1, 28, 28, 144), 144, (3, 3), (1, 1), (1, 1, 1, 1), groups=144, quantize=q,
                                depthwise=True),
    "depthwise, stride 2": lambda q: conv((1, 28, 28, 64), 64, (3, 3), (2, 2), (1, 1, 1, 1), groups=64, quantize=q,
                                          depthwise=True),
}  # fmt: skip


def spilled(text: str, cpu: str, features: str) -> tuple[int, int]:
    """Instructions that move vectors to or from the stack, and all of them."""
    assembly = target_machine(cpu, features).emit_assembly(llvm.parse_assembly(text))
    lines = [line for line in assembly.splitlines() if line.startswith("\t") and not line.startswith("\t.")]
    return sum("(%rsp" in line and "mm" in line for line in lines), len(lines)


def texts(plan: Any) -> dict[str, str]:
    return {name: source if isinstance(source, str) else source() for name, source in plan.kernels.items()}


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("quantize", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
def test_vectors_stay_in_registers(cpu: str, quantize: bool, name: str) -> None:
    """None are spilled in single precision, and few of bytes; without the dot product a depthwise one has too many."""
    plan = make_plan(GRAPHS[name](quantize), threads=1, cpu=cpu)
    share = 0.01 if quantize else 0.0
    if quantize and cpu == "avx2":
        share = 0.13 if name.startswith("depthwise") else 0.03
    for kernel, text in texts(plan).items():
        moved, total = spilled(text, plan.cpu, plan.features)
        assert moved <= share * total, f"{kernel}: {moved} of {total}"


@pytest.mark.parametrize("quantize", [False, True])
def test_the_same_name_is_the_same_text(quantize: bool) -> None:
    """Objects are kept by name: plans of graphs that differ anywhere must not share a name for another text."""
    known: dict[str, str] = {}
    for limits in (None, (0.0, 6.0), (0.0, float("inf"))):
        for channels in (16, 24, 64):
            for kernel in ((1, 1), (3, 3)):
                made = conv((1, 9, 9, channels), channels, kernel, quantize=quantize, limits=limits, zero=channels)
                for name, text in texts(make_plan(made, threads=1)).items():
                    assert known.setdefault(name, text) == text
    assert len(known) > 8


def test_plans_are_the_same_every_time() -> None:
    made = [make_plan(conv((1, 9, 9, 24), 40, (3, 3), quantize=True), threads=2) for _ in range(2)]
    assert texts(made[0]) == texts(made[1])
    assert made[0].steps == made[1].steps
    assert bytes(made[0].weights) == bytes(made[1].weights)


def test_the_engine_does_not_import_torch() -> None:
    program = "import sys, edgewright.engine.compiler; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_scalars_are_vectors_of_one_lane() -> None:
    """Two of them make a vector, whatever the width of the machine's: AArch64's tails have such."""
    module = Module()
    f = module.kernel("pair")
    out = f.load_arg(PTR, 0)
    a, b = (f.load("i32", out, offset) for offset in (0, 4))
    f.store(f.shuffle(a, b, [1, 0]), out)
    f.store(f.shuffle(a, b, [1]), out, 8)
    f.ret()
    text = module.text()
    llvm.parse_assembly(text).verify()
