"""Ports: quantization constraints of an operator's operands and result, in real ranges.

A port constrains one operand or result. ``Same`` and ``Tied`` express shared scales: groups of values with one scale
are computed by union-find, so they do not depend on the order in which operators are visited.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union


@dataclass(frozen=True)
class Act:
    """An activation: a range of its own, found by calibration."""


@dataclass(frozen=True)
class Weight:
    """A constant weight; ``axis`` is that of its output channels."""

    axis: int = 0


@dataclass(frozen=True)
class Bias:
    """A constant added to the accumulator: its scale is the input's times the weight's."""


@dataclass(frozen=True)
class Range:
    """A result whose range is known without looking: a sigmoid's is 0 to 1.

    ``narrows``: values may all be near 0, as those of a tanh that caps something softly; where calibration shows that,
    the range is a part of this one.
    """

    lo: float
    hi: float
    narrows: bool = False


@dataclass(frozen=True)
class Same:
    """The very values of another port (pooling, concatenation, reshape): the same scale. A fixed range is inherited
    where nothing of another range comes in beside it; else what has it is requantized."""

    port: str


@dataclass(frozen=True)
class Tied:
    """Another port's scale, because hardware wants one: a member with a fixed range is requantized instead."""

    port: str


@dataclass(frozen=True)
class Index:
    """Not a quantity: indices, masks, shapes."""


Port = Union[Act, Weight, Bias, Range, Same, Tied, Index]

ACT, BIAS, INDEX = Act(), Bias(), Index()
