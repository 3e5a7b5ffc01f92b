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
        config = EdgeCompileConfig(runtime=self.runtime)
        return to_edge_transform_and_lower(exported, partitioner=list(self.partitioners()), compile_config=config)

    def finish(self, edge: Any) -> Any:
        """Emit a lowered model as a program (an ``ExecutorchProgramManager``): plan memory, store constants."""
        return edge.to_executorch(self.config)

    def check(self, name: str, program: Any, exported: ExportedProgram, cases: Sequence[Sequence[Call]]) -> Check:
        """Compare a program with the graph it was lowered from; raise ``MiscompileError`` if rounding does not explain
        the difference. To name the layer at fault, the graph is lowered again with more outputs."""
        if self.config is not None and self.config.passes:
            return Check(skipped="passes of yours may change what the program computes")
        sources, rounding = {"forward": exported}, rounding_of(self.backends)
        return check_program(
            program, sources, {"forward": cases}, lambda changed: self.finish(self.lower(changed)), rounding, name
        )
