"""TOSA alone, for debugging: what a program's groups look like before Vela, in integers or in floating point."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.export import ExportedProgram

from edgewright.backends.ethos_u.ops import BACKEND
from edgewright.backends.ethos_u.partitioner import to_tosa
from edgewright.backends.ethos_u.tosa_file import write_tosa
from edgewright.backends.table import FLOAT, STATIC, Backend, precision_of
from edgewright.frontend.delegate import LoweredBackendModule
from edgewright.ir.graph import Graph, Op, Value
from edgewright.partition.partitioner import Partitioner
from edgewright.program.lower import to_edge_transform_and_lower

aten = torch.ops.aten
# What TOSA has in floating point, and rows lower to.
_REAL = {
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "linear", "mm", "bmm", "add", "sub", "mul",
    "maximum", "minimum", "relu", "relu6", "hardtanh", "clamp", "batch_norm", "abs", "ceil", "cos", "erf", "exp",
    "floor", "log", "reciprocal", "rsqrt", "sigmoid", "sin", "tanh",
}  # fmt: skip
_ROWS = [
    replace(row, precisions=(FLOAT, STATIC) if row.op in _REAL else row.precisions) for row in BACKEND.rows.values()
]


class _TosaPartitioner(Partitioner):
    backend = Backend("tosa", _ROWS, BACKEND.rules, id="TOSA")
    backend_id = "TOSA"
    kept = (aten.relu6.default,)

    def __init__(self) -> None:
        super().__init__()
        self.files: list[bytes] = []

    def refusals(self, op: Op) -> list[str]:
        pair = [op.args[n] for n in ("self", "other") if "other" in op.args]
        if precision_of(op) == FLOAT and any(not isinstance(v, Value) or (v.constant and not v.shape) for v in pair):
            return ["operands of floating-point TOSA must be tensors"]
        return super().refusals(op)

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
