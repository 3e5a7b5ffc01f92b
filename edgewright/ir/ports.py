"""Ports: quantization constraints of an operator's operands and result, in real ranges.

A port constrains one operand or result. ``Same`` and ``Tied`` express shared scales: groups of values with one scale
are computed by union-find, so they do not depend on the order in which operators are visited.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union


@dataclass(frozen=True)
class Act:
    """An activation: calibration determines its range."""


@dataclass(frozen=True)
class Weight:
    """A constant weight; ``axis`` is that of its output channels."""

    axis: int = 0


@dataclass(frozen=True)
class Bias:
    """A constant added to the accumulator: its scale is the input's times the weight's."""


@dataclass(frozen=True)
class Range:
    """A result whose range is known without calibration: a sigmoid's is 0 to 1.

    ``narrows``: calibration may choose a smaller range inside this one, because all values may be near 0 (as those of a
    tanh that is used as a soft cap).
    """

    lo: float
    hi: float
    narrows: bool = False


@dataclass(frozen=True)
class Same:
    """Elements of another port, unchanged (pooling, concatenation, reshape): the same scale. A fixed range is inherited
    if no other operand has a different range; otherwise the operand with the fixed range is requantized."""

    port: str


@dataclass(frozen=True)
class Tied:
    """Another port's scale, because hardware requires it: an operand with a fixed range is requantized."""

    port: str


@dataclass(frozen=True)
class Index:
    """Not a quantity: indices, masks, shapes."""


Port = Union[Act, Weight, Bias, Range, Same, Tied, Index]

ACT, BIAS, INDEX = Act(), Bias(), Index()
