"""What is in this process's memory, as Linux counts it."""

from __future__ import annotations

from pathlib import Path

from edgewright.engine.jit.threads import address_of
from edgewright.ir.graph import Array


def resident_bytes(array: Array) -> int:
    """Bytes of the mappings that hold an array, of which it should be the greater part."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if "-" in name:
            start, end = (int(part, 16) for part in name.split("-"))
            inside = start < address_of(array) + array.nbytes and end > address_of(array)
        elif inside and name == "Rss:":
            total += int(rest.split()[0]) << 10
    return total
