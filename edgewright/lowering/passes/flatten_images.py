"""Lazy flattening of images: keeps the stored layout until a consumer needs the logical one.

A matrix product can permute the columns of its weights instead, so the image before it is never transposed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.ir.graph import Array, Graph, Value
from edgewright.lowering.passes.layout import GroupLowering, Order, identity


class FlatteningLowering(GroupLowering):
    """A lowering that defers flattening. ``flat``: value to the value in its stored layout, and column indices."""

    def __init__(self, group: Graph, rows: Any) -> None:
        super().__init__(group, rows)
        self.flat: dict[Value, tuple[Value, Array]] = {}
        self._deferred: dict[Value, Callable[[], Value]] = {}  # emits the value with columns in logical order

    def defer_flatten(self, value: Value, unflattened: Value, indices: Array, materialize: Callable[[], Value]) -> None:
        """Record ``unflattened`` as ``value`` with permuted columns; ``materialize`` emits it only on demand."""
        self.flat[value] = (unflattened, indices)
        self._deferred[value] = materialize

    def alias_deferred(self, value: Value, out: Value) -> bool:
        """Alias ``out`` to ``value``, if that is a deferred flattened image."""
        if value in self._deferred:
            self.defer_flatten(out, *self.flat[value], lambda: self.get(value))
            return True
        return False

    def _materialize(self, value: Value) -> None:
        make = self._deferred.pop(value, None)
        if make is not None:
            self.alias(value, identity(len(value.shape)), make())

    def orders(self, value: Value) -> list[Order]:
        self._materialize(value)
        return super().orders(value)

    def get(self, value: Value, order: Order | None = None) -> Value:
        self._materialize(value)
        return super().get(value, order)


def flatten_permutation(x: Value, out: Value, stored_order: Order | None) -> Array | None:
    """The column permutation if ``out`` is ``x`` with its last dimensions flattened in ``stored_order``.

    None if it is not, or if the permutation is the identity.
    """
    outer = len(out.shape) - 1
    if stored_order is None or outer < 1 or out.bound[:-1] != x.bound[:outer] or len(x.shape) <= len(out.shape):
        return None
    if stored_order == identity(len(stored_order)) or stored_order[:outer] != identity(outer):
        return None
    indices = np.arange(out.bound[-1]).reshape(x.bound[outer:])
    return indices.transpose([d - outer for d in stored_order[outer:]]).ravel()
