"""Checks a graph of the core dialect as an object file without a runtime: linked and called in this process, or booted
on QEMU's model of a board."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgewright.backends.xnnpack.numerics import XNNPACK
from edgewright.bare_metal.describe import Port
from edgewright.bare_metal.object_header import ObjectDescription
from edgewright.engine.compiler import make_plan
from edgewright.engine.cross_target import find_cross_target
from edgewright.engine.object_file import Buffer, CpuCode, write_object
from edgewright.engine.plan import Plan, TensorSpec
from edgewright.errors import LimitError
from edgewright.ir.graph import Array
from tests.bare_metal.boards import BOARDS, GCC, QEMU, run_graph_on_board
from tests.bare_metal.native import NativeModel
from tests.compose import judge
from tests.compose.builder import build
from tests.compose.dialects import DIALECTS
from tests.compose.outcome import Failure, builder
from tests.compose.spec import Spec


def check_object(spec: Spec, target: str) -> Failure | str | None:
    """A failure; or why the graph has no object file for the target; or None: it computes what the reference does."""
    case, dialect = build(spec, builder(spec)), DIALECTS[spec.dialect]
    processor = find_cross_target(target)
    plan = make_plan(case.graph, 1, XNNPACK, isa=processor.isa)
    missing = next((step.label for step in plan.steps if step.python is not None), None)
    if missing is not None:
        return f"{target}: no kernel of {missing}"
    buffers = [[Buffer(kind, i) for i in range(len(side))] for kind, side in
               (("input", plan.inputs), ("output", plan.outputs))]  # fmt: skip
    code = CpuCode(plan, tuple(buffers[0]), tuple(buffers[1]))
    try:
        made = write_object([code], processor, "model", code.memory)
    except LimitError as error:
        return f"{target}: {error}"[:200]
    other = set(made.external) - {"memcpy", "memset"}
    if other:
        return Failure("calls functions", ", ".join(sorted(other)))
    inputs, outputs = (tuple(_port(tensor) for tensor in side) for side in (plan.inputs, plan.outputs))
    about = ObjectDescription("model", processor, made, inputs, outputs, 0)
    run = _on_board if target in BOARDS else _natively
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model.o").write_bytes(made.data)
        try:
            arrays = run(Path(folder), about, plan, case.inputs)
        except subprocess.CalledProcessError as error:
            if "overflowed" not in (error.stderr or ""):
                raise
            return f"{target}: the board's memory is too small"
        results = [a.view(t.dtype).reshape(t.shape) for a, t in zip(arrays, plan.outputs, strict=True)]
    wanted = judge.reference(case.graph, case.inputs, dialect.execute)
    detail = judge.differences(case.graph, case.inputs, dialect.execute, dialect.bound, [results], wanted)
    return Failure("differs", detail) if detail else None


def missing_tool(target: str) -> str:
    """The name of a program that checks for this target need and that is not installed, or nothing."""
    needed = (GCC, QEMU) if target in BOARDS else ("gcc",)
    return next((name for name in needed if shutil.which(name) is None), "")


def _port(tensor: TensorSpec) -> Port:
    name = np.dtype(tensor.dtype).name
    return Port(tensor.name, name, tensor.shape, tuple(range(len(tensor.shape))), tensor.nbytes, False)


def _natively(folder: Path, about: ObjectDescription, _: Plan, inputs: Sequence[Array]) -> list[Array]:
    return NativeModel(folder, about).run(inputs)


def _on_board(folder: Path, about: ObjectDescription, plan: Plan, inputs: Sequence[Array]) -> list[Array]:
    found = run_graph_on_board(about.target.name, folder, inputs, plan.outputs, about.object.arena_size)
    return [np.frombuffer(data, np.uint8) for data in found]
