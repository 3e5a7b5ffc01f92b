"""The method that a self-check examines, and execution of a program on the host."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch.export import ExportedProgram

from edgewright.api.graph_interpreter import GraphInterpreter, RoundingNoise
from edgewright.api.quantized_graph import has_discontinuities
from edgewright.backends.table import Rounding
from edgewright.files import write_file
from edgewright.runtime.method import Method
from edgewright.runtime.program import Runtime

_SEEDS = range(1, 5)  # with few outputs, a single draw may contain hardly any rounding error
MORE_SEEDS = range(5, 21)  # further draws for layers that exceed the worst of the first
Lower = Callable[[ExportedProgram], Any]


@dataclass(frozen=True)
class CheckedMethod:
    """A method to check. ``lower`` compiles a modified graph with the settings of the original."""

    name: str
    method: str
    reference: GraphInterpreter
    rounding: Rounding
    lower: Lower

    @cached_property
    def slack(self) -> float:
        """Tolerance factor: random errors break half of all ties the other way, a device may break all of them."""
        return 2.0 if has_discontinuities(self.reference.graph) else 1.0

    def noises(self, seeds: range = _SEEDS) -> list[RoundingNoise]:
        """Several random draws of rounding errors."""
        return [RoundingNoise(self.reference.exported, self.rounding, seed) for seed in seeds]


def load(program: Any, method: str = "forward") -> Method:
    """Load a method of a finished program on the host, with its own state. Large programs are mapped from a file, as on
    a device; it is removed at once, and what is mapped remains."""
    if not program.is_large:
        data = list(program.data_files.values())
        return Runtime.get().load_program(program.buffer, data or None, twin=program.twin).load_method(method)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "m.pte"
        write_file(path, program.chunks(), durable=False)
        paths = program.write_tensor_data_to_file(folder)
        return Runtime.get().load_program(path, paths or None, twin=program.twin).load_method(method)


def run_file(program: Any, method: str, calls: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """A program's outputs for consecutive calls."""
    return _outputs(load(program, method), calls)


def _outputs(method: Method, calls: Sequence[Sequence[Any]]) -> list[list[Any]]:
    try:
        return [method.execute(list(leaves)) for leaves in calls]
    finally:
        method.close()
