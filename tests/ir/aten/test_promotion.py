"""Result types against eager torch, over every pair of types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from edgewright.ir.aten.reference.elementwise import result_type
from edgewright.ir.dtypes import ScalarType, promote, promote_scalar, to_numpy
from tests.ir.aten.harness import TORCH, to_array

TYPES = {**TORCH, "complex32": torch.complex32}
NUMBERS: list[Any] = [True, 3, 2.5, 1j]


def ours(name: str) -> np.dtype:
    return to_numpy(ScalarType[name.upper()])


def theirs(dtype: torch.dtype) -> np.dtype:
    return ours(str(dtype).removeprefix("torch."))


@pytest.mark.parametrize("a", TYPES)
def test_promote(a: str) -> None:
    for b in TYPES:
        try:
            expected = torch.promote_types(TYPES[a], TYPES[b])
        except RuntimeError:  # torch has no rule between the wide unsigned types and the others
            continue
        assert promote(ours(a), ours(b)) == theirs(expected), f"{a} with {b}"


@pytest.mark.parametrize("a", TYPES)
def test_promote_scalar(a: str) -> None:
    for number in NUMBERS:
        try:
            expected = torch.result_type(torch.ones(2, dtype=TYPES[a]), number)
        except RuntimeError:
            continue
        assert promote_scalar(ours(a), number) == theirs(expected), f"{a} with {number}"


@pytest.mark.sample(79)
@pytest.mark.parametrize("a", TORCH)
@pytest.mark.parametrize("b", TORCH)
def test_result_type_of_arrays_and_numbers(a: str, b: str) -> None:
    for shape_a, shape_b in (((2,), (2,)), ((2,), ()), ((), (2,)), ((), ())):
        x, y = torch.zeros(shape_a, dtype=TORCH[a]), torch.zeros(shape_b, dtype=TORCH[b])
        try:
            expected = torch.result_type(x, y)
        except RuntimeError:
            continue
        assert result_type(to_array(x), to_array(y)) == theirs(expected), f"{a}{shape_a} with {b}{shape_b}"
