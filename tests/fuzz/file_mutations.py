"""Mutations of .pte, .ptd, .bpte, .etdp files and XNNPACK blobs: numbers set to extremes, neighbours and each other.

The files are walked with the description that the reader uses (``tests/support/mutate.py``), so a mutation hits a
field, a length, an offset or a vtable entry rather than any byte.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tests.support.mutate import Cell, blob_cells, cells, extremes

_MAX_CELLS = 4096  # a mutated file can claim any number


@lru_cache(maxsize=1024)
def known_cells(data: bytes) -> tuple[Cell, ...]:
    """As many cells as can still be found in a file that may already be broken."""
    found: list[Cell] = []
    with contextlib.suppress(struct.error, IndexError, ValueError, RecursionError):
        found.extend(itertools.islice(cells(data), _MAX_CELLS))
    return tuple(c for c in found if c.at >= 0 and c.at + struct.calcsize("<" + c.code) <= len(data))


def mutate_cells(data: bytes, found: Sequence[Cell], chance: random.Random) -> bytes:
    """One to three numbers of the file set to other values."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        cell = chance.choice(found)
        data = cell.put(data, _value(cell, data, found, chance))
    return data


def _value(cell: Cell, data: bytes, found: Sequence[Cell], chance: random.Random) -> object:
    pick = chance.random()
    if pick < 0.4 or cell.code in "fd":
        return chance.choice(extremes(cell, len(data)))
    if pick < 0.7:
        others = (chance.choice(found) for _ in range(8))
        return next((other for other in others if other.code == cell.code), cell).get(data)
    low, high = (-128, 127) if cell.code == "b" else (0, 255)
    near = cell.get(data) + chance.choice((-8, -4, -2, -1, 1, 2, 4, 8)) if pick < 0.85 else chance.randrange(24)
    return min(max(near, low), high)


def mutate_bytes(data: bytes, chance: random.Random) -> bytes:
    """Any bytes: some are changed, removed, repeated or cut off."""
    if not data:
        return chance.randbytes(chance.randrange(1, 64))
    at = chance.randrange(len(data))
    size = chance.randrange(1, 17)
    match chance.randrange(5):
        case 0:
            return data[:at] + data[at + size :]
        case 1:
            return data[:at] + data[at : at + size] + data[at:]
        case 2:
            return data[:at]
        case 3:
            return data[:at] + chance.randbytes(min(size, len(data) - at)) + data[at + size :]
        case _:
            return data[:at] + bytes((data[at] ^ (1 << chance.randrange(8)),)) + data[at + 1 :]


def mutate_file(data: bytes, chance: random.Random) -> bytes:
    """Numbers of the file, four times of five; else any bytes."""
    found = known_cells(data) if chance.random() < 0.8 else ()
    return mutate_cells(data, found, chance) if found else mutate_bytes(data, chance)


def mutate_blob(data: bytes, chance: random.Random) -> bytes:
    """Numbers of an XNNPACK blob: element types above all, extremes, neighbours, and values of other fields."""
    every = list(itertools.islice(blob_cells(data), _MAX_CELLS))
    found = [cell for cell in every if cell.kind in ("scalar", "element") or chance.random() < 0.02]
    types = [cell for cell in found if cell.path.endswith(("datatype", "type", "quant_params_type"))]
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        cell = chance.choice(types if types and chance.random() < 0.3 else found)
        data = cell.put(data, _blob_value(cell, data, found, chance))
    return data


def _blob_value(cell: Cell, data: bytes, found: list[Cell], chance: random.Random) -> Any:
    alike = [other for other in found if other.code == cell.code]
    pick = chance.random()
    if pick < 0.3 or cell.code in "fd":
        return chance.choice(extremes(cell, len(data)))
    if pick < 0.5:
        return chance.choice(alike).get(data)
    bits = 8 * struct.calcsize("<" + cell.code)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if cell.code.islower() else (0, (1 << bits) - 1)
    near = cell.get(data) + chance.choice((-8, -2, -1, 1, 2, 8)) if pick < 0.75 else chance.randrange(1, 20)
    return min(max(near, low), high)
