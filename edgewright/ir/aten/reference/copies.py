"""Copies, casts and reinterpretations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.aten.reference.create import size_shape
from edgewright.ir.aten.reference.elementwise import Array, Shape


def same_shape(self: Array, *_: Any, **__: Any) -> Shape:
    return tuple(self.shape)


def clone(self: Array, *_: Any, **__: Any) -> Array:
    """The value itself; the copy is made when it is stored, in the destination's dtype and layout."""
    return self


def check_dim_order(dim_order: Sequence[int] | None, rank: int) -> None:
    if dim_order is not None and sorted(dim_order) != list(range(rank)):
        raise ValueError(f"dim_order must list the {rank} dimensions once each, got {list(dim_order)}")


def dim_order_shape(self: Array, non_blocking: bool = False, dim_order: Sequence[int] | None = None) -> Shape:
    check_dim_order(dim_order, self.ndim)
    return tuple(self.shape)


def empty_dim_order_shape(size: Sequence[int], dim_order: Sequence[int] | None = None) -> Shape:
    check_dim_order(dim_order, len(size))
    return size_shape(size)


def copy_shape(self: Array, src: Array, *_: Any, **__: Any) -> Shape:
    if np.broadcast_shapes(self.shape, src.shape) != self.shape:
        raise ValueError(f"a tensor of shape {list(src.shape)} does not broadcast to {list(self.shape)}")
    return tuple(self.shape)


def copy(self: Array, src: Array, *_: Any, **__: Any) -> Array:
    """``src`` in the shape and type of ``self``."""
    return np.broadcast_to(src.astype(self.dtype, copy=False), copy_shape(self, src))


def view_as_real_shape(self: Array) -> Shape:
    return (*self.shape, 2)


def view_as_real(self: Array) -> Array:
    """Real and imaginary parts in a new last dimension."""
    if self.dtype.names:  # complex32: a pair of float16
        return np.stack([self["re"], self["im"]], -1)
    if self.dtype.kind != "c":
        raise ValueError(f"view_as_real takes complex numbers, got {self.dtype}")
    return np.stack([self.real, self.imag], -1)
