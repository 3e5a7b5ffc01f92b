"""The ten elementwise operations and the scaling of their operands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.npu.output_stage import rescale
from edgewright.backends.ethos_u.npu.registers import Registers

Array = np.ndarray[Any, Any]
UNARY = frozenset(("LRELU", "ABS", "CLZ"))
UNSCALED = frozenset(("MIN", "MAX", "CLZ", "SHR", "SHL"))  # unless the output scale is enabled
HEADROOM = {1: 19, 2: 14, 4: 0}  # left shift of the operand that is not scaled, by element size


@dataclass(frozen=True)
class OperandScales:
    """Brings the operands of ADD and SUB to one scale: 16-bit factors for both, or 32 bits for one and a shift."""

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


def apply_binary(mode: str, a: Array, b: Array, rounding: str) -> Array:
    """Result of a binary operation before the output scale; zero points are already subtracted."""
    ufuncs = {"ADD": np.add, "SUB": np.subtract, "MUL": np.multiply, "MIN": np.minimum, "MAX": np.maximum}
    if mode in ufuncs:
        result: Array = ufuncs[mode](a, b)
        return result
    return a << (b & 31) if mode == "SHL" else _shift_right(a, b & 63, rounding)


def _shift_right(a: Array, by: Array, rounding: str) -> Array:
    """``natural`` rounds half up; the other modes truncate, as compilers expect."""
    if rounding != "natural":
        return a >> by
    half = np.where(by > 0, np.int64(1) << np.maximum(by - 1, 0), 0)
    rounded: Array = (a + half) >> by
    return rounded


def apply_unary(mode: str, a: Array) -> Array:
    """Result of a unary operation; LRELU is left to the output scale."""
    if mode == "ABS":
        return np.abs(a)
    if mode == "CLZ":
        bits = a & 0xFFFFFFFF
        return 32 - np.frexp(bits.astype(np.float64))[1].astype(np.int64)
    return a
