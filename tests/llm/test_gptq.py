"""Calibrated rounding: smaller errors of a layer's outputs than the search's, with the same integers and scales."""

from __future__ import annotations

import numpy as np
import pytest

from edgewright.ir.dtypes import bfloat16
from edgewright.llm.gptq import CalibratedRounding
from edgewright.llm.quantize_weights import HeldGroups, count_carried, quantize_groups


def correlated(rows: int, columns: int) -> np.ndarray:
    draw = np.random.default_rng(1)
    shared = draw.standard_normal((rows, columns // 8)) @ draw.standard_normal((columns // 8, columns))
    return (shared + 0.5 * draw.standard_normal((rows, columns))).astype(np.float32)


@pytest.mark.parametrize(("columns", "group"), [(64, 32), (192, 32), (256, 64), (256, 256)])
def test_outputs_are_closer_than_with_searched_scales(columns: int, group: int) -> None:
    weights = np.random.default_rng(0).standard_normal((24, columns)).astype(np.float32)
    inputs = correlated(1000, columns)
    made = CalibratedRounding([(inputs.T @ inputs).astype(np.float64)], group).round(weights)
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
    made = CalibratedRounding([np.eye(64)], 32).round(weights)
    searched = quantize_groups(weights, 32)
    np.testing.assert_array_equal(made.scales, searched.scales)
    assert (made.integers != searched.integers).mean() < 0.01  # ties


def test_columns_with_large_inputs_are_rounded_best() -> None:
    """They come first, so that others make up for their errors, wherever they are."""
    weights = np.random.default_rng(0).standard_normal((24, 128)).astype(np.float32)
    inputs = correlated(1000, 128)
    inputs[:, 100:108] *= 8
    exact = inputs @ weights.T
    products = (inputs.T @ inputs).astype(np.float64)
    errors = [
        np.square(exact - inputs @ made.gather().T).sum()
        for made in (CalibratedRounding([products], 32).round(weights), quantize_groups(weights, 32))
    ]
    assert errors[0] < 0.1 * errors[1]


def test_spans_are_rounded_one_by_one() -> None:
    """Those of wide matrices: as if each were a matrix of its own. Rows are independent of each other."""
    weights = np.random.default_rng(0).standard_normal((600, 96)).astype(np.float32)
    parts = [slice(0, 64), slice(64, 96)]
    products = [(x.T @ x).astype(np.float64) for x in (correlated(200, 64), correlated(200, 32))]
    made = CalibratedRounding(products, 32).round(weights)
    for part, product in zip(parts, products, strict=True):
        alone = CalibratedRounding([product], 32).round(weights[:, part])
        np.testing.assert_array_equal(made.integers[:, part], alone.integers)
        np.testing.assert_array_equal(made.scales[:, part.start // 32 : part.stop // 32], alone.scales)
        one = CalibratedRounding([product], 32).round(weights[599:, part])
        np.testing.assert_allclose(one.gather(), alone.gather()[599:], 1e-6)


def test_groups_that_4_bits_hold_stay_as_they_are() -> None:
    """If nothing else has errors that they could make up for: rows of Q4_0."""
    draw = np.random.default_rng(0)
    integers = draw.integers(-8, 8, (8, 64)).astype(np.int8)
    integers[:, ::32] = -8
    scales = draw.uniform(0.5, 1, (8, 2)).astype(bfloat16).astype(np.float32)
    weights = (integers.reshape(8, 2, 32) * scales[..., None]).reshape(8, 64)
    weights[3, 32:] += 0.3 * draw.standard_normal(32).astype(np.float32)
    inputs = correlated(500, 64)
    made = CalibratedRounding([(inputs.T @ inputs).astype(np.float64)], 32).round(weights)
    others = np.arange(8) != 3
    np.testing.assert_array_equal(made.scales[others], scales[others])
    np.testing.assert_array_equal(made.integers[others], integers[others])
    held = np.ones((8, 2), bool)
    held[0] = False
    assert count_carried(made, HeldGroups(integers, scales, held)).carried == 12
    assert count_carried(made, None) is made


def test_inputs_that_are_always_zero() -> None:
    weights = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    inputs = correlated(100, 64)
    inputs[:, 7] = 0
    for products in (inputs.T @ inputs, np.zeros((64, 64))):
        made = CalibratedRounding([products.astype(np.float64)], 32).round(weights)
        assert np.isfinite(made.gather()).all() and made.relative_error < 0.3
