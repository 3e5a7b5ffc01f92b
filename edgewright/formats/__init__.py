"""File formats: ``.pte`` programs, ``.ptd`` data, ``.bpte`` bundles and ETDump profiles."""

from __future__ import annotations

from edgewright._lazy import lazy_names

__all__ = ["Program", "read_program", "verify_program", "write_program"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Program": "edgewright.formats.schema",
        "read_program": "edgewright.formats.pte_reader",
        "verify_program": "edgewright.formats.verify_program",
        "write_program": "edgewright.formats.pte_writer",
    },
)
