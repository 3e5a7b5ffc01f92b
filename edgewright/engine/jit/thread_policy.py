"""When several threads are worth it: always, unless other programs keep taking their cores away.

A thread that loses its core in the middle of a chunk holds everybody up for a scheduler's turn, some milliseconds.
Nothing can be done about it then; but where it happens once it happens again. So a call that took longer than it would
have taken alone is followed by some calls on the caller's thread only, by more of them each time.
"""

from __future__ import annotations

_FIRST, _MOST = 8, 256  # calls alone after a first and after many bad ones
_GOOD = 16  # calls without trouble that halve the next punishment
_MARGIN_NS = 200_000  # waking and noise are no trouble


class ThreadPolicy:
    """Decides for one table of steps, call by call, and learns from how long each took.

    >>> policy = ThreadPolicy()
    >>> [policy.decide() for _ in range(2)]
    [False, False]
    """

    def __init__(self) -> None:
        self.alone_ns = 0
        self._probes = 2  # calls to learn how long it takes alone: the first is slow, its memory is untouched
        self._settled = False
        self._penalty = 0
        self._backoff = _FIRST
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

    def learn(self, shared: bool, spent_ns: int) -> None:
        """How long a call took."""
        if not shared:
            # The usual time as the machine is now, not the best there ever was: others slow both ways of running.
            self.alone_ns = (3 * self.alone_ns + spent_ns) // 4 if self._settled else spent_ns
            self._settled = not self._probes
        elif spent_ns > self.alone_ns + _MARGIN_NS:
            self._penalty, self._good = self._backoff, 0
            self._backoff = min(2 * self._backoff, _MOST)
        else:
            self._good += 1
            if self._good >= _GOOD:
                self._good, self._backoff = 0, max(self._backoff // 2, _FIRST)
