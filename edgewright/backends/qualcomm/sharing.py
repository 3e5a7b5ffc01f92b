"""Methods that share a context: their graphs are compiled together, and equal weights are kept once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgewright.backends.qualcomm.blob import write_blob
from edgewright.backends.qualcomm.target import QnnTarget
from edgewright.backends.qualcomm.worker import compile_together
from edgewright.ir.graph import Graph

if TYPE_CHECKING:
    from edgewright.frontend.delegate import LoweredBackendModule


class SharedContexts:
    """Groups that wait for those of other methods. The first of each method share a context, the second another."""

    def __init__(self) -> None:
        self._groups: dict[str, list[tuple[Graph, LoweredBackendModule]]] = {}

    def add(self, method: str, device: Graph, lowered: LoweredBackendModule) -> None:
        """Let a group's blob be made later."""
        self._groups.setdefault(method, []).append((device, lowered))

    def compile(self, target: QnnTarget) -> None:
        """Make the blobs: every method of a context has the same, and finds its graph by its name."""
        most = max((len(groups) for groups in self._groups.values()), default=0)
        for index in range(most):
            held = {method: groups[index] for method, groups in self._groups.items() if index < len(groups)}
            context = compile_together([(method, device) for method, (device, _) in held.items()], target)
            blob = write_blob(context)
            for _, lowered in held.values():
                lowered.processed_bytes = blob
