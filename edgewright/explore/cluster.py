"""Workers: a Dask cluster on this machine, or one that runs elsewhere already."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from edgewright.errors import MissingError, UsageError

_CONFIG = {
    # Retries are ours, with their reasons.
    "distributed.scheduler.allowed-failures": 0,
    # A worker holds models and data that it needs: one that has too much is replaced, not paused for good.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.admin.large-graph-warning-threshold": "1TiB",
    "distributed.comm.timeouts.connect": "30s",
}
_TIMEOUT = 20  # seconds to find a scheduler


@dataclass(frozen=True)
class Cluster:
    """A client, and why workers of this machine were replaced, by process: from Dask's log."""

    client: Any
    deaths: dict[int, str]
    restarts: bool  # workers can be replaced, so that a row that takes too long can be stopped


@contextmanager
def connect(
    scheduler: str | None = None, workers: int | None = None, memory: int | None = None, *, processes: bool = True
) -> Iterator[Cluster]:
    """A cluster for the time of a sweep. ``scheduler``: the address of one that runs; otherwise ``workers`` processes
    are started here, with ``memory`` bytes each at most. ``processes=False``: threads, for tests."""
    try:
        import dask
        import distributed
    except ImportError as error:
        remedy = "pip install 'edgewright[explore]'"
        raise MissingError("sweeps", "need the package distributed", remedy=remedy) from error
    log = _DeathLog()
    options = {"host": "127.0.0.1", "env": {"EDGEWRIGHT_THREADS": "1"}} if processes else {}
    with dask.config.set({} if scheduler else _CONFIG):
        if scheduler:
            with _connect(distributed, scheduler) as client:
                yield Cluster(client, log.deaths, restarts=True)
            return
        with (
            tempfile.TemporaryDirectory(prefix="edgewright-sweep-", ignore_cleanup_errors=True) as folder,
            log.attached(),
            distributed.LocalCluster(
                n_workers=workers or os.cpu_count() or 1, threads_per_worker=1, processes=processes,
                memory_limit=memory or "auto", dashboard_address="127.0.0.1:0", local_directory=folder,
                silence_logs=logging.CRITICAL, **options,
            ) as cluster,
            distributed.Client(cluster) as client,
        ):  # fmt: skip
            yield Cluster(client, log.deaths, restarts=processes)


def _connect(distributed: Any, scheduler: str) -> Any:
    try:
        return distributed.Client(scheduler, timeout=_TIMEOUT)
    except (OSError, ValueError, TimeoutError) as error:
        remedy = "Start one with `dask scheduler`, and workers with `dask worker ADDRESS --nthreads 1`."
        raise UsageError("--scheduler", f"cannot be reached: {error}", value=scheduler, remedy=remedy) from error


class _DeathLog(logging.Handler):
    """Reads from Dask's log why a worker was replaced: only its nanny knows that it had too much memory."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.deaths: dict[int, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "memory" in text and "pid=" in text:
            digits = text.partition("pid=")[2].partition(")")[0]
            if digits.isdigit():
                self.deaths[int(digits)] = "it needed more memory than a worker may have"

    @contextmanager
    def attached(self) -> Iterator[None]:
        logger = logging.getLogger("distributed.nanny.memory")
        before = logger.level, logger.propagate
        logger.addHandler(self)
        logger.setLevel(logging.WARNING)
        logger.propagate = False
        try:
            yield
        finally:
            logger.removeHandler(self)
            logger.setLevel(before[0])
            logger.propagate = before[1]
