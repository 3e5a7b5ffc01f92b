"""TOSA alone, for debugging: what a program's groups look like before Vela, in integers or in floating point."""

from __future__ import annotations

from dataclasses import replace

from torch.export import ExportedProgram

from edgewright.backends.ethos_u.ops import BACKEND
from edgewright.backends.ethos_u.partitioner import KEPT, to_tosa
from edgewright.backends.ethos_u.tosa_file import write_tosa
from edgewright.backends.table import FLOAT, STATIC, Backend
from edgewright.frontend.delegate import LoweredBackendModule
from edgewright.ir.graph import Graph
from edgewright.partition.partitioner import Partitioner
from edgewright.program.lower import to_edge_transform_and_lower

_ROWS = [replace(row, precisions=(FLOAT, STATIC)) for row in BACKEND.rows.values()]


class _TosaPartitioner(Partitioner):
    backend = Backend("tosa", _ROWS, BACKEND.rules, id="TOSA")
    backend_id = "TOSA"
    kept = KEPT

    def __init__(self) -> None:
        super().__init__()
        self.files: list[bytes] = []

    def lower(self, group: Graph) -> LoweredBackendModule:
        self.files.append(write_tosa(to_tosa(group, None)))
        return LoweredBackendModule(self.backend_id, self.files[-1], {}, {})


def export_tosa(exported: ExportedProgram) -> list[bytes]:
    """The groups of a program that TOSA can express, each as a TOSA 1.0 file, in the order they run.

    A program that is not quantized becomes floating-point TOSA, which Arm's reference model runs and Ethos-U does not.
    """
    partitioner = _TosaPartitioner()
    to_edge_transform_and_lower(exported, partitioner=[partitioner])
    return partitioner.files
