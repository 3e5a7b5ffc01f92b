"""Functions of windows on threads: in order, whatever the number of threads."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from edgewright.llm.window_threads import Array, each_window, map_windows


@pytest.mark.parametrize("threads", ["1", "3"])
def test_results_are_in_the_order_of_windows(threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEWRIGHT_THREADS", threads)
    x = np.random.default_rng(0).standard_normal((7, 5, 4))

    def slow_at_first(a: Array, b: Array) -> Array:
        time.sleep(0.002 if a[0, 0] == x[0, 0, 0] else 0)
        return a @ b.T

    np.testing.assert_array_equal(map_windows(slow_at_first, x, x + 1), np.stack([a @ (a + 1).T for a in x]))


def test_memory_holds_as_many_results_as_there_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEWRIGHT_THREADS", "2")
    lock, calls = threading.Lock(), list[int]()

    def record(window: Array) -> Array:
        with lock:
            calls.append(int(window[0]))
        return window

    results = each_window(record, np.arange(6).reshape(6, 1))
    assert int(next(results)[0]) == 0
    assert 0 in calls
    assert set(calls) <= {0, 1}
    assert [int(x[0]) for x in results] == [1, 2, 3, 4, 5]
