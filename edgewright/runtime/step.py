"""Steps: the instructions of a method, bound to its values.

A chain of a method is a list with one step per instruction. A step is called with the value table, and returns the
index of the next instruction, or None for the one after it. A segment replaces the step of its first instruction, and
returns the index after its last; the steps that it stands for stay in the chain, for the case that its guards fail.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewright.errors import ExecutionError
from edgewright.ir.graph import Origin
from edgewright.runtime.tensor import TensorSlot

if TYPE_CHECKING:
    from edgewright.engine.jit.driver import CompiledGraph
    from edgewright.engine.profile import StepTime

    SingleGraph = tuple[CompiledGraph, Sequence[Any], Sequence[Any]]

Values = list[Any]


class Step(ABC):
    """One instruction, or several that were compiled together.

    ``inputs``, ``outputs`` and ``mutated`` are indices of the value table: what an instruction reads, writes, and
    updates in place. They are empty for instructions that move values, which no analysis sees through, and for
    segments, which are made after the analyses.
    """

    inputs: Sequence[int] = ()
    outputs: Sequence[int] = ()
    mutated: Sequence[int] = ()
    length: int = 1  # how many instructions the step stands for
    origin: Origin = Origin()  # in the user's model, if the file names its layers

    @property
    @abstractmethod
    def label(self) -> str:
        """The name in profiles and errors."""

    @abstractmethod
    def __call__(self, table: Values) -> int | None:
        """Run; the index of the next instruction, or None for the one after this."""

    def run_profiled(self, table: Values, parts: list[StepTime]) -> int | None:
        """Run, and append the times of the step's parts to ``parts``."""
        return self(table)

    def single_graph(self, table: Values) -> SingleGraph | None:
        """The compiled graph that is the entire step, if it is one, with the values that it reads and writes."""
        return None


class MoveStep(Step):
    """Replaces a value of the table with another."""

    label = "move"

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target

    def __call__(self, table: Values) -> None:
        table[self._target] = table[self._source]


class JumpFalseStep(Step):
    """Continues at ``destination`` unless the condition is true."""

    label = "jump_false"

    def __init__(self, condition: int, destination: int) -> None:
        self._condition, self._destination = condition, destination

    def __call__(self, table: Values) -> int | None:
        value = table[self._condition]
        if isinstance(value, TensorSlot):
            if value.dtype != np.bool_ or value.array is None:
                raise ExecutionError("condition", "must be a bool tensor with data", value=str(value.dtype))
            return None if value.array.all() else self._destination
        if not isinstance(value, bool):
            raise ExecutionError("condition", "must be a bool", value=value)
        return None if value else self._destination


class FreeStep(Step):
    """Releases a tensor that has no planned memory."""

    label = "free"

    def __init__(self, index: int) -> None:
        self._index = index

    def __call__(self, table: Values) -> None:
        value = table[self._index]
        if isinstance(value, TensorSlot) and value.memory is None:
            value.array = None
