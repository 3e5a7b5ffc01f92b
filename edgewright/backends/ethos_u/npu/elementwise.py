"""The ten elementwise operations, with their operands' scales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.npu.output_stage import rescale
from edgewright.backends.ethos_u.npu.registers import Registers

Array = np.ndarray[Any, Any]
UNARY = frozenset(("LRELU", "ABS", "CLZ"))
UNSCALED = frozenset(("MIN", "MAX", "CLZ", "SHR", "SHL"))  # unless the output's scale is asked for
HEADROOM = {1: 19, 2: 14, 4: 0}  # left shift of the operand that is not scaled, by element size


@dataclass(frozen=True)
class OperandScales:
    """How ADD and SUB bring two scales together: both by 16 bits, or one by 32 bits and the other by a power of two."""

    mode: str
    a: tuple[int, int]
    b: int
    rounding: str

    def __call__(self, a: Array, b: Array, size: int) -> tuple[Array, Array]:
        if self.mode == "both16":
            return a * (self.a[0] & 0xFFFF), b * (self.b & 0xFFFF)
        if self.mode == "a32":
            return rescale(a, *self.a, self.rounding), b << HEADROOM[size]
        return a << HEADROOM[size], rescale(b, *self.a, self.rounding)


def operand_scales(registers: Registers) -> OperandScales:
    return OperandScales(
        registers.choice("IFM_PRECISION", "scale_mode"),
        registers.scale("OPA_SCALE"),
        registers.scale("OPB_SCALE")[0],
        registers.choice("IFM_PRECISION", "round"),
    )


def combine(mode: str, a: Array, b: Array, rounding: str) -> Array:
    """The result of one operation, before the output's scale; operands are less their zero points."""
    simple = {"ADD": np.add, "SUB": np.subtract, "MUL": np.multiply, "MIN": np.minimum, "MAX": np.maximum}
    if mode in simple:
        result: Array = simple[mode](a, b)
        return result
    return a << (b & 31) if mode == "SHL" else _shifted_right(a, b & 63, rounding)


def _shifted_right(a: Array, by: Array, rounding: str) -> Array:
    """Halves go up in ``natural`` rounding; in the other modes the bits are dropped, as compilers expect."""
    if rounding != "natural":
        return a >> by
    half = np.where(by > 0, np.int64(1) << np.maximum(by - 1, 0), 0)
    rounded: Array = (a + half) >> by
    return rounded


def transform(mode: str, a: Array) -> Array:
    """The result of an operation on one operand; LRELU is left to the output's scale."""
    if mode == "ABS":
        return np.abs(a)
    if mode == "CLZ":
        bits = a & 0xFFFFFFFF
        return 32 - np.frexp(bits.astype(np.float64))[1].astype(np.int64)
    return a
