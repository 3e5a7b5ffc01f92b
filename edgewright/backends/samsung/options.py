"""Compile options stored with an ENN delegate: a flatbuffer (``EETO``) in ExecuTorch's format."""

from __future__ import annotations

from edgewright.errors import FormatError
from edgewright.formats.flatbuffer import BOOL, I8, I32, Buffer, slot, table
from edgewright.formats.flatbuffer_reader import read_root
from edgewright.formats.flatbuffer_writer import FlatWriter

KEY = "enn_compile_options"
IDENTIFIER = b"EETO"
_MIN_SIZE = 16  # root offset, identifier and an empty table


@table
class EnnOptions:
    """``simulate_only`` is an extension: a field far beyond ExecuTorch's, present only if set."""

    chipset: int = slot(0, I32, default=0)
    perf_mode: int = slot(1, I8, default=0, lo=0, hi=1)
    simulate_only: bool = slot(15, BOOL, default=False)


def write_options(options: EnnOptions) -> bytes:
    return FlatWriter().finish(options, IDENTIFIER)


def read_options(data: Buffer) -> EnnOptions:
    """Parse and verify options."""
    view = memoryview(data).cast("B")
    try:
        if len(view) < _MIN_SIZE:
            raise FormatError(f"must be at least {_MIN_SIZE} bytes", value=len(view))
        if bytes(view[4:8]) != IDENTIFIER:
            raise FormatError(f"must be identified as {IDENTIFIER.decode()}", value=bytes(view[4:8]))
        return read_root(EnnOptions, view)
    except FormatError as error:
        raise error.inside("ENN options") from None
