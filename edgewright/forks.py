"""Fork handlers: reinitialize locks in a forked child.

A child has a copy of the parent's memory and one thread, the one that forked. Locks that other threads of the parent
held would never be released. An object with a lock registers itself with ``renew_in_child``; its ``_renew`` then
creates a new lock, and drops state that another thread may have left incomplete.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Renewable(Protocol):
    def _renew(self) -> None:
        """Called in a forked child before anything else runs there."""
        ...


_OWNERS: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_in_child(owner: Renewable) -> None:
    """Call ``owner._renew`` in every child that is forked while ``owner`` exists."""
    _OWNERS.add(owner)


def _renew_all() -> None:
    for owner in list(_OWNERS):
        owner._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
