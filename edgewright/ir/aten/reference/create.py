"""Creation of tensors; copies, casts and reinterpretations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.aten.reference.elementwise import Array, Shape, cast, checked_cast


def size_shape(size: Sequence[int], *_: Any, **__: Any) -> Shape:
    """The shape of creation operators with a size argument."""
    if any(n < 0 for n in size):
        raise ValueError(f"sizes must not be negative, got {list(size)}")
    return tuple(size)


def full(size: Sequence[int], fill_value: Any, **_: Any) -> Array:
    """A constant tensor, as a broadcast view that costs no memory."""
    return np.broadcast_to(np.asarray(fill_value), size_shape(size))


def zeros(size: Sequence[int], *_: Any, **__: Any) -> Array:
    return full(size, 0)


def ones(size: Sequence[int], *_: Any, **__: Any) -> Array:
    return full(size, 1)


def fill_shape(self: Array, value: Any, *_: Any) -> Shape:
    if isinstance(value, np.ndarray) and value.ndim:
        raise ValueError(f"the value must be a number or a 0-d tensor, got shape {list(value.shape)}")
    return tuple(self.shape)


def fill(self: Array, value: Any, *_: Any) -> Array:
    """``value`` in the shape and dtype of ``self``; a number must be representable, a 0-d tensor wraps."""
    put = cast if isinstance(value, np.ndarray) else checked_cast
    return full(fill_shape(self, value), put(value, self.dtype))


def scalar_tensor_shape(s: Any, **_: Any) -> Shape:
    return ()


def scalar_tensor(s: Any, **_: Any) -> Array:
    return np.asarray(s)


def arange_shape(start: Any = 0, end: Any = 0, step: Any = 1, **_: Any) -> Shape:
    if not all(map(math.isfinite, (start, end, step))):
        raise ValueError(f"arange takes finite numbers, got {start}, {end}, {step}")
    if step == 0 or (end - start) * (1 if step > 0 else -1) < 0:
        raise ValueError(f"step must lead from start to end, got {start}, {end}, {step}")
    if all(isinstance(v, int) for v in (start, end, step)):
        return (-((start - end) // step),)
    count = (end - start) / step
    if not math.isfinite(count):
        raise ValueError(f"arange has too many steps from {start} to {end} by {step}")
    return (math.ceil(count),)


def arange(start: Any = 0, end: Any = 0, step: Any = 1, **_: Any) -> Array:
    """start, start + step, ... below end: int64 (exact) for integers, else float64."""
    (count,) = arange_shape(start, end, step)
    integers = all(isinstance(v, int) for v in (start, end, step))
    index = np.arange(count, dtype=np.int64 if integers else np.float64)
    return index * index.dtype.type(step) + index.dtype.type(start)


def rand(size: Sequence[int], generator: np.random.Generator | None = None, **_: Any) -> Array:
    """Uniform in [0, 1), multiples of 2**-24."""
    return (generator or np.random.default_rng()).random(size_shape(size), np.float32)


def randn(size: Sequence[int], generator: np.random.Generator | None = None, **_: Any) -> Array:
    """Standard normal."""
    return (generator or np.random.default_rng()).standard_normal(size_shape(size), np.float32)


def like_shape(self: Array, *_: Any, **__: Any) -> Shape:
    return tuple(self.shape)


def full_like(self: Array, fill_value: Any, **_: Any) -> Array:
    """``fill_value`` in the shape of ``self``."""
    return full(self.shape, fill_value)


def zeros_like(self: Array, **_: Any) -> Array:
    return full(self.shape, 0)


def ones_like(self: Array, **_: Any) -> Array:
    return full(self.shape, 1)


def rand_like(self: Array, generator: np.random.Generator | None = None, **_: Any) -> Array:
    return rand(self.shape, generator)


def randn_like(self: Array, generator: np.random.Generator | None = None, **_: Any) -> Array:
    return randn(self.shape, generator)


def eye_shape(n: int, m: int | None = None, **_: Any) -> Shape:
    return size_shape((n, n if m is None else m))


def eye(n: int, m: int | None = None, **_: Any) -> Array:
    """The identity, with ``n`` rows and ``m`` (None: ``n``) columns."""
    rows, columns = eye_shape(n, m)
    return np.eye(rows, columns)


def linspace_shape(start: Any, end: Any, steps: int, **_: Any) -> Shape:
    return size_shape((steps,))


def linspace(start: Any, end: Any, steps: int, **_: Any) -> Array:
    """``steps`` evenly spaced numbers from ``start`` to ``end``."""
    (count,) = linspace_shape(start, end, steps)
    return np.linspace(start, end, count)


def scalar_shape(*_: Any, **__: Any) -> Shape:
    """The shape of scalars."""
    return ()


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
