"""File formats: ``.pte`` programs, ``.ptd`` data, ``.bpte`` bundles and ETDump profiles."""

from __future__ import annotations

from edgewright._lazy import lazy_names

__all__ = ["Program", "read_program", "verify_program", "write_program"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Program": "edgewright.pte.schema",
        "read_program": "edgewright.pte.reader",
        "verify_program": "edgewright.pte.verify",
        "write_program": "edgewright.pte.writer",
    },
)
