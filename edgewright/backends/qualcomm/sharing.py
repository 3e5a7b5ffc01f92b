"""Sharing between the contexts of one program.

Weight sharing: partitions of several methods are compiled as graphs of one context, which stores equal weights once.
The n-th partition of every method goes to the n-th context; each delegate contains the same blob and selects its graph
by the method's name. Compilation is deferred until all methods are lowered. Spill sharing (``use_multi_contexts``):
contexts that never run at the same time use one spill/fill buffer on the device. Every context must declare the size of
the largest, so each new one updates the compile specs of all earlier ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from edgewright.backends.qualcomm.blob import write_blob
from edgewright.backends.qualcomm.options import KEY, read_options, write_options
from edgewright.backends.qualcomm.qnn.info import spill_bytes
from edgewright.backends.qualcomm.target import QnnTarget
from edgewright.backends.qualcomm.worker import compile_graphs_in_subprocess
from edgewright.errors import UsageError
from edgewright.ir.graph import Graph

if TYPE_CHECKING:
    from edgewright.frontend.delegate import LoweredBackendModule


class SharedContexts:
    """Partitions to be compiled together with those of other methods, by index."""

    def __init__(self) -> None:
        self._groups: dict[str, list[tuple[Graph, LoweredBackendModule]]] = {}

    def add(self, method: str, device: Graph, lowered: LoweredBackendModule) -> None:
        """Defer the compilation of a partition."""
        self._groups.setdefault(method, []).append((device, lowered))

    def compile(self, target: QnnTarget, spills: SharedSpills) -> None:
        """Compile all contexts and set the blobs of their delegates."""
        max_groups = max((len(groups) for groups in self._groups.values()), default=0)
        for index in range(max_groups):
            graphs = {method: groups[index] for method, groups in self._groups.items() if index < len(groups)}
            context = compile_graphs_in_subprocess([(method, device) for method, (device, _) in graphs.items()], target)
            blob = write_blob(context)
            for _, lowered in graphs.values():
                lowered.processed_bytes = blob
                spills.add(target, lowered, context)


class HasCompileSpecs(Protocol):
    """A delegate whose compile specs can still be changed."""

    compile_specs: list[tuple[str, bytes]]


class SharedSpills:
    """Contexts that share one spill buffer (``use_multi_contexts``)."""

    def __init__(self) -> None:
        self._contexts: list[HasCompileSpecs] = []
        self._spill_size = 0

    def add(self, target: QnnTarget, lowered: HasCompileSpecs, context: bytes) -> None:
        """Add a context, and update the declared buffer size of all."""
        if not target.shares_spill:
            return
        self._contexts.append(lowered)
        self._spill_size = max(self._spill_size, spill_bytes(context))
        if self._spill_size >= 1 << 31:
            raise UsageError(
                "use_multi_contexts", "must share at most 2 GiB", value=self._spill_size, remedy="Leave it out."
            )
        for shared_context in self._contexts:
            shared_context.compile_specs = [
                (key, self._with_spill_size(value) if key == KEY else value)
                for key, value in shared_context.compile_specs
            ]

    def _with_spill_size(self, value: bytes) -> bytes:
        options = read_options(value)
        assert options.backend_options is not None and options.backend_options.htp_options is not None
        options.backend_options.htp_options.max_sf_buf_size = self._spill_size
        return write_options(options)
