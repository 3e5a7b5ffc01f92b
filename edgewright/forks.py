"""What a forked child renews: locks that threads of its parent held, which are not there to release them.

A child has a copy of everything and one thread, the one that forked. An object that threads lock registers itself with
``renew_in_child``; its ``_renew`` then makes a new lock and drops whatever another thread may have left half done.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Renewable(Protocol):
    def _renew(self) -> None:
        """In a forked child, before anything else runs there."""
        ...


_RENEWED: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_in_child(owner: Renewable) -> None:
    """Have ``owner`` renewed in every child that is forked while it lives."""
    _RENEWED.add(owner)


def _renew_all() -> None:
    for owner in list(_RENEWED):
        owner._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
