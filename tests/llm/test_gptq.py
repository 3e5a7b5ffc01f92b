"""Calibrated rounding: smaller errors of a layer's outputs than the search's, with the same integers and scales."""

from __future__ import annotations

import numpy as np
import pytest

from edgewright.ir.dtypes import bfloat16
from edgewright.llm.gptq import round_calibrated
from edgewright.llm.quantize_weights import quantize_groups


def correlated(rows: int, columns: int) -> np.ndarray:
    draw = np.random.default_rng(1)
    shared = draw.standard_normal((rows, columns // 8)) @ draw.standard_normal((columns // 8, columns))
    return (shared + 0.5 * draw.standard_normal((rows, columns))).astype(np.float32)


@pytest.mark.parametrize(("columns", "group"), [(64, 32), (192, 32), (256, 64), (256, 256)])
def test_outputs_are_closer_than_with_searched_scales(columns: int, group: int) -> None:
    weights = np.random.default_rng(0).standard_normal((24, columns)).astype(np.float32)
    inputs = correlated(1000, columns)
    made = round_calibrated(weights, (inputs.T @ inputs).astype(np.float64), group)
    assert made.integers.min() >= -8 and made.integers.max() <= 7 and made.group == group
    assert (made.scales.astype(bfloat16).astype(np.float32) == made.scales).all() and made.scales.min() > 0
    errors = [
        np.square(inputs @ (weights - values).T).sum()
        for values in (made.gather(), quantize_groups(weights, group).gather())
    ]
    assert errors[0] < 0.5 * errors[1]
    assert made.error == pytest.approx(np.square(weights - made.gather()).sum(), rel=1e-4)


def test_inputs_that_are_independent_leave_the_search_as_it_is() -> None:
    weights = np.random.default_rng(0).standard_normal((24, 64)).astype(np.float32)
    made = round_calibrated(weights, np.eye(64), 32)
    searched = quantize_groups(weights, 32)
    np.testing.assert_array_equal(made.scales, searched.scales)
    assert (made.integers != searched.integers).mean() < 0.01  # ties


def test_inputs_that_are_always_zero() -> None:
    weights = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    inputs = correlated(100, 64)
    inputs[:, 7] = 0
    for products in (inputs.T @ inputs, np.zeros((64, 64))):
        made = round_calibrated(weights, products.astype(np.float64), 32)
        assert np.isfinite(made.gather()).all() and made.relative_error < 0.3
