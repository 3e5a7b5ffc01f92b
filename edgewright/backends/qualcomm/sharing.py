"""What contexts of one program share. Methods may share a context: their graphs are compiled together, and equal
weights are kept once. Contexts may share memory: the device gives them one buffer, as large as the largest needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgewright.backends.qualcomm.blob import write_blob
from edgewright.backends.qualcomm.options import KEY, read_options, write_options
from edgewright.backends.qualcomm.qnn.info import spill_of
from edgewright.backends.qualcomm.target import QnnTarget
from edgewright.backends.qualcomm.worker import compile_together
from edgewright.errors import UsageError
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

    def compile(self, target: QnnTarget, spills: SharedSpills) -> None:
        """Make the blobs: every method of a context has the same, and finds its graph by its name."""
        most = max((len(groups) for groups in self._groups.values()), default=0)
        for index in range(most):
            held = {method: groups[index] for method, groups in self._groups.items() if index < len(groups)}
            context = compile_together([(method, device) for method, (device, _) in held.items()], target)
            blob = write_blob(context)
            for _, lowered in held.values():
                lowered.processed_bytes = blob
                spills.add(target, lowered, context)


class SharedSpills:
    """Contexts that take turns in one buffer (``use_multi_contexts``): each must say what the largest needs."""

    def __init__(self) -> None:
        self._held: list[LoweredBackendModule] = []
        self._most = 0

    def add(self, target: QnnTarget, lowered: LoweredBackendModule, context: bytes) -> None:
        """Note what a context needs, and tell all that are known."""
        if not target.turns:
            return
        self._held.append(lowered)
        self._most = max(self._most, spill_of(context))
        if self._most >= 1 << 31:
            raise UsageError("use_multi_contexts", "must share at most 2 GiB", value=self._most, remedy="Leave it out.")
        for each in self._held:
            each.compile_specs = [
                (key, self._told(value) if key == KEY else value) for key, value in each.compile_specs
            ]

    def _told(self, value: bytes) -> bytes:
        options = read_options(value)
        assert options.backend_options is not None and options.backend_options.htp_options is not None
        options.backend_options.htp_options.max_sf_buf_size = self._most
        return write_options(options)
