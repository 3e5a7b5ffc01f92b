"""Files written by stock ExecuTorch, with the inputs it was given and the outputs it gave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).parent.parent / "golden"
DATA = {"mlp_ptd_portable": "mlp_portable_weights.ptd", "mlp_ptd_xnnpack": "mlp_xnn_weights.ptd"}

PROGRAMS = sorted(path.stem for path in GOLDEN.glob("*.pte"))
RECORDED = [name for name in PROGRAMS if (GOLDEN / f"{name}.npz").exists()]


@dataclass
class Case:
    """One recorded call: method, inputs, outputs."""

    method: str
    inputs: list[np.ndarray] = field(default_factory=list)
    outputs: list[np.ndarray] = field(default_factory=list)


def path(name: str) -> Path:
    return GOLDEN / f"{name}.pte"


def data(name: str) -> Path | None:
    return GOLDEN / DATA[name] if name in DATA else None


def cases(name: str) -> Iterator[Case]:
    """The recorded calls of a golden file, in order."""
    found: dict[tuple[str, str], Case] = {}
    with np.load(GOLDEN / f"{name}.npz") as stored:
        for key in stored.files:
            number, method, role = key.split(".")
            case = found.setdefault((number, method), Case(method))
            (case.inputs if role.startswith("in") else case.outputs).append(stored[key])
    yield from found.values()


def foreign() -> bytes:
    """A program for a delegate that is not here."""
    from edgewright.formats import read_program, write_program

    program = read_program(path("linear_fp32_xnnpack"))
    for delegate in program.execution_plan[0].delegates:
        delegate.id = "VulkanBackend"
    return write_program(program)
