"""A method under check, and a program run on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.export import ExportedProgram

from edgewright.api.graph_interpreter import Reference, RoundingNoise
from edgewright.api.quantized_graph import has_steps
from edgewright.backends.table import Rounding
from edgewright.runtime.method import Method
from edgewright.runtime.program import Runtime

_SEEDS = (1, 2, 3, 4)  # of few outputs, one run may happen to have hardly any rounding errors
_LARGE = 1 << 28  # bytes of a program that need not be in memory twice
Lower = Callable[[ExportedProgram], Any]


@dataclass(frozen=True)
class Subject:
    """A method under check. ``lower`` makes a program of a changed graph, as the method's was made."""

    name: str
    method: str
    reference: Reference
    rounding: Rounding
    lower: Lower

    @property
    def slack(self) -> float:
        """Errors at random break half of all ties the other way; a device may break every one so."""
        return 2.0 if has_steps(self.reference.graph) else 1.0

    def noises(self) -> list[RoundingNoise]:
        """Several draws of rounding errors."""
        return [RoundingNoise(self.reference.exported, self.rounding, seed) for seed in _SEEDS]


def load(program: Any, method: str = "forward") -> Method:
    """A method of a finished program, ready to run here, with state of its own."""
    data = list(program.data_files.values())
    return Runtime.get().load_program(program.buffer, data or None, twin=program.twin).load_method(method)


def run_file(program: Any, method: str, calls: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """What a program gives for calls that follow each other. Large ones are mapped from a file, as on a device."""
    stored = sum(segment.size for segment in program.executorch_program.segments)
    if stored < _LARGE:
        return _outputs(load(program, method), calls)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "m.pte"
        program.save(path)
        data = program.write_tensor_data_to_file(folder)
        loaded = Runtime.get().load_program(path, data or None, twin=program.twin).load_method(method)
        return _outputs(loaded, calls)


def _outputs(method: Method, calls: Sequence[Sequence[Any]]) -> list[list[Any]]:
    try:
        return [method.execute(list(leaves)) for leaves in calls]
    finally:
        method.close()
