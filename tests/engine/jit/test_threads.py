"""The pool: sleeps, wakes, forks, is interrupted, ends, and serves several graphs at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from edgewright.engine.jit import driver_ir, thread_count, threads
from edgewright.engine.jit.driver import CompiledGraph
from edgewright.engine.jit.threads import ThreadPolicy
from edgewright.errors import UsageError
from tests.engine.example_plans import COUNT, LANES, adding, tallying

X = np.arange(32 * LANES, dtype=np.float32)
LINUX = sys.platform == "linux"


@pytest.fixture(autouse=True)
def share_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ThreadPolicy, "decide", lambda self: True)


@pytest.fixture
def fresh_pool(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest):
    """A pool of this test's own, sleeping as the parameter says."""
    pool = threads.ThreadPool(native_sleep=getattr(request, "param", None))
    monkeypatch.setattr(threads, "_POOL", pool)
    yield pool
    pool.stop()


def parked(pool: threads.ThreadPool) -> int:
    return int(pool._memory[driver_ir.PARKED : driver_ir.PARKED + 4].view(np.int32)[0])


def wait_until(condition, seconds: float = 600.0) -> None:
    """For as long as it takes on a loaded machine; the failure is that it never happens."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "never happened"
        time.sleep(0.001)


def python(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    head = "import numpy as np, os, signal, sys, threading, time\nfrom tests.engine.example_plans import *\n"
    head += "from edgewright.engine.jit.driver import CompiledGraph\n"
    head += "from edgewright.engine.jit.threads import ThreadPolicy\n"
    head += "ThreadPolicy.decide = lambda self: True\nX = np.arange(32 * LANES, dtype=np.float32)\n"
    return subprocess.run(
        [sys.executable, "-c", head + script],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.parametrize("fresh_pool", [True, False], indirect=True, ids=["native", "condition"])
def test_workers_take_part(fresh_pool: threads.ThreadPool) -> None:
    graph = CompiledGraph(tallying([(64, 1, True)] * 4, rounds=2000), threads=2)

    def came() -> bool:
        outputs = [np.zeros(64, COUNT) for _ in range(4)]
        graph.run([], outputs)
        assert all((tally == 1).all() for tally in outputs)
        return bool(fresh_pool._words[(driver_ir.THREADS + driver_ir.THREAD + driver_ir.SEEN) // 8])

    wait_until(came)
    assert all(came() for _ in range(50))


@pytest.mark.skipif(not LINUX, reason="sleeping in the kernel is Linux's")
def test_workers_sleep_when_there_is_nothing_to_do(fresh_pool: threads.ThreadPool) -> None:
    graph = CompiledGraph(adding(), threads=3)
    graph.run([X])
    wait_until(lambda: parked(fresh_pool) == 2)
    graph.run([X])
    wait_until(lambda: parked(fresh_pool) == 2)


@pytest.mark.skipif(not LINUX, reason="placing threads is Linux's")
@pytest.mark.skipif(len(thread_count.allowed_cores()) < 2, reason="needs two cores")
def test_woken_workers_keep_off_the_callers_core(fresh_pool: threads.ThreadPool) -> None:
    allowed = thread_count.allowed_cores()
    own = min(allowed)
    graph = CompiledGraph(adding(), threads=2)
    graph.run([X])
    try:
        os.sched_setaffinity(0, {own})  # of this thread only
        wait_until(lambda: parked(fresh_pool) == 1)
        graph.run([X])
        assert os.sched_getaffinity(int(fresh_pool._tids[0])) == allowed - {own}
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.parametrize("fresh_pool", [True, False], indirect=True, ids=["native", "condition"])
def test_calls_after_pauses(fresh_pool: threads.ThreadPool) -> None:
    graph = CompiledGraph(adding(steps=20), threads=3)
    for gap in (0, 0.0001, 0.001, 0.01) * 10:
        time.sleep(gap)
        assert np.array_equal(graph.run([X])[0], X + 20)


@pytest.mark.parametrize("fresh_pool", [True, False], indirect=True, ids=["native", "condition"])
def test_several_graphs_from_several_python_threads(fresh_pool: threads.ThreadPool) -> None:
    graphs = [CompiledGraph(adding(steps=2 + k), threads=2 + k % 2) for k in range(4)]
    wrong: list[int] = []

    def call(which: int) -> None:
        for at in range(200):
            k = (which + at) % 4
            if not np.array_equal(graphs[k].run([X])[0], X + 2 + k):
                wrong.append(k)

    callers = [threading.Thread(target=call, args=(k,)) for k in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(600)
    assert not any(caller.is_alive() for caller in callers)
    assert not wrong


def test_a_stopped_pool_leaves_calls_to_their_caller(fresh_pool: threads.ThreadPool) -> None:
    graph = CompiledGraph(adding(), threads=2)
    graph.run([X])
    fresh_pool.stop()
    assert np.array_equal(graph.run([X])[0], X + 5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forked_children_have_a_pool_of_their_own() -> None:
    done = python(
        """
graph = CompiledGraph(adding(), threads=2)
graph.run([X])
children = []
for _ in range(3):
    child = os.fork()
    if not child:
        good = all(np.array_equal(graph.run([X])[0], X + 5) for _ in range(20))
        from edgewright.engine.jit import threads
        os._exit(0 if good and len(threads.thread_pool()._threads) == 1 else 1)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
print(codes, np.array_equal(graph.run([X])[0], X + 5))
"""
    )
    assert done.stdout.strip() == "[0, 0, 0] True", done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_forked_during_a_call_can_call() -> None:
    done = python(
        """
graph = CompiledGraph(tallying([(64, 1, True)] * 50, rounds=20000), threads=2)
caller = threading.Thread(target=lambda: [graph.run([]) for _ in range(10)])
caller.start()
while not graph._lock.locked():
    pass
child = os.fork()
if not child:
    tallies = [np.zeros(64, COUNT) for _ in range(50)]
    graph.run([], tallies)
    os._exit(0 if all((t == 1).all() for t in tallies) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
caller.join()
"""
    )
    assert done.stdout.strip() == "0", done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_interrupt_leaves_graph_and_pool_usable() -> None:
    done = python(
        """
from edgewright.engine.jit import threads
graph = CompiledGraph(tallying([(64, 1, True)] * 50, rounds=20000), threads=2)
graph.run([])
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells tell what runs in the background to ignore it
interrupted = 0
for _ in range(5):
    timer = threading.Timer(0.002, lambda: os.kill(os.getpid(), signal.SIGINT))
    try:
        timer.start()
        while True:
            graph.run([])
    except KeyboardInterrupt:
        interrupted += 1
tallies = [np.zeros(64, COUNT) for _ in range(50)]
graph.run([], tallies)
print(interrupted, all((t == 1).all() for t in tallies), threads.thread_pool().lock.locked())
"""
    )
    assert done.stdout.strip() == "5 True False", done.stderr


@pytest.mark.parametrize("end", ["sys.exit(7)", "threading.Thread(target=forever, daemon=True).start(); sys.exit(7)"])
def test_the_interpreter_exits_while_workers_are_alive(end: str) -> None:
    done = python(
        f"""
graph = CompiledGraph(adding(), threads=3)
graph.run([X])
def forever():
    while True:
        graph.run([X])
{end}
"""
    )
    assert done.returncode == 7, done.stderr


def test_thread_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDGEWRIGHT_THREADS", raising=False)
    assert thread_count.thread_count() == thread_count.physical_cores() >= 1
    monkeypatch.setenv("EDGEWRIGHT_THREADS", "3")
    assert thread_count.thread_count() == 3
    assert thread_count.thread_count(2) == 2


@pytest.mark.parametrize("given", ["0", "-1", "two", "1.5", "257", "٣"])
def test_thread_counts_that_are_none(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("EDGEWRIGHT_THREADS", given)
    with pytest.raises(UsageError, match="EDGEWRIGHT_THREADS: must be a whole number from 1 to 256"):
        thread_count.thread_count()


@pytest.mark.skipif(not LINUX, reason="affinity is Linux's")
def test_cores_are_those_allowed() -> None:
    script = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    script += "from edgewright.engine.jit.thread_count import thread_count; print(thread_count())"
    assert python(script, EDGEWRIGHT_THREADS="").stdout.strip() == "1"


def test_trouble_is_followed_by_calls_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    sharing = ThreadPolicy()

    def call(shared_ns: int) -> bool:
        shared = sharing.decide()
        sharing.record(shared, shared_ns if shared else 1_000_000)
        return shared

    assert [call(500_000) for _ in range(4)] == [False, False, True, True]
    assert call(9_000_000)
    assert [call(500_000) for _ in range(9)] == [False] * 8 + [True]
    assert call(9_000_000)
    assert [call(500_000) for _ in range(17)] == [False] * 16 + [True]
    assert all(call(500_000) for _ in range(64))
    assert call(9_000_000)
    assert [call(500_000) for _ in range(9)] == [False] * 8 + [True]


def test_long_calls_are_shared_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    sharing = ThreadPolicy(2, long=True)

    def call(shared_ns: int) -> bool:
        shared = sharing.decide()
        sharing.record(shared, shared_ns if shared else 100_000_000)
        return shared

    assert call(90_000_000)  # page faults
    assert [call(60_000_000) for _ in range(3)] == [True] * 3
    assert call(119_000_000)  # less than twice the fastest
    assert call(130_000_000)
    assert [call(60_000_000) for _ in range(9)] == [False] * 8 + [True]
    assert sharing.alone_ns == 100_000_000  # from here on as in other segments
    assert call(101_000_000)
    assert [call(60_000_000) for _ in range(17)] == [False] * 16 + [True]


def test_what_is_slow_alone_too_is_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    sharing = ThreadPolicy()
    alone, shared = 1_000_000, 500_000
    taken = []
    for at in range(200):
        busy = 4 if at > 20 else 1  # from then on other programs slow everything down
        together = sharing.decide()
        sharing.record(together, busy * (shared if together else alone))
        taken.append(together)
    assert not all(taken[21:40])  # at first it looks like trouble
    assert all(taken[60:])  # until it is known how long it takes alone now


def test_memory_is_kept_for_a_worker_that_is_late_to_stop(fresh_pool: threads.ThreadPool) -> None:
    late = threading.Event()
    fresh_pool._threads.append(threading.Thread(target=late.wait, daemon=True))
    fresh_pool._threads[0].start()
    fresh_pool._words[(driver_ir.THREADS + driver_ir.THREAD + driver_ir.BUSY) // 8] = 1
    fresh_pool.stop()
    fresh_pool.retire(X)
    assert fresh_pool._retired == [X]
    fresh_pool._words[(driver_ir.THREADS + driver_ir.THREAD + driver_ir.BUSY) // 8] = 0
    late.set()
    fresh_pool.stop()
    fresh_pool.retire(X)
    assert not fresh_pool._retired and not fresh_pool._threads


def test_a_graph_may_be_collected_while_numpy_leaves_an_errstate() -> None:
    """A graph's finalizer runs no numpy arithmetic.

    CPython 3.11 caches a context variable's value without owning it. Deleting the value (which the end of an
    ``np.errstate`` does) allocates, so it may collect garbage; a finalizer that calls a ufunc there caches the value
    that is about to be freed, and numpy then reads, and frees again, what is not its own.
    """
    script = """
import contextvars, gc
contextvars.ContextVar("other").set(1)  # an empty context is not copied
plan = adding()
CompiledGraph(plan, threads=2).run([X])
gc.collect(), gc.freeze()
for allocations in range(12):  # one of them is that of the deletion
    for _ in range(20):
        gc.disable()
        graph = CompiledGraph(plan, threads=2)
        graph.cycle = graph
        del graph
        state = np.errstate(all="ignore")
        state.__enter__()
        gc.set_threshold(gc.get_count()[0] + allocations)
        gc.enable()
        state.__exit__(None, None, None)
        gc.disable()
        kept = [(n,) for n in range(3)]
        np.add(X, 1)
        gc.collect()
print("alive")
"""
    done = python(script)
    assert done.stdout == "alive\n", done.stderr
