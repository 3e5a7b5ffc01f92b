"""Runs unmodified ExecuTorch scripts: imports of ``executorch`` resolve to Edgewright's equivalents."""

from __future__ import annotations

from edgewright._lazy import lazy_names

_NAMES = {
    "installed": "edgewright.compat.finder",
    "migrate": "edgewright.compat.migrate",
    "run": "edgewright.compat.run",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
