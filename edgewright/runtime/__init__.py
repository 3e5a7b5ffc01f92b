"""The runtime: loads ``.pte`` files and runs them on this machine, without torch."""

from __future__ import annotations

from edgewright._lazy import lazy_names

__all__ = [
    "Delegate",
    "DelegateBase",
    "DelegateBlob",
    "Limits",
    "LoadedProgram",
    "Method",
    "Profile",
    "Runtime",
    "register_delegate",
    "register_kernel",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Delegate": "edgewright.runtime.delegates",
        "DelegateBase": "edgewright.runtime.delegates",
        "DelegateBlob": "edgewright.runtime.delegates",
        "Limits": "edgewright.runtime.values",
        "LoadedProgram": "edgewright.runtime.program",
        "Method": "edgewright.runtime.method",
        "Profile": "edgewright.engine.profile",
        "Runtime": "edgewright.runtime.program",
        "register_delegate": "edgewright.runtime.delegates",
        "register_kernel": "edgewright.runtime.registry",
    },
)
