"""Which instruction set code is made for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import edgewright.engine
from edgewright.backends.xnnpack.numerics import XNNPACK
from edgewright.engine import compile, make_plan
from edgewright.engine.isa import CPU_VARIABLE, _machine, host_isa
from edgewright.errors import UsageError
from edgewright.ir.core.execute import Executor
from edgewright.ir.graph import Graph
from tests.backends.node_cases import EXACT, ROWS
from tests.engine.graphs import check_alike


def test_the_lower_one_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CPU_VARIABLE, "avx2")
    isa = host_isa()
    assert (isa.name, isa.lanes, isa.registers, isa.dot) == ("avx2", 8, 16, False)
    assert "+avx512f" not in isa.features
    assert "+avx2" in isa.features


def test_other_names_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CPU_VARIABLE, "sse9")
    with pytest.raises(UsageError, match="avx2, avxvnni, avx512"):
        host_isa()


def test_an_argument_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CPU_VARIABLE, "sse9")
    assert host_isa("avx2").name == "avx2"


BYTES = {f"{kind} {n}": make for kind, group in (("bytes", EXACT), ("rows", ROWS)) for n, make in group.items()}


@pytest.mark.sample(6)
@pytest.mark.skipif(not any(_machine()[1].get(name) for name in ("avxvnni", "avx512vnni")), reason="no byte products")
@pytest.mark.parametrize("name", BYTES)
def test_int8_dot_products_of_256_bits(name: str) -> None:
    """AVX-VNNI: processors that have these instructions without AVX-512."""
    graph, given = BYTES[name]()
    made = compile(graph, 1, cpu="avxvnni")
    check_alike(made.run(given), Executor(graph, XNNPACK).run(given))
    usual = [step.python is None for step in compile(graph, 1, cpu="avx2").plan.steps]
    assert [step.python is None for step in made.plan.steps] == usual
    multiplies, dots = (kernels(graph, cpu) for cpu in ("avx2", "avxvnni"))
    assert ("vpdpbusd" in dots) == ("pmadd" in multiplies) and "pmadd" not in dots
    assert "vpdpbusd.512" not in dots


def kernels(graph: Graph, cpu: str) -> str:
    """The LLVM IR of a graph's kernels."""
    return "".join(generate() for generate in make_plan(graph, 1, cpu=cpu).kernels.values())


def test_instructions_are_named_in_two_modules() -> None:
    """What a port to another processor must look at."""
    folder = Path(edgewright.engine.__file__).parent
    named = {path.name for path in folder.rglob("*.py") if re.search(r"llvm\.(x86|aarch64)", path.read_text())}
    assert named == {"vector.py", "driver_ir.py"}
