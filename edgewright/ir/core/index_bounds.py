"""Out-of-range indices of core operators (argument ``outside``): raise, wrap or fill."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgewright.errors import ExecutionError
from edgewright.ir.graph import Array


@dataclass(frozen=True)
class OutOfRangePolicy:
    """With a ``subject``, an out-of-range index is an error. Otherwise reads give ``number`` and writes are dropped."""

    subject: str = ""
    wrap: bool = False  # negative indices count from the end
    number: float = 0.0

    def least(self, size: int) -> int:
        return -size if self.wrap else 0

    def error(self, size: int, place: int) -> ExecutionError:
        rule = f"places must be from {self.least(size)} to {size - 1}"
        remedy = "Check the indices (or tokens) that the model is given against the size of what they index."
        return ExecutionError(self.subject, rule, value=place, remedy=remedy)

    def check(self, places: Array, size: int) -> Array:
        """Raise on an out-of-range index; return non-negative indices."""
        wrong = places[(places < self.least(size)) | (places >= size)]
        if wrong.size:
            raise self.error(size, int(wrong[-1]))
        return np.asarray(places % size if self.wrap else places)
