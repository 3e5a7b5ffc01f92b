"""Out-of-range indices of core operators (argument ``outside``): raise, wrap or fill."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgewright.errors import ExecutionError
from edgewright.ir.graph import Array


@dataclass(frozen=True)
class OutOfRangePolicy:
    """With a ``subject``, an out-of-range index raises. Otherwise reads return ``number`` and writes are dropped."""

    subject: str = ""
    wrap: bool = False  # negative indices count from the end
    number: float = 0.0

    def min_index(self, size: int) -> int:
        return -size if self.wrap else 0

    def error(self, size: int, index: int) -> ExecutionError:
        rule = f"indices must be from {self.min_index(size)} to {size - 1}"
        remedy = "Check the indices (or tokens) in the input against the size of the tensor that they index."
        return ExecutionError(self.subject, rule, value=index, remedy=remedy)

    def check(self, indices: Array, size: int) -> Array:
        """Non-negative indices; an out-of-range one raises, or becomes ``size``."""
        outside = (indices < self.min_index(size)) | (indices >= size)
        if self.subject and outside.any():
            raise self.error(size, int(indices[outside][-1]))
        return np.asarray(np.where(outside, size, indices % max(size, 1)))
