"""Places that a tensor does not have, and what becomes of them where an operator of a device graph says ``outside``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgewright.errors import ExecutionError
from edgewright.ir.graph import Array


@dataclass(frozen=True)
class OutOfRangePolicy:
    """With a ``subject`` they are an error of its. Otherwise ``number`` is read there, and nothing is written."""

    subject: str = ""
    wrap: bool = False  # places below 0 count from the end
    number: float = 0.0

    def least(self, size: int) -> int:
        return -size if self.wrap else 0

    def error(self, size: int, place: int) -> ExecutionError:
        rule = f"places must be from {self.least(size)} to {size - 1}"
        remedy = "Check the indices (or tokens) that the model is given against the size of what they index."
        return ExecutionError(self.subject, rule, value=place, remedy=remedy)

    def check(self, places: Array, size: int) -> Array:
        """Places, all of them inside and counted from the start."""
        wrong = places[(places < self.least(size)) | (places >= size)]
        if wrong.size:
            raise self.error(size, int(wrong[-1]))
        return np.asarray(places % size if self.wrap else places)
