"""Thread policy: use the pool unless other processes keep preempting its threads.

A thread preempted in the middle of a chunk delays everybody by a scheduler time slice, some milliseconds. A call that
took longer than it would have on one thread is therefore followed by single-threaded calls, with exponential backoff.
"""

from __future__ import annotations

_MIN_BACKOFF, _MAX_BACKOFF = 8, 256  # single-threaded calls after the first and after many slow ones
_GOOD_CALLS = 16  # fast calls in a row that halve the backoff
_MARGIN_NS = 200_000  # tolerance for wake-up latency and noise


class ThreadPolicy:
    """Decides per call whether one segment runs on the pool, from the measured times of earlier calls.

    >>> policy = ThreadPolicy()
    >>> [policy.decide() for _ in range(2)]
    [False, False]
    """

    def __init__(self) -> None:
        self.alone_ns = 0
        self._probes = 2  # single-threaded calls to measure; the first is slow because of page faults
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
        elif spent_ns > self.alone_ns + _MARGIN_NS:
            self._penalty, self._good = self._backoff, 0
            self._backoff = min(2 * self._backoff, _MAX_BACKOFF)
        else:
            self._good += 1
            if self._good >= _GOOD_CALLS:
                self._good, self._backoff = 0, max(self._backoff // 2, _MIN_BACKOFF)
