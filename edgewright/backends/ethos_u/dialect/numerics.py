"""TOSA's numerics. TOSA's operators round by themselves: RESCALE carries the only rounding."""

from __future__ import annotations

from edgewright.ir.numerics import Float32Numerics


class TosaNumerics(Float32Numerics):
    """Core operators that stand for TOSA's carry a ``scaling``, so that nothing else rounds."""

    name = "tosa"


TOSA_NUMERICS = TosaNumerics()
