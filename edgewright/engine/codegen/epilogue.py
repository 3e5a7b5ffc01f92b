"""Epilogue: activation, residual add and clamp applied to an accumulator before the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Union

from edgewright.engine.codegen.builder import Function, Reg, const
from edgewright.engine.codegen.math_float32 import FUNCTIONS
from edgewright.engine.codegen.vector import clamp


@dataclass(frozen=True)
class ClampStep:
    low: float
    high: float


@dataclass(frozen=True)
class UnaryStep:
    """A function of ``math_float32.FUNCTIONS``, with its constants."""

    kind: str
    constants: tuple[float, ...] = ()


@dataclass(frozen=True)
class ScalarStep:
    """A binary operator with a constant; ``flipped`` if the constant is the left operand."""

    kind: str
    value: float
    flipped: bool = False


@dataclass(frozen=True)
class TensorStep:
    """A binary operator with another tensor; ``flipped`` if that tensor is the left operand."""

    kind: str
    flipped: bool = False


EpilogueStep = Union[ClampStep, UnaryStep, ScalarStep, TensorStep]
Epilogue = tuple[EpilogueStep, ...]

_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}


def emit_binary(f: Function, kind: str, a: Reg, b: Reg) -> Reg:
    """A binary operator on float32. ``maximum`` and ``minimum`` propagate NaN."""
    if kind in _BINARY:
        return f.op(_BINARY[kind], a, b)
    if kind == "prelu":
        return f.select(f.compare("olt", a, const(0, a.type)), f.op("fmul", a, b), a)
    best = f.select(f.compare("ogt" if kind == "maximum" else "olt", a, b), a, b)
    return f.select(f.compare("uno", a, a), a, best)


def apply_epilogue(f: Function, x: Reg, steps: Sequence[EpilogueStep], second: Callable[[], Reg] | None = None) -> Reg:
    """Apply every step to ``x``; ``second`` loads the matching elements of the second tensor."""
    for item in steps:
        if isinstance(item, ClampStep):
            x = clamp(f, x, item.low, item.high)
        elif isinstance(item, UnaryStep):
            x = FUNCTIONS[item.kind](f, x, *item.constants)
        else:
            if isinstance(item, ScalarStep):
                other = const(item.value, x.type)
            else:
                assert second is not None
                other = second()
            a, b = (other, x) if item.flipped else (x, other)
            x = emit_binary(f, item.kind, a, b)
    return x


def reads_second_operand(steps: Sequence[EpilogueStep]) -> bool:
    return any(isinstance(item, TensorStep) for item in steps)
