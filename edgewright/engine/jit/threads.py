"""The thread pool that all compiled graphs share, and when to use it."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from edgewright.engine.host_arch import machine_name
from edgewright.engine.jit import driver_ir
from edgewright.engine.jit.build import build_objects
from edgewright.engine.jit.elf import Library, link
from edgewright.engine.jit.thread_count import MAX_THREADS, allowed_cores
from edgewright.ir.graph import Array

# -------------------------------------------------------------------------------------------------------- thread policy

# Thread policy: use the pool unless other processes keep preempting its threads.
#
# A thread preempted in the middle of a chunk delays everybody by a scheduler time slice, some milliseconds. A call that
# took longer than it would have on one thread is therefore followed by single-threaded calls, with exponential backoff.
#
# How long it would have taken is measured in the first calls, which run on one thread. Segments that take much longer
# than a time slice use the pool at once: a chunk of a long prompt would take twice the time, and a prompt has few of
# them. Until a call on one thread was measured, theirs are slow if they take more than n times as long as the fastest,
# the most that n threads can gain.

_MIN_BACKOFF, _MAX_BACKOFF = 8, 256  # single-threaded calls after the first and after many slow ones
_GOOD_CALLS = 16  # fast calls in a row that halve the backoff
_MARGIN_NS = 200_000  # tolerance for wake-up latency and noise


class ThreadPolicy:
    """Decides per call whether one segment runs on the pool, from the measured times of earlier calls.

    ``threads``: of the pool; ``long``: use them from the first call on.

    >>> policy = ThreadPolicy()
    >>> [policy.decide() for _ in range(2)]
    [False, False]
    """

    def __init__(self, threads: int = 2, *, long: bool = False) -> None:
        self._threads = threads
        self.alone_ns = 0
        self._probes = 0 if long else 2  # single-threaded calls to measure; the first is slow because of page faults
        self._settled = False
        self._penalty = 0
        self._backoff = _MIN_BACKOFF
        self._good = 0

    def decide(self) -> bool:
        """Whether the next call uses several threads."""
        if self._probes:
            self._probes -= 1
            return False
        if self._penalty:
            self._penalty -= 1
            return False
        return True

    def record(self, shared: bool, spent_ns: int) -> None:
        """Record how long a call took."""
        if not shared:
            # A moving average, not the minimum: load from other processes slows both modes.
            self.alone_ns = (3 * self.alone_ns + spent_ns) // 4 if self._settled else spent_ns
            self._settled = not self._probes
            return
        if not self._settled:
            most = self._threads * spent_ns
            self.alone_ns = min(self.alone_ns, most) if self.alone_ns else most
        if spent_ns > self.alone_ns + _MARGIN_NS:
            self._penalty, self._good = self._backoff, 0
            self._backoff = min(2 * self._backoff, _MAX_BACKOFF)
        else:
            self._good += 1
            if self._good >= _GOOD_CALLS:
                self._good, self._backoff = 0, max(self._backoff // 2, _MIN_BACKOFF)


# -------------------------------------------------------------------------------------------------------------- threads

# The thread pool that all compiled graphs share. Workers sleep between calls and may join a running call at any step.
#
# A worker is a Python thread that enters the native driver once and stays there without the GIL. It polls for some
# microseconds, then sleeps on a futex (Linux) or a condition variable (elsewhere). Before waking workers, a caller
# excludes its own core from their affinity masks: the scheduler tends to place the woken thread on the waker's core,
# where the two would wait for each other. ``driver_ir.py`` explains the protocol.

_SPIN = 2000  # polls before sleeping: about 30 us
_PATIENCE = 1000  # polls of a barrier before yielding the core
_PAGE = 4096
# futex and sched_setaffinity
_SYSTEM_CALLS = {"x86_64": (202, 203), "aarch64": (98, 122)}


def aligned_buffer(size: int) -> Array:
    """Page-aligned zeros, committed lazily by the operating system."""
    memory = np.zeros(size + _PAGE, np.uint8)
    start = -int(memory.ctypes.data) % _PAGE
    return memory[start : start + size]


def _slow_address(array: Array) -> int:
    return int(array.ctypes.data)


def _fast_address(array: Array) -> int:
    """Read the data pointer directly: ``array.ctypes`` takes longer than some networks' layers.

    The pointer follows the object header in PyArrayObject, which is part of numpy's stable ABI.
    """
    return ctypes.c_void_p.from_address(id(array) + object.__basicsize__).value or 0


def _choose_address() -> Callable[[Array], int]:
    probe = np.arange(64.0)[3:]
    supported = sys.implementation.name == "cpython" and _fast_address(probe) == probe.ctypes.data
    return _fast_address if supported else _slow_address


address_of = _choose_address()


class Driver:
    """The entry points of the native driver."""

    def __init__(self) -> None:
        # Compiled for the baseline CPU: it does no arithmetic worth vectorizing.
        library = Library(link(build_objects([driver_ir.driver_text(machine_name())], "", "")))
        self._library = library
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        call: Callable[..., Any] = ctypes.CFUNCTYPE

        def function(name: str, *kinds: Any) -> Any:
            return call(None, *kinds)(library.address(name))

        self.run_alone = function("run_alone", pointer, number, pointer)
        self.run_alone_timed = function("run_alone_timed", pointer, number, pointer, pointer)
        shared = (pointer, pointer, number, number, pointer, number)
        self.run_shared = function("run_shared", *shared)
        self.run_shared_timed = function("run_shared_timed", *shared, pointer)
        self.serve = function("serve", pointer, number)
        self.halt = function("halt", pointer)
        self.now = call(number)(library.address("now"))


@lru_cache(maxsize=1)
def driver() -> Driver:
    return Driver()


class ThreadPool:
    """Up to ``MAX_THREADS - 1`` workers, started on demand. ``lock`` is held by the call that uses them."""

    def __init__(self, native_sleep: bool | None = None) -> None:
        self.lock = threading.Lock()
        self._memory = aligned_buffer(driver_ir.context_size(MAX_THREADS))
        # Not a numpy array: finalizers read it and must not call ufuncs (see ``retire``).
        self._words = self._memory.data.cast("q")
        self.address = address_of(self._memory)
        self._threads: list[threading.Thread] = []
        self._tids = np.zeros(MAX_THREADS, np.int64)
        self._retired: list[Any] = []
        self._mask = np.zeros(0, np.uint64)
        self._work_available = threading.Condition()
        self._calls = 0
        self._stopped = False
        self._set(driver_ir.EPOCH, 1)
        self._set(driver_ir.SERIAL, 1)
        self._set(driver_ir.SPIN, _SPIN)
        self._set(driver_ir.PATIENCE, _PATIENCE)
        self._set(driver_ir.CORE, -1)
        self.native_sleep = _enable_futex(self) if native_sleep is not False else False
        self._set(driver_ir.YIELD, _yield_address())

    def _set(self, offset: int, value: int) -> None:
        self._words[offset // 8] = value

    def ensure(self, threads: int) -> None:
        """Start workers for calls with ``threads`` threads. The caller holds ``lock``."""
        while len(self._threads) < threads - 1 and not self._stopped:
            ready = threading.Event()
            index = len(self._threads) + 1
            thread = threading.Thread(target=self._work, args=(index, ready), daemon=True, name=f"edgewright-{index}")
            thread.start()
            ready.wait()
            self._threads.append(thread)
            self._set(driver_ir.CORE, -1)  # forces setting the new worker's affinity
            self._set(driver_ir.WORKERS, len(self._threads))

    def run(self, table: int, count: int, threads: int, scratch: int, stride: int, stamps: int = 0) -> None:
        """Execute a step table with the workers. The caller holds ``lock`` and has called ``ensure``."""
        if not self.native_sleep:
            with self._work_available:
                self._calls += 1
                self._work_available.notify_all()
        if stamps:
            driver().run_shared_timed(self.address, table, count, threads, scratch, stride, stamps)
        else:
            driver().run_shared(self.address, table, count, threads, scratch, stride)

    def retire(self, memory: Any) -> None:
        """Release memory that past calls refer to, once no worker can still be reading it.

        Memory is released when the epoch is odd (no call is open) and no worker is busy; otherwise the next call of
        ``retire`` tries again. The garbage collector calls this, possibly while ``np.errstate`` restores a context
        variable. A ufunc called then makes CPython 3.11 cache the value that is about to be freed, so this uses Python
        integers only.
        """
        self._retired.append(memory)
        workers = range(1, len(self._threads) + 1)
        busy = (self._words[(driver_ir.THREADS + driver_ir.THREAD * t + driver_ir.BUSY) // 8] for t in workers)
        if self._words[driver_ir.EPOCH // 8] % 2 and not any(busy):
            self._retired.clear()

    def stop(self) -> None:
        """Stop the workers; later calls run on the caller's thread alone."""
        with self._work_available:
            self._stopped = True
            self._work_available.notify_all()
        if self._threads:
            driver().halt(self.address)
        for thread in self._threads:
            thread.join(1.0)
        if not any(thread.is_alive() for thread in self._threads):  # a late one may still read a call's memory
            self._threads.clear()

    def _work(self, index: int, ready: threading.Event) -> None:
        self._tids[index - 1] = threading.get_native_id()
        serve, address = driver().serve, self.address
        calls = self._calls
        ready.set()
        while not self._stopped:
            serve(address, index)  # returns on stop, or when idle without a futex
            with self._work_available:
                while self._calls == calls and not self._stopped:
                    self._work_available.wait()
                calls = self._calls


def _enable_futex(pool: ThreadPool) -> bool:
    """Give the driver futex and affinity system calls on Linux; False elsewhere."""
    numbers = _SYSTEM_CALLS.get(machine_name())
    if sys.platform != "linux" or numbers is None:
        return False
    mask = np.zeros(2 * (max(allowed_cores()) // 64 + 1), np.uint64)  # the process's mask, and scratch for a worker's
    for core in allowed_cores():
        mask[core // 64] |= np.uint64(1 << core % 64)
    pool._mask = mask
    mask_bytes = mask.nbytes // 2
    fields = {
        driver_ir.SYSCALL: _libc("syscall"),
        driver_ir.GETCPU: _libc("sched_getcpu"),
        driver_ir.FUTEX: numbers[0],
        driver_ir.AFFINITY: numbers[1],
        driver_ir.MASK_BYTES: mask_bytes,
        driver_ir.ALLOWED: address_of(mask),
        driver_ir.MASK: address_of(mask) + mask_bytes,
        driver_ir.TIDS: address_of(pool._tids),
    }
    for offset, value in fields.items():
        pool._set(offset, value)
    return True


def _libc(name: str) -> int:
    return ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value or 0


def _yield_address() -> int:
    if sys.platform == "win32":
        return ctypes.cast(ctypes.windll.kernel32.SwitchToThread, ctypes.c_void_p).value or 0
    return _libc("sched_yield")


_POOL: ThreadPool | None = None
_POOL_LOCK = threading.Lock()


def thread_pool() -> ThreadPool:
    """The process's pool."""
    global _POOL
    if _POOL is None:
        with _POOL_LOCK:
            if _POOL is None:
                _POOL = ThreadPool()
    return _POOL


def retire(memory: Any) -> None:
    """Release memory that past calls refer to (see ``ThreadPool.retire``)."""
    if _POOL is not None:
        _POOL.retire(memory)


def _stop() -> None:
    if _POOL is not None:
        _POOL.stop()


def _forget() -> None:
    """After a fork the child has no workers, and locks may be held by threads that do not exist in it."""
    global _POOL, _POOL_LOCK
    _POOL, _POOL_LOCK = None, threading.Lock()


atexit.register(_stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
