"""Workers: a Dask cluster on this machine, or one that runs elsewhere already."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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
    """A client. ``deaths``: why workers of this machine were replaced, by process, from Dask's log. ``restarts``:
    workers can be replaced, so that a row that takes too long can be stopped. ``replenish``: starts workers for those
    that were killed while they started, which Dask does not; returns how many."""

    client: Any
    deaths: dict[int, str] = field(default_factory=dict)
    restarts: bool = True
    replenish: Callable[[], int] = lambda: 0


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
    if scheduler:
        with _connect(distributed, scheduler) as client:
            yield Cluster(client)
        return
    count, log = workers or os.cpu_count() or 1, _DeathLog()
    options = {"host": "127.0.0.1", "env": {"EDGEWRIGHT_THREADS": "1"}} if processes else {}
    with (
        dask.config.set(_CONFIG),
        tempfile.TemporaryDirectory(prefix="edgewright-sweep-", ignore_cleanup_errors=True) as folder,
        log.attached(),
        distributed.LocalCluster(
            n_workers=0, threads_per_worker=1, processes=processes, memory_limit=memory or "auto",
            dashboard_address="127.0.0.1:0", local_directory=folder, silence_logs=logging.CRITICAL, **options,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):  # fmt: skip
        cluster.scale(count)
        yield Cluster(client, log.deaths, processes, lambda: int(cluster.sync(_replace_failed, cluster, count)))


async def _replace_failed(cluster: Any, count: int) -> int:
    """Forget workers that did not start, and start as many. Runs in Dask's own thread."""
    failed = [name for name, worker in cluster.workers.items() if worker.status.name in ("failed", "closed")]
    for name in failed:
        cluster.workers.pop(name, None)
        cluster.worker_spec.pop(name, None)
    cluster.scale(count)
    return len(failed)


def _connect(distributed: Any, scheduler: str) -> Any:
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # a lost connection is an error of ours
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
