"""Formatting of times, sizes, shares and other numbers: three significant digits, with a unit.

Data for programs (JSON, fields of reports) has plain numbers.
"""

from __future__ import annotations

import math
import re

_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)


def number(value: float) -> str:
    """Three significant digits, or all digits before the point.

    >>> number(1.6849), number(9.999), number(76781.3), number(0.05), number(0)
    ('1.68', '10.0', '76,781', '0.0500', '0')
    """
    if not value or not math.isfinite(value):
        return f"{value:.0f}"
    digits = math.floor(math.log10(abs(_round_to_3_digits(value)))) + 1
    return f"{value:,.{max(0, 3 - digits)}f}"


def duration(seconds: float) -> str:
    """
    >>> duration(1e-8), duration(0.00187651), duration(0.9999), duration(3600), duration(0)
    ('10.0 ns', '1.88 ms', '1.00 s', '3,600 s', '0 s')
    """
    if not seconds or not math.isfinite(seconds):
        return f"{number(seconds)} s"
    unit, name = next((u for u in _SECONDS if abs(_round_to_3_digits(seconds / u[0])) >= 1), _SECONDS[-1])
    return f"{number(seconds / unit)} {name}"


def size(count: float) -> str:
    """A number of bytes.

    >>> size(512), size(14_000_000), size(256 << 20), size((1 << 20) - 1)
    ('512 B', '13.4 MiB', '256 MiB', '1.00 MiB')
    """
    power = 0
    while round(count / 1024**power) >= 1024 and power < len(_BYTES) - 1:
        power += 1
    return f"{count:.0f} B" if not power else f"{number(count / 1024**power)} {_BYTES[power]}"


def parse_size(text: str) -> int:
    """A size such as ``512M`` in bytes; K, M, G and T are powers of 1024.

    >>> parse_size("512M")
    536870912
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a size: {text!r}; write 512M, 2G or a number of bytes")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


def share(part: float) -> str:
    """A fraction in percent. Only 1 is 100.0%, and only 0 is 0.0%.

    >>> share(0.5), share(1), share(0.99999), share(0.00001), share(0)
    ('50.0%', '100.0%', '>99.9%', '<0.1%', '0.0%')
    """
    if 0.9995 <= part < 1:
        return ">99.9%"
    return "<0.1%" if 0 < part < 0.0005 else f"{part:.1%}"


def _round_to_3_digits(value: float) -> float:
    return float(f"{value:.2e}")
