"""Arithmetic on numbers that come from a file. Nothing else may add or multiply them."""

from __future__ import annotations

from collections.abc import Iterable

from edgewright.errors import FormatError
from edgewright.ir.dtypes import ITEMSIZE

MAX_BYTES = (1 << 63) - 1


def add(*parts: int) -> int:
    """The sum, which must be a size a 64-bit device can hold."""
    total = sum(parts)
    if not 0 <= total <= MAX_BYTES:
        raise FormatError("the sum of sizes must fit 63 bits", value=" + ".join(map(str, parts)))
    return total


def product(factors: Iterable[int]) -> int:
    """The product of sizes, which must be a size a 64-bit device can hold."""
    total, empty = 1, False
    for factor in factors:
        if factor < 0:
            raise FormatError("a size must not be negative", value=factor)
        empty = empty or factor == 0
        total *= factor or 1
        if total > MAX_BYTES:
            raise FormatError("the product of sizes must fit 63 bits", value=total)
    return 0 if empty else total


def tensor_bytes(scalar_type: int, sizes: Iterable[int]) -> int:
    """The bytes of a dense tensor.

    >>> tensor_bytes(6, (2, 3))
    24
    """
    if scalar_type not in ITEMSIZE:
        raise FormatError("must be a known scalar type", where="scalar_type", value=scalar_type)
    return product((*sizes, ITEMSIZE[scalar_type]))


def align(size: int, alignment: int) -> int:
    """``size`` rounded up to a multiple of ``alignment``.

    >>> align(130, 128)
    256
    """
    return add(size, -size % alignment)


def check_range(start: int, length: int, end: int, subject: str) -> None:
    """Raise unless ``length`` bytes from ``start`` end at or before ``end``."""
    if start < 0 or length < 0 or add(start, length) > end:
        raise FormatError(f"{subject} must lie within its {end} bytes", value=f"{length} bytes at {start}")
