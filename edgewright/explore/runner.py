"""Runs the rows of a sweep on a cluster: as many at once as it has workers, each durable when it is finished.

Rows are independent. A worker that dies takes its row with it, which is repeated, up to a limit; an error is the result
of its row. Only this process writes to the store.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from typing import Any

from edgewright.errors import ExecutionError
from edgewright.explore import tasks
from edgewright.explore.cluster import Cluster
from edgewright.explore.rows import DONE, FAILED, STOPPED, Outcome, Row
from edgewright.explore.store import Store, figures_of
from edgewright.explore.sweep_file import Limits

log = logging.getLogger("edgewright.explore")
_POLL = 0.2  # seconds between looks at time limits and new workers
_MAX_UNSTARTED = 20  # deaths of workers, without a finished row between them, before they started a row
_REPLENISH = 2.0  # seconds between looks for workers that did not start
_QUEUED = 1  # rows beyond the number of workers, so that none waits for this process

Finished = Callable[[Row, Outcome], None]


@dataclass
class _Attempt:
    """A row on the cluster. ``tasks``: where each of its tasks started (the worker's address and process)."""

    row: Row
    number: int
    reasons: list[str]
    futures: list[Any] = field(default_factory=list)
    tasks: dict[str, tuple[str, int]] = field(default_factory=dict)
    started: float | None = None


class Runner:
    """Runs rows; ``finished`` is called after each outcome was stored."""

    def __init__(
        self, cluster: Cluster, store: Store, limits: Limits, finished: Finished, imports: Sequence[str] = (),
        metric: bytes = b"",
    ) -> None:  # fmt: skip
        self._cluster, self._client, self._store, self._limits = cluster, cluster.client, store, limits
        self._finished, self._imports, self._metric = finished, tuple(imports), metric
        self._topic = f"edgewright-sweep-{uuid.uuid4().hex}"
        self._inputs: dict[str, Any] = {}
        self._active: dict[Any, _Attempt] = {}
        self._waiting: deque[_Attempt] = deque()
        self._starts: deque[dict[str, Any]] = deque()
        self._unstarted = 0
        self._replenished = time.monotonic()
        self._lock = threading.Lock()

    def run(self, rows: Sequence[Row]) -> None:
        """Run rows until each has an outcome."""
        self._waiting.extend(_Attempt(row, 1, []) for row in rows)
        self._client.subscribe_topic(self._topic, self._on_start)
        try:
            while self._waiting or self._active:
                self._submit()
                self._collect()
                self._stop_overdue()
                self._replenish()
        except (CancelledError, OSError) as error:  # OSError: Dask's own, of a closed connection
            require_scheduler(self._client, self._store, error)
            raise
        finally:
            if self._client.status == "running":
                self._client.unsubscribe_topic(self._topic)
                futures = [future for attempt in self._active.values() for future in attempt.futures]
                self._client.cancel(futures, force=True)

    # ------------------------------------------------------------------------------------------------------- submit

    def _submit(self) -> None:
        slots = sum(self._client.nthreads().values())
        while self._waiting and len(self._active) < slots + _QUEUED:
            attempt = self._waiting.popleft()
            self._active[self._futures(attempt)] = attempt

    def _futures(self, attempt: _Attempt) -> Any:
        """Submit the tasks of a row; returns the future of its result."""
        row = attempt.row
        work = tasks.Work(row, self._topic, self._imports, self._metric)
        model, data = self.input(row.program), self.input(row.data)

        def submit(name: str, function: Callable[..., Any], *args: Any) -> Any:
            key = f"{name}-{row.model}-{row.target}-{row.precision}-{row.key[:16]}-{uuid.uuid4().hex[:8]}"
            attempt.futures.append(self._client.submit(function, *args, key=key, pure=False))
            return attempt.futures[-1]

        observed, evaluated = row.chunks
        quantizes = any((row.recipe["quantize"], row.recipe["modules"], row.recipe["operators"]))
        statistics = [
            submit("observe", tasks.observe_chunk, work, model, data, number)
            for number in range(observed if quantizes and observed > 1 else 0)
        ]
        result = submit("compile", tasks.compile_row, work, model, data, statistics)
        if evaluated == 1:
            return result
        meters = [submit("evaluate", tasks.evaluate_chunk, work, result, model, data, n) for n in range(1, evaluated)]
        return submit("finish", tasks.finish_row, work, result, meters)

    def input(self, digest: str) -> Any:
        """A model or data on the cluster: it travels to each worker once, and Dask makes it again if all that had it
        died."""
        future = self._inputs.get(digest)
        if future is None or future.status not in ("pending", "finished"):
            contents = self._store.get(self._store.meta(f"input:{digest}"))
            key = f"input-{digest[:16]}-{uuid.uuid4().hex[:8]}"
            self._inputs[digest] = future = self._client.submit(_identity, contents, key=key, pure=False)
        return future

    # ------------------------------------------------------------------------------------------------------ collect

    def _collect(self) -> None:
        import distributed

        try:
            done = distributed.wait(list(self._active), timeout=_POLL, return_when="FIRST_COMPLETED").done
        except distributed.TimeoutError:
            return
        except CancelledError:
            done = {future for future in self._active if future.cancelled()}
        require_scheduler(self._client, self._store)
        self._note_starts()
        for future in done:
            attempt = self._active.pop(future)
            error = None if future.status == "finished" else error_of(future, timeout=10)
            self._settle(attempt, error if error is not None else future.result())

    def _settle(self, attempt: _Attempt, result: Any) -> None:
        """Store the outcome of an attempt, or repeat it."""
        if isinstance(result, tasks.Compiled):
            self._unstarted = 0
            files = {name: self._store.put(contents) for name, contents in result.files.items()}
            figures = {**figures_of(result.report), "check": result.report["check"]}
            self._store_outcome(attempt, Outcome(DONE, figures, files, seconds=round(result.seconds, 3)))
        elif isinstance(result, tasks.Failure):
            self._unstarted = 0
            if result.passing:
                self._repeat(attempt, result.error, started=True)
            else:
                self._store_outcome(attempt, Outcome(FAILED, error=result.error, traceback=result.traceback))
        else:
            self._repeat(attempt, self._death(attempt, result), started=bool(attempt.tasks))

    def _death(self, attempt: _Attempt, error: BaseException) -> str:
        """Why an attempt has no result."""
        if type(error).__name__ not in ("KilledWorker", "FutureCancelledError", "CancelledError"):
            return f"{type(error).__name__}: {error}"
        reasons = [self._cluster.deaths[pid] for _, pid in attempt.tasks.values() if pid in self._cluster.deaths]
        return reasons[0] if reasons else "its worker died"

    def _repeat(self, attempt: _Attempt, reason: str, *, started: bool) -> None:
        if not started:  # it waited for a worker that died: not its fault
            self._count_unstarted(1, reason)
            self._waiting.appendleft(_Attempt(attempt.row, attempt.number, attempt.reasons))
            return
        reasons = [*attempt.reasons, reason]
        if attempt.number > self._limits.retries:
            self._store_outcome(attempt, Outcome(STOPPED, error=f"gave up after {attempt.number} attempts: {reason}"))
            return
        log.info("%s: %s; repeated", attempt.row, reason)
        self._waiting.appendleft(_Attempt(attempt.row, attempt.number + 1, reasons))

    def _replenish(self) -> None:
        if time.monotonic() - self._replenished > _REPLENISH:
            self._replenished = time.monotonic()
            self._count_unstarted(self._cluster.replenish(), "workers that do not start")

    def _count_unstarted(self, count: int, reason: str) -> None:
        self._unstarted += count
        if self._unstarted > _MAX_UNSTARTED:
            remedy = "Give them more memory ([limits] memory), or look into the log of a worker."
            raise ExecutionError("workers", "must live long enough to start a row", value=reason, remedy=remedy)

    def _store_outcome(self, attempt: _Attempt, outcome: Outcome) -> None:
        outcome = replace(outcome, attempts=attempt.number, reasons=tuple(attempt.reasons))
        self._store.record(attempt.row.key, outcome)
        self._finished(attempt.row, outcome)

    # ------------------------------------------------------------------------------------------------------- limits

    def _on_start(self, event: tuple[float, dict[str, Any]]) -> None:
        """Called by Dask, in its own thread."""
        with self._lock:
            self._starts.append(event[1])

    def _note_starts(self) -> None:
        with self._lock:
            starts, self._starts = self._starts, deque()
        attempts = {attempt.row.key: attempt for attempt in self._active.values()}
        for start in starts:
            attempt = attempts.get(start["row"])
            if attempt is not None:
                attempt.tasks[start["task"]] = (start["worker"], start["pid"])
                attempt.started = attempt.started or time.monotonic()

    def _stop_overdue(self) -> None:
        self._note_starts()
        limit = self._limits.seconds
        if limit is None:
            return
        for future, attempt in list(self._active.items()):
            if attempt.started is not None and time.monotonic() - attempt.started > limit:
                del self._active[future]
                self._client.cancel(attempt.futures, force=True)
                self._replace_workers({address for address, _ in attempt.tasks.values()})
                error = f"limit: {attempt.row}: may take {limit:g} seconds"
                self._store_outcome(attempt, Outcome(STOPPED, error=error, seconds=limit))

    def _replace_workers(self, addresses: set[str]) -> None:
        """Restart workers: a thread that computes cannot be stopped otherwise."""
        alive = sorted(addresses & self._client.nthreads().keys())
        if not self._cluster.restarts or not alive:
            return
        try:
            self._client.restart_workers(alive, timeout=60, raise_for_error=False)
        except ValueError as error:  # workers without a nanny
            log.warning("a row that took too long keeps its worker busy: %s", error)


def _identity(contents: bytes) -> bytes:
    return contents


def require_scheduler(client: Any, store: Store, cause: BaseException | None = None) -> None:
    """Raise an error if the connection to the scheduler is lost."""
    if client.status != "running":
        remedy = f"edgewright {store.command} --resume {store.folder}"
        raise ExecutionError("the scheduler", "is gone; finished rows are stored", remedy=remedy) from cause


def error_of(future: Any, timeout: float | None = None) -> BaseException | None:
    """The error of a future when it is finished: of Dask, as tasks return theirs; None if it has a result."""
    import distributed

    try:
        error: BaseException | None = future.exception(timeout=timeout)
    except (CancelledError, distributed.TimeoutError) as cancelled:
        return cancelled
    return error if error is not None or future.status == "finished" else RuntimeError("no result")
