"""Element by element: arithmetic, comparison, logic, activations."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.ir.dtypes import compute_type, promote, promote_scalar

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


def broadcast_shape(*args: Any) -> Shape:
    """The common shape of all array arguments."""
    return np.broadcast_shapes(*(a.shape for a in args if isinstance(a, np.ndarray)))


def common(*args: Any) -> list[Any]:
    """All arguments in the type that torch would compute them in: arrays promoted, numbers by kind only."""
    arrays = [a.dtype for a in args if isinstance(a, np.ndarray)]
    dtype = promote(*arrays)
    for number in args:
        if not isinstance(number, np.ndarray):
            dtype = promote_scalar(dtype, number)
    dtype = compute_type(dtype)
    return [a.astype(dtype, copy=False) if isinstance(a, np.ndarray) else dtype.type(a) for a in args]


def add(self: Array, other: Any, alpha: Any = 1) -> Array:
    a, b, scale = common(self, other, alpha)
    return np.asarray(a + b if alpha == 1 else a + scale * b)
