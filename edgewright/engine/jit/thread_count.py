"""How many threads to use: physical cores this process may run on, or what the user says."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from edgewright.errors import UsageError

MAX_THREADS = 256


def thread_count(asked: int | None = None) -> int:
    """``asked``, or ``EDGEWRIGHT_THREADS``, or the number of physical cores this process may use."""
    if asked is not None:
        return _checked("threads", asked)
    given = os.environ.get("EDGEWRIGHT_THREADS", "")
    if not given:
        return physical_cores()
    return _checked("EDGEWRIGHT_THREADS", int(given) if given.isascii() and given.isdigit() else given)


def _checked(what: str, count: object) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_THREADS:
        raise UsageError(what, f"must be a whole number from 1 to {MAX_THREADS}", value=count)
    return count


def physical_cores() -> int:
    """Cores this process may run on, hyperthreads of one counted once, within what its container grants."""
    logical = allowed_cores()
    if sys.platform == "linux":
        cores = {_siblings(cpu) for cpu in logical}
        return max(1, min(len(cores), _granted(), MAX_THREADS))
    return max(1, min(len(logical), MAX_THREADS))


def allowed_cores() -> set[int]:
    if sys.platform == "linux":
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _siblings(cpu: int) -> str:
    """The hyperthreads of a core, itself among them: the same text for each of them."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _granted() -> int:
    """Whole cores the control group lets us use, rounded up; plenty if it does not say."""
    for folder in _control_groups():
        try:
            quota, period = (folder / "cpu.max").read_text().split()
            if quota != "max":
                return max(1, -(-int(quota) // int(period)))
        except (OSError, ValueError):
            continue
    try:
        quota = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").read_text()
        period = Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us").read_text()
        return max(1, -(-int(quota) // int(period))) if int(quota) > 0 else MAX_THREADS
    except (OSError, ValueError, ZeroDivisionError):
        return MAX_THREADS


def _control_groups() -> list[Path]:
    """This process's group and those around it, innermost first."""
    root = Path("/sys/fs/cgroup")
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return [root]
    own = next((line.partition("::")[2] for line in lines if line.startswith("0::")), "/")
    inner = root / own.lstrip("/")
    return [inner, *(p for p in inner.parents if p == root or root in p.parents)]
