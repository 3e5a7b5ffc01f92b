"""A switch for scripts that were written for a vendor's compiler: lower for this machine only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ONLY: ContextVar[bool] = ContextVar("simulate_only", default=False)


@contextmanager
def simulate_only(on: bool = True) -> Iterator[None]:
    """Context manager: partitioners of backends with ``BackendInfo.simulates`` compile for this machine, and never for
    a device, without the vendor's software."""
    token = _ONLY.set(on)
    try:
        yield
    finally:
        _ONLY.reset(token)


def is_simulate_only() -> bool:
    return _ONLY.get()
