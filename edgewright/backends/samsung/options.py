"""The options that travel with an ENN delegate, as stock's software reads them: a FlatBuffer, ``EETO``."""

from __future__ import annotations

from edgewright.errors import FormatError
from edgewright.formats.flatbuffer import BOOL, I8, I32, Buffer, slot, table
from edgewright.formats.flatbuffer_reader import read_root
from edgewright.formats.flatbuffer_writer import FlatWriter

KEY = "enn_compile_options"
IDENTIFIER = b"EETO"
_SMALLEST = 16  # bytes that hold a root, the identifier and an empty table


@table
class EnnOptions:
    """``simulate_only`` is ours: a field far behind stock's, which is only there when it is set."""

    chipset: int = slot(0, I32, default=0)
    perf_mode: int = slot(1, I8, default=0, lo=0, hi=1)
    simulate_only: bool = slot(15, BOOL, default=False)


def write_options(options: EnnOptions) -> bytes:
    return FlatWriter().finish(options, IDENTIFIER)


def read_options(data: Buffer) -> EnnOptions:
    """Read and check options."""
    view = memoryview(data).cast("B")
    try:
        if len(view) < _SMALLEST:
            raise FormatError(f"must be at least {_SMALLEST} bytes", value=len(view))
        if bytes(view[4:8]) != IDENTIFIER:
            raise FormatError(f"must be identified as {IDENTIFIER.decode()}", value=bytes(view[4:8]))
        return read_root(EnnOptions, view)
    except FormatError as error:
        raise error.inside("ENN options") from None
