"""One-line summaries of vendor compilers' performance estimates, always labeled as estimates with their source.

Estimates are plain data: strings ``basis``, ``target``, ``system`` and ``memory_mode``; numbers ``cycles``,
``inferences_per_second``, ``mac_utilisation``; ``memory`` and ``weights`` in bytes; ``layers`` in reports. ``seconds``:
the least and the most of an inference, where the cycles are a lower bound. They are read back from files, so nothing is
trusted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from edgewright.units import duration, number, share, size

MEMORIES = {
    "sram": "SRAM",
    "dram": "DRAM",
    "on_chip_flash": "on-chip flash",
    "off_chip_flash": "off-chip flash",
}


def describe(estimate: Any) -> str:
    """An estimate in one line, or an empty string if it is malformed.

    >>> describe({"basis": "Vela's estimate", "target": "ethos-u55-128", "cycles": 1600, "memory": {"sram": 1280}})
    "Vela's estimate for ethos-u55-128: 1,600 cycles, SRAM 1.25 KiB"
    >>> describe({"basis": "Edgewright's analytic bound", "target": "SM8550", "cycles": 165, "seconds": [1.1e-7, 2e-4]})
    "Edgewright's analytic bound for SM8550: at least 165 cycles, 110 ns to 200 µs per inference"
    """
    if not isinstance(estimate, Mapping):
        return ""
    basis, target = (estimate.get(key) for key in ("basis", "target"))
    cycles = _number(estimate.get("cycles"))
    if not isinstance(basis, str) or not isinstance(target, str) or cycles is None:
        return ""
    details = [word[:60] for key in ("system", "memory_mode") if isinstance(word := estimate.get(key), str)]
    system = f" ({', '.join(details)})" if details else ""
    bounds = time_range(estimate)
    at_least = "" if bounds is None else "at least "
    parts = [f"{basis[:60]} for {target[:60]}{system}: {at_least}{cycles:,.0f} cycles"]
    speed, used = (_number(estimate.get(key)) for key in ("inferences_per_second", "mac_utilisation"))
    if bounds is not None:
        parts += [f"{duration(bounds[0])} to {duration(bounds[1])} per inference"]
    else:
        parts += [] if speed is None else [f"{number(speed)} inferences/s"]
        parts += [] if used is None else [f"{share(used)} of MACs used"]
    memory = estimate.get("memory")
    for key, name in MEMORIES.items():
        count = _number(memory.get(key)) if isinstance(memory, Mapping) else None
        parts += [f"{name} {size(count)}"] if count else []
    return ", ".join([*parts, *_weights(estimate.get("weights"))])


def time_range(estimate: Mapping[str, Any]) -> tuple[float, float] | None:
    """The least and the most seconds of an inference, if the estimate is a lower bound; else None."""
    bounds = estimate.get("seconds")
    numbers = [_number(n) for n in bounds] if isinstance(bounds, list) and len(bounds) == 2 else [None]
    low, high = numbers[0], numbers[-1]
    return None if low is None or high is None else (low, high)


def seconds_per_cycle(estimates: Any) -> float | None:
    """The length of a cycle by the estimates of a file; None if they have none, or differ.

    >>> f"{seconds_per_cycle([{'cycles': 102014, 'inferences_per_second': 4901.288}]):.2e}"
    '2.00e-09'
    """
    listed = [e for e in estimates if isinstance(e, Mapping)] if isinstance(estimates, list) else []
    pairs = [(_number(e.get("cycles")), _number(e.get("inferences_per_second"))) for e in listed if not time_range(e)]
    clocks = [cycles * speed for cycles, speed in pairs if cycles is not None and speed is not None]
    lengths = [1 / clock for clock in clocks if clock >= 1]  # files are not trusted: tiny ones are no clocks
    if not lengths or len(lengths) < len(listed) or max(lengths) > 1.001 * min(lengths):  # they are rounded
        return None
    return lengths[0]


def npu_memory(estimates: Iterable[Mapping[str, Any]]) -> int:
    """Bytes of memory that delegates need beside a method's planned memory: those of the largest, as they run one after
    the other. ``scratch`` where the vendor's compiler reports it, else the estimated fast memory.

    >>> npu_memory([{"scratch": 4096, "memory": {"sram": 5000}}, {"memory": {"sram": 2048}}, {}])
    4096
    """
    needed = [e.get("scratch", e["memory"].get("sram", 0) if isinstance(e.get("memory"), Mapping) else 0)
              for e in estimates]  # fmt: skip
    return max((int(n) for n in map(_number, needed) if n is not None), default=0)


def _weights(weights: Any) -> list[str]:
    if not isinstance(weights, Mapping):
        return []
    original, encoded = (_number(weights.get(key)) for key in ("original", "encoded"))
    return [f"weights {size(original)} as {size(encoded)}"] if original and encoded else []


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18:
        return None
    return value if math.isfinite(value) else None
