"""Every small module that is compiled and compared."""

from __future__ import annotations

from tests.program import extras, layers, quantized, state, structures, tensors
from tests.program.case import Case

CASES: list[Case] = [*layers.CASES, *tensors.CASES, *state.CASES, *structures.CASES, *quantized.CASES, *extras.CASES]
BY_NAME = {case.name: case for case in CASES}
