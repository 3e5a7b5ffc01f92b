"""Functions of single windows of a text, on as many threads as the machine has cores: numpy releases the interpreter's
lock in its loops and products. Results do not depend on the number of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from edgewright.engine.jit.thread_count import thread_count

Array = np.ndarray[Any, Any]
T = TypeVar("T")


def map_windows(function: Callable[..., Array], *arrays: Array) -> Array:
    """``function`` of each window of ``arrays``, as one array."""
    results = each_window(function, *arrays)
    first = next(results)
    stacked = np.empty((len(arrays[0]), *first.shape), first.dtype)
    stacked[0] = first
    for i, result in enumerate(results, 1):
        stacked[i] = result
    return stacked


def each_window(function: Callable[..., T], *arrays: Array) -> Iterator[T]:
    """The results, of which memory holds as many as there are threads."""
    threads = thread_count()
    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(arrays[0]), threads):
            yield from pool.map(function, *(array[start : start + threads] for array in arrays))
