"""A tensor of a loaded method: a view of memory planned by the file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.errors import ExecutionError, LimitError
from edgewright.ir.dtypes import DType, to_numpy

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


def strides_of(shape: Sequence[int], dim_order: Sequence[int], itemsize: int) -> Shape:
    """Byte strides of a dense tensor with dimensions stored in ``dim_order``, outermost first.

    >>> strides_of((1, 3, 2, 2), (0, 2, 3, 1), 4)
    (48, 4, 24, 12)
    """
    strides = [0] * len(shape)
    step = itemsize
    for dim in reversed(dim_order):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


RAISE_MEMORY = "Raise it with load_program(..., limits=Limits(memory=...)) if you trust the file."


class MemoryPool:
    """Memory budget for tensors without planned memory, allocated while a method runs."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def resize(self, old: int, new: int) -> None:
        """Release ``old`` bytes and reserve ``new``."""
        if self.used - old + new > self.limit:
            rule = f"all tensors without planned memory may take {self.limit} bytes"
            raise LimitError("tensor", rule, value=self.used - old + new, remedy=RAISE_MEMORY)
        self.used += new - old


class TensorSlot:
    """One tensor value: dtype, dim order, upper bound of its shape, and its memory.

    ``array`` is the current view. ``memory`` is None if the caller (unplanned inputs) or an instruction (``et_view``,
    unplanned outputs) provides it.
    """

    __slots__ = (
        "aliasable",
        "array",
        "bound",
        "capacity",
        "dim_order",
        "dtype",
        "dynamic",
        "memory",
        "mutated",
        "pool",
        "reserved",
        "scalar_type",
    )  # fmt: skip

    def __init__(
        self,
        scalar_type: int,
        bound: Shape,
        dim_order: tuple[int, ...],
        *,
        dynamic: bool = False,
        memory: Array | None = None,
        pool: MemoryPool | None = None,
    ) -> None:
        self.scalar_type = scalar_type
        self.dtype: DType = to_numpy(scalar_type)
        self.bound = bound
        self.dim_order = dim_order
        self.dynamic = dynamic
        self.memory = memory
        self.pool = pool
        self.reserved = 0  # bytes reserved in the pool
        self.mutated = False  # some instruction writes it
        self.aliasable = False  # an input that may alias the caller's array
        self.capacity = 1
        for size in bound:
            self.capacity *= size
        self.array: Array | None = None if memory is None else self._view(memory, bound)

    @property
    def shape(self) -> Shape:
        return self.bound if self.array is None else self.array.shape

    def _view(self, memory: Array, shape: Shape) -> Array:
        strides = strides_of(shape, self.dim_order, self.dtype.itemsize)
        return np.ndarray(shape, self.dtype, memory.data if memory.size else bytearray(), 0, strides)

    def check_shape(self, shape: Shape) -> None:
        """Raise unless this tensor may have ``shape``."""
        if shape == self.bound:
            return
        if not self.dynamic:
            raise ExecutionError("tensor", f"shape is fixed at {list(self.bound)}", value=list(shape))
        if len(shape) != len(self.bound):
            raise ExecutionError("tensor", f"rank is fixed at {len(self.bound)}", value=list(shape))
        count = 1
        for size in shape:
            count *= size
        if count > self.capacity:
            rule = f"planned memory holds {self.capacity} elements (at most {list(self.bound)})"
            raise ExecutionError("tensor", rule, value=list(shape))

    def resize(self, shape: Shape) -> None:
        """Change to ``shape``, which must fit the planned memory; the contents are then undefined."""
        if self.array is not None and self.array.shape == shape:
            return
        self.check_shape(shape)
        if self.memory is None:
            size = math.prod(shape) * self.dtype.itemsize
            if self.pool is not None:
                self.pool.resize(self.reserved, size)
                self.reserved = size
            self.array = self._view(np.zeros(size, np.uint8), shape)
        else:
            self.array = self._view(self.memory, shape)

    def alias(self, array: Array) -> None:
        """Become a view of ``array``, whose shape must be valid for this tensor."""
        self.check_shape(array.shape)
        self.array = array

    def store(self, value: Any) -> None:
        """Copy a result in, resized to its shape and cast to this tensor's dtype."""
        value = np.asarray(value)
        self.resize(value.shape)
        assert self.array is not None
        np.copyto(self.array, value, casting="unsafe")
