"""What a run did, written down: blocks with all their numbers, and which of the memory only ever holds constants.

A second run of the same stream on memories of the same sizes does the same to other data: a record says all about it
that does not depend on that data.
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
CONSTANTS = 0  # the region that nothing writes to
Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Product:
    """A convolution. ``weights`` are (out, rows, columns, in), or (channels, rows, columns, 1) if ``deep``."""

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
    deep: bool


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
class Second:
    """The second operand of an elementwise operation: a number less its zero point, or a map of some shape."""

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
    second: Second | None
    swapped: bool
    scales: Any  # of both operands, or None
    multiplier: Any
    shift: Any


@dataclass(frozen=True)
class Copy:
    """``length`` bytes from one (region, address) to another."""

    source: tuple[int, int]
    target: tuple[int, int]
    length: int


Block = Union[Product, Pool, Elementwise, Copy]


@dataclass(frozen=True)
class Done:
    """One operation: its command, the registers it found, and what it was, if that does not depend on data."""

    instruction: Instruction
    registers: Registers
    block: Block | None


@dataclass
class Record:
    """A run's operations. ``spent``: what it took of the budget."""

    done: list[Done] = field(default_factory=list)
    spent: int = 0
    _constant: list[tuple[int | str, int, int]] = field(default_factory=list)  # region, first byte, the one behind

    def fixed(self, region: int | str, at: int, length: int) -> bool:
        """Bytes that are the same in every run."""
        if region == CONSTANTS or length == 0:
            return True
        return any(r == region and low <= at and at + length <= high for r, low, high in self._constant)

    def written(self, region: int | str, low: int, high: int, fixed: bool = False) -> None:
        """Whatever was constant there is no longer, or is now."""
        self._constant = [c for c in self._constant if c[0] != region or c[2] <= low or c[1] >= high]
        if fixed:
            self._constant.append((region, low, high))

    def add(self, instruction: Instruction, registers: Registers, block: Block | None) -> None:
        if block is not None and not isinstance(block, Copy) and block.stage.table is not None:
            stage = replace(block.stage, table=block.stage.table.copy())  # the NPU's memory will hold another
            block = replace(block, stage=stage)
        self.done.append(Done(instruction, registers.copy(), block))
