"""Flattened images: they keep the order they are held in until somebody needs another.

A matrix product can take its weights' columns in any order, so the image before it need not be transposed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.ir.graph import Array, Graph, Value
from edgewright.lowering.passes.layout import Lowering, Order, identity


class FlatteningLowering(Lowering):
    """A lowering in which flattened images wait. ``flat`` has them as they are held, with the place of each column."""

    def __init__(self, group: Graph, rows: Any) -> None:
        super().__init__(group, rows)
        self.flat: dict[Value, tuple[Value, Array]] = {}
        self._later: dict[Value, Callable[[], Value]] = {}  # makes the same with columns in their order

    def flatten_later(self, value: Value, held: Value, places: Array, in_order: Callable[[], Value]) -> None:
        """Let ``held`` be ``value`` with columns in another order, and make it properly only if somebody asks."""
        self.flat[value] = (held, places)
        self._later[value] = in_order

    def flat_again(self, value: Value, out: Value) -> bool:
        """Let ``out`` be another name of ``value``, if that is a flattened image nobody asked for yet."""
        if value in self._later:
            self.flatten_later(out, *self.flat[value], lambda: self.get(value))
            return True
        return False

    def _settle(self, value: Value) -> None:
        make = self._later.pop(value, None)
        if make is not None:
            self.alias(value, identity(len(value.shape)), make())

    def orders(self, value: Value) -> list[Order]:
        self._settle(value)
        return super().orders(value)

    def get(self, value: Value, order: Order | None = None) -> Value:
        self._settle(value)
        return super().get(value, order)


def flat_places(x: Value, out: Value, known: Order | None) -> Array | None:
    """The place of each column if ``out`` is ``x`` with its last dimensions flattened as they lie in the order
    ``known``; None if it is not, or if that is the order they have anyway."""
    kept = len(out.shape) - 1
    if known is None or kept < 1 or out.bound[:-1] != x.bound[:kept] or len(x.shape) <= len(out.shape):
        return None
    if known == identity(len(known)) or known[:kept] != identity(kept):
        return None
    places = np.arange(out.bound[-1]).reshape(x.bound[kept:])
    return places.transpose([d - kept for d in known[kept:]]).ravel()
