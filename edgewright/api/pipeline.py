"""The compile pipeline: an exported program is partitioned, lowered, planned into a program and checked.

``edgewright.compile`` and ``edgewright compile`` share it; they differ in how they choose partitioners and data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch.export import ExportedProgram

from edgewright.api.compile_report import Check
from edgewright.api.data import Call
from edgewright.api.self_check import check_program, rounding_of
from edgewright.errors import VendorError
from edgewright.program.config import EdgeCompileConfig, ExecutorchBackendConfig
from edgewright.program.edge import to_edge_transform_and_lower


@dataclass(frozen=True)
class Pipeline:
    """Compiles an exported model. ``partitioners``: creates the partitioners, in order of priority."""

    backends: Sequence[str]
    partitioners: Callable[[], Sequence[Any]]
    runtime: Any = "wheel"
    config: ExecutorchBackendConfig | None = None

    def lower(self, exported: ExportedProgram) -> Any:
        """The model partitioned among the backends (an ``EdgeProgramManager``)."""
        return self._lower(exported, list(self.partitioners()))

    def _lower(self, exported: ExportedProgram, partitioners: Sequence[Any]) -> Any:
        config = EdgeCompileConfig(runtime=self.runtime)
        return to_edge_transform_and_lower(exported, partitioner=partitioners, compile_config=config)

    def lower_for_inspection(self, exported: ExportedProgram) -> Any:
        """A finished program with intermediate results as outputs: compiled quickly, or as usual if that fails."""
        try:
            return self.finish(self._lower(exported, [p.for_inspection() for p in self.partitioners()]))
        except VendorError:  # what is compiled quickly may need more memory than the device has
            return self.finish(self.lower(exported))

    def finish(self, edge: Any) -> Any:
        """Emit a lowered model as a program (an ``ExecutorchProgramManager``): plan memory, store constants."""
        return edge.to_executorch(self.config)

    def check(self, name: str, program: Any, exported: ExportedProgram, cases: Sequence[Sequence[Call]]) -> Check:
        """Compare a program with the graph it was lowered from; raise ``MiscompileError`` if rounding does not explain
        the difference. To name the layer at fault, the graph is lowered again with more outputs."""
        if self.config is not None and self.config.passes:
            return Check(skipped="passes of yours may change what the program computes")
        sources, rounding = {"forward": exported}, rounding_of(self.backends)
        return check_program(program, sources, {"forward": cases}, self.lower_for_inspection, rounding, name)
