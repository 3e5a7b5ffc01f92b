"""Edgewright takes a PyTorch model to the devices people ship on, and runs every target on your machine first."""

from __future__ import annotations

from edgewright._lazy import lazy_names
from edgewright._version import VERSION

_NAMES = {
    "EdgeCompileConfig": "edgewright.program.config",
    "EdgewrightError": "edgewright.errors",
    "ExecutorchBackendConfig": "edgewright.program.config",
    "MemoryPlanningPass": "edgewright.program.memory",
    "Runtime": "edgewright.runtime.program",
    "compile": "edgewright.api.compile",
    "compress": "edgewright.api.compress",
    "export": "edgewright.frontend.export",
    "llm": "edgewright.llm",
    "read_program": "edgewright.formats.pte_reader",
    "search": "edgewright.explore.precision_search",
    "to_edge": "edgewright.program.edge",
    "to_edge_transform_and_lower": "edgewright.program.edge",
    "write_program": "edgewright.formats.pte_writer",
}
__all__ = ["__version__", *_NAMES]

__version__ = VERSION

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
