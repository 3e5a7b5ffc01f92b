"""The default thread count: physical cores available to this process, unless the user sets it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from edgewright.errors import UsageError

MAX_THREADS = 256


def thread_count(requested: int | None = None) -> int:
    """``requested``, or ``EDGEWRIGHT_THREADS``, or the number of physical cores this process may use."""
    if requested is not None:
        return _check_count("threads", requested)
    setting = os.environ.get("EDGEWRIGHT_THREADS", "")
    if not setting:
        return physical_cores()
    return _check_count("EDGEWRIGHT_THREADS", int(setting) if setting.isascii() and setting.isdigit() else setting)


def _check_count(subject: str, count: object) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_THREADS:
        raise UsageError(subject, f"must be a whole number from 1 to {MAX_THREADS}", value=count)
    return count


def physical_cores() -> int:
    """Physical cores in the affinity mask, limited by the cgroup CPU quota."""
    logical = allowed_cores()
    if sys.platform == "linux":
        cores = {_siblings(cpu) for cpu in logical}
        return max(1, min(len(cores), _cpu_quota(), MAX_THREADS))
    return max(1, min(len(logical), MAX_THREADS))


def allowed_cores() -> set[int]:
    if sys.platform == "linux":
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _siblings(cpu: int) -> str:
    """The SMT siblings of a CPU, as text that is equal for all of them."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _cpu_quota() -> int:
    """The cgroup CPU quota in cores, rounded up; MAX_THREADS if there is none."""
    for folder in _cgroups():
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


def _cgroups() -> list[Path]:
    """This process's cgroup and its ancestors, innermost first."""
    root = Path("/sys/fs/cgroup")
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return [root]
    path = next((line.partition("::")[2] for line in lines if line.startswith("0::")), "/")
    inner = root / path.lstrip("/")
    return [inner, *(p for p in inner.parents if p == root or root in p.parents)]
