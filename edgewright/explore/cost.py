"""Time of programs: what a vendor's compiler or a formula says about the device, what the CPU beside it adds, or what
was measured here.

A search compares programs that leave different layers on the CPU, which no estimate of an NPU counts. So the CPU has a
formula of its own: ``CYCLES_PER_MAC`` is what ExecuTorch's kernels take (CifarNet in floating point: 12.3 million
multiply-accumulates in 36 ms on one core of 2.6 GHz), the clock is the backend's assumption.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edgewright.backends.registry import find_backend
from edgewright.explore.table import MEASURED

CYCLES_PER_MAC = 7.6
CYCLES_PER_BYTE = 1.0  # of the results of operators without multiply-accumulates: conversions, activations, pooling
_DEVICE_MACS, _DEVICE_BYTES = 16e9, 8e9  # a second, where nothing is estimated: only ratios matter
_FLOAT_FACTOR = 4.0  # of the time of an int8 multiply-accumulate


def cpu_ms(macs: float, size: float, backend: str) -> float:
    """Milliseconds of operators that the CPU beside a device computes.

    >>> cpu_ms(1_000_000, 0, "ethos_u")
    19.0
    """
    return 1e3 * (macs * CYCLES_PER_MAC + size * CYCLES_PER_BYTE) / find_backend(backend).cpu_hz


def time_of(figures: Mapping[str, Any]) -> float | None:
    """Milliseconds of a program: measured where this machine is the device, else estimated: of a range the most, as a
    limit must hold for all of it. None if parts of the program have no estimate."""
    if figures.get("host_ms") is not None:
        return float(figures["host_ms"])
    bounds, estimated = figures.get("estimated_range_ms"), figures.get("estimated_ms")
    if bounds is None and estimated is None and figures["taken"]:
        return None
    device = bounds[1] if bounds is not None else estimated or 0.0
    return float(device) + cpu_ms(figures["cpu_macs"], figures["cpu_bytes"], figures["backend"])


def basis_of(figures: Iterable[Mapping[str, Any]]) -> str:
    """Whose word the times of a target's programs are."""
    for each in figures:
        if each.get("host_ms") is not None:
            return MEASURED.replace("sweep", "search")
        if each.get("estimate_basis"):
            most = "at most " if each.get("estimated_range_ms") is not None else ""
            clock = find_backend(each["backend"]).cpu_hz / 1e6
            return (
                f"{most}by {each['estimate_basis']}; the CPU by Edgewright's formula"
                f" ({CYCLES_PER_MAC:g} cycles a multiply-accumulate at {clock:,.0f} MHz)"
            )
    return "the CPU by Edgewright's formula"


def operator_times(method: Mapping[str, Any], backend: str, measured: bool) -> dict[tuple[str, str], float]:
    """Milliseconds by module and node, of every operator of a method's report. A layer of an estimate is named after
    its module, or after the node if it is in none. ``measured``: this machine is the device, of which only the ratios
    of times are needed."""
    times: dict[tuple[str, str], float] = {}
    estimates = method.get("estimates", ())
    for estimate in estimates:
        cycles = sum(layer["cycles"] for layer in estimate["layers"]) or 1
        total = 1e3 / estimate["inferences_per_second"] if estimate.get("inferences_per_second") else 0.0
        for layer in estimate["layers"]:
            key = (layer["name"], layer["name"])
            times[key] = times.get(key, 0.0) + total * layer["cycles"] / cycles
    for operator in method["operators"]:
        key = operator["module"] or operator["node"], operator["node"]
        if not operator["backend"] and not measured:
            times[key] = times.get(key, 0.0) + cpu_ms(operator["macs"], operator["bytes"], backend)
        elif not estimates:
            factor = _FLOAT_FACTOR if operator["precision"] == "fp32" else 1.0
            times[key] = 1e3 * (factor * operator["macs"] / _DEVICE_MACS + operator["bytes"] / _DEVICE_BYTES)
    return times
