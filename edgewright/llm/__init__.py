"""Language models, without torch: ``edgewright.llm.load("smol.pte").chat([{"role": "user", "content": "Hi"}])``."""

from __future__ import annotations

from edgewright._lazy import lazy_names

_NAMES: dict[str, str] = {
    "Description": "edgewright.llm.description",
}
__all__ = [*_NAMES]

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
