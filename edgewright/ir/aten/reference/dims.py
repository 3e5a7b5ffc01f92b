"""Dimensions and shapes: wrapping, checking and clamping, common to all operators; sliding windows of convolution
and pooling.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

# ----------------------------------------------------------------------------------------------------------------- dims

# Dimensions and shapes: wrapping, checking and clamping, common to all operators.
#
# Everything is arithmetic on Python integers, so numbers from a file can neither overflow nor cost memory.

Shape = tuple[int, ...]
Array = np.ndarray[Shape, np.dtype[Any]]

MAX_RANK = 64  # numpy's limit


def normal_dim(dim: int, rank: int) -> int:
    """``dim`` counted from the front; a 0-d tensor counts as having one dimension.

    >>> normal_dim(-1, 4)
    3
    """
    bound = max(rank, 1)
    if not -bound <= dim < bound:
        raise IndexError(f"dim must be in [{-bound}, {bound - 1}], got {dim}")
    return dim % bound


def existing_dim(dim: int, rank: int) -> int:
    """Like ``normal_dim``, for operators that need at least one dimension.

    >>> existing_dim(-2, 3)
    1
    """
    if not rank:
        raise IndexError("a 0-d tensor has no dimension to choose")
    return normal_dim(dim, rank)


def normal_dims(dims: Sequence[int] | int | None, rank: int, *, empty_is_all: bool = True) -> Shape:
    """Distinct dims in ascending order; an int is a list of one. None means all, and so does [] by default.

    >>> normal_dims([-1, 0], 3), normal_dims(None, 2)
    ((0, 2), (0, 1))
    """
    if isinstance(dims, int):
        dims = [dims]
    if dims is None or (empty_is_all and not dims):
        return tuple(range(rank))
    wrapped = sorted(normal_dim(dim, rank) for dim in dims)
    if len(set(wrapped)) != len(wrapped):
        raise ValueError(f"each dim may appear once, got {list(dims)}")
    return tuple(wrapped) if rank else ()


def reduced_shape(shape: Shape, dims: Sequence[int], keepdim: bool) -> Shape:
    """``shape`` after reducing the (normal) ``dims``.

    >>> reduced_shape((2, 3, 4), (1,), True)
    (2, 1, 4)
    """
    if keepdim:
        return tuple(1 if i in dims else size for i, size in enumerate(shape))
    return tuple(size for i, size in enumerate(shape) if i not in dims)


def with_size(shape: Shape, dim: int, size: int) -> Shape:
    """``shape`` with another size at the (normal) ``dim``; a 0-d shape stays 0-d.

    >>> with_size((2, 3), 1, 5)
    (2, 5)
    """
    return (*shape[:dim], size, *shape[dim + 1 :]) if shape else shape


def slice_bounds(start: int | None, end: int | None, size: int) -> tuple[int, int]:
    """A slice's first and one-past-last position: negative ones wrap, then both are clamped to the tensor.

    >>> slice_bounds(-2, 2**63 - 1, 5), slice_bounds(4, 1, 5)
    ((3, 5), (4, 4))
    """
    first, last = (0 if start is None else start), (size if end is None else end)
    first = min(max(first + size if first < 0 else first, 0), size)
    last = min(max(last + size if last < 0 else last, first), size)
    return first, last


def slice_length(start: int | None, end: int | None, step: int, size: int) -> int:
    """The number of positions in a slice.

    >>> slice_length(0, 10, 3, 5)
    2
    """
    if step < 1:
        raise ValueError(f"step must be positive, got {step}")
    first, last = slice_bounds(start, end, size)
    return -(-(last - first) // step)


def normal_index(index: int, size: int) -> int:
    """A position counted from the front.

    >>> normal_index(-1, 3)
    2
    """
    if not -size <= index < size:
        raise IndexError(f"index must be in [{-size}, {size - 1}], got {index}")
    return index % size


def numel(shape: Sequence[int]) -> int:
    """The number of elements, exactly.

    >>> numel((2**40, 2**40)) == 2**80
    True
    """
    if len(shape) > MAX_RANK:  # the product of a list as long as a file would take hours
        raise ValueError(f"a tensor has at most {MAX_RANK} dims, got {len(shape)}")
    return math.prod(shape)


def at_dim(dim: int, key: Any) -> tuple[Any, ...]:
    """The index that applies ``key`` to one (normal) dimension and selects all of the others."""
    return (*(slice(None),) * dim, key)


def index_dim(array: Array, dim: int, key: Any) -> Array:
    """``array`` indexed by ``key`` (a position or a slice) along one (normal) dimension.

    >>> index_dim(np.arange(6).reshape(2, 3), 1, 2)
    array([2, 5])
    """
    return np.asarray(array[at_dim(dim, key)])


# -------------------------------------------------------------------------------------------------------------- windows

# Sliding windows: positions, taps, strides and padding of convolution and pooling.
#
# Tap ``t`` of the window at position ``o`` reads input element ``o * stride - padding + t * dilation``. The padded
# input is never built: each tap has a range of positions that read existing elements, and only those are visited, so no
# padding, stride or dilation in a file can cost memory.

Reach = tuple[slice, slice]


def per_axis(values: Sequence[int], rank: int, name: str, at_least: int) -> Shape:
    """``rank`` numbers of at least ``at_least``; a single number applies to all axes.

    >>> per_axis([2], 3, "stride", 1)
    (2, 2, 2)
    """
    numbers = tuple(map(int, values)) * (rank if len(values) == 1 else 1)
    if len(numbers) != rank or any(n < at_least for n in numbers):
        raise ValueError(f"{name} must be {rank} numbers of at least {at_least}, got {list(values)}")
    return numbers


def reach(size: int, count: int, stride: int, offset: int) -> Reach | None:
    """The positions of ``range(count)`` for which ``position * stride + offset`` is in ``range(size)``.

    Returns the positions and the elements they read, as slices of equal length; None if there are none.

    >>> reach(size=5, count=3, stride=2, offset=-1)
    (slice(1, 3, None), slice(1, 4, 2))
    """
    first = max(0, -(offset // stride))
    last = min(count, (size - 1 - offset) // stride + 1)
    if first >= last:
        return None
    start = first * stride + offset
    return slice(first, last), slice(start, start + (last - first - 1) * stride + 1, stride)


def cheaper_first(sizes: Sequence[int], counts: Sequence[int]) -> tuple[int, int]:
    """The order in which to resize the last two axes with the smaller intermediate result.

    >>> cheaper_first((100, 1), (1, 100))
    (-2, -1)
    """
    return (-1, -2) if sizes[0] * counts[1] <= counts[0] * sizes[1] else (-2, -1)
