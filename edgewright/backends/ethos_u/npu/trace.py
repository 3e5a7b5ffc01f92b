"""Trace of a run: each operation with its resolved parameters, and the byte ranges that only ever hold constants.

A second run of the same stream on regions of the same sizes performs the same operations on other data. The trace holds
everything about them that does not depend on the data, which is what ``translate`` compiles.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Union

import numpy as np

from edgewright.backends.ethos_u.npu.featuremap import FeatureMap
from edgewright.backends.ethos_u.npu.kernel import Kernel
from edgewright.backends.ethos_u.npu.output_stage import OutputStage
from edgewright.backends.ethos_u.npu.registers import Registers
from edgewright.backends.ethos_u.npu.stream import Instruction

Array = np.ndarray[Any, Any]
CONSTANTS = 0  # region 0 is read-only
Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Convolution:
    """A convolution. ``weights`` are OHWI, or (channels, height, width, 1) if ``depthwise``."""

    ofm: FeatureMap
    ifm: FeatureMap
    stage: OutputStage
    window: Kernel
    shape: Shape  # of the result
    depth: int  # of the input
    weights: Array
    bias: Array
    multiplier: Array
    shift: Array
    depthwise: bool


@dataclass(frozen=True)
class Pool:
    ofm: FeatureMap
    ifm: FeatureMap
    stage: OutputStage
    window: Kernel
    shape: Shape
    mode: str
    multiplier: Any
    shift: Any


@dataclass(frozen=True)
class Operand2:
    """Second operand of an elementwise operation: a scalar minus its zero point, or a feature map."""

    number: int = 0
    map: FeatureMap | None = None
    shape: Shape = (1, 1, 1)


@dataclass(frozen=True)
class Elementwise:
    ofm: FeatureMap
    ifm: FeatureMap
    stage: OutputStage
    shape: Shape
    mode: str
    operand2: Operand2 | None
    swapped: bool
    scales: Any  # of both operands, or None
    multiplier: Any
    shift: Any


@dataclass(frozen=True)
class Copy:
    """DMA copy of ``length`` bytes from one (region, address) to another."""

    source: tuple[int, int]
    target: tuple[int, int]
    length: int


Operation = Union[Convolution, Pool, Elementwise, Copy]


@dataclass(frozen=True)
class Executed:
    """One executed operation: its command, the registers it read, and its parameters unless they depend on data."""

    instruction: Instruction
    registers: Registers
    operation: Operation | None


@dataclass
class Trace:
    """The operations of a run. ``steps``: budget steps the run took."""

    executed: list[Executed] = field(default_factory=list)
    steps: int = 0
    _constant_ranges: list[tuple[int | str, int, int]] = field(default_factory=list)  # (region, begin, end)

    def is_constant(self, region: int | str, at: int, length: int) -> bool:
        """True if these bytes are the same in every run."""
        if region == CONSTANTS or length == 0:
            return True
        return any(r == region and low <= at and at + length <= high for r, low, high in self._constant_ranges)

    def mark_written(self, region: int | str, low: int, high: int, constant: bool = False) -> None:
        """Update the constant ranges after a write; ``constant`` says whether the new bytes are constant."""
        self._constant_ranges = [c for c in self._constant_ranges if c[0] != region or c[2] <= low or c[1] >= high]
        if constant:
            self._constant_ranges.append((region, low, high))

    def add(self, instruction: Instruction, registers: Registers, operation: Operation | None) -> None:
        if operation is not None and not isinstance(operation, Copy) and operation.stage.table is not None:
            # A later DMA may overwrite the table in internal memory
            stage = replace(operation.stage, table=operation.stage.table.copy())
            operation = replace(operation, stage=stage)
        self.executed.append(Executed(instruction, registers.copy(), operation))
