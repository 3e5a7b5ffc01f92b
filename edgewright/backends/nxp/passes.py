"""Names of ExecuTorch's passes for Neutron, for scripts that give them: lowering does all of it here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from edgewright.quantize.io import Parameters


class NeutronEdgePassManager:
    """A pass that runs other passes. Alone it changes nothing: rows and layouts need no clusters to be moved."""

    def __init__(self, passes: Sequence[Any] | None = None) -> None:
        self.passes = list(passes or ())

    def __call__(self, graph_module: Any) -> Any:
        """The module after all passes, each of which may give a result with a ``graph_module``, or nothing."""
        for change in self.passes:
            done = change(graph_module)
            graph_module = graph_module if done is None else getattr(done, "graph_module", done)
        return graph_module


def remove_io_quant_ops(exported: ExportedProgram) -> tuple[ExportedProgram, dict[str, Parameters]]:
    """A quantized program that takes and gives 8-bit integers, and how they are to be read."""
    from edgewright.quantize.io import integer_io

    return integer_io(exported)
