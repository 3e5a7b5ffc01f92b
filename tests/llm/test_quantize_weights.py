"""Weight quantization: the search beats rounding to nearest, and what is 4-bit already keeps its values."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from edgewright.ir.dtypes import bfloat16
from edgewright.llm.quantize_weights import QuantizedWeights, quantize_groups, quantize_rows, scale_hints
from edgewright.llm.stored_tensor import StoredTensor


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def values(made: QuantizedWeights) -> np.ndarray:
    return made.integers * np.repeat(made.scales, made.integers.shape[1] // made.scales.shape[1], 1)


@pytest.mark.parametrize("group", [32, 64, 128])
def test_the_search_beats_rounding_to_nearest(group: int) -> None:
    weights = normal(40, 256)
    made = quantize_groups(weights, group)
    assert made.integers.min() >= -8 and made.integers.max() <= 7 and made.scales.shape == (40, 256 // group)
    assert (made.scales.astype(bfloat16).astype(np.float32) == made.scales).all() and made.scales.min() > 0
    error = np.square(weights - values(made)).sum()
    assert made.error == pytest.approx(error, rel=1e-4)
    assert made.relative_error == pytest.approx(float(np.sqrt(error / np.square(weights).sum())), rel=1e-4)
    groups = weights.reshape(-1, group)
    scale = np.abs(groups).max(1, keepdims=True) / 7.5
    nearest = np.square(groups - np.clip(np.rint(groups / scale), -8, 7) * scale).sum()
    assert error < 0.9 * nearest


def test_the_result_does_not_depend_on_the_number_of_threads() -> None:
    weights = normal(600, 512)
    made = [quantize_groups(weights, 32, threads=threads) for threads in (1, 4)]
    assert (made[0].integers == made[1].integers).all() and (made[0].scales == made[1].scales).all()


def test_weights_of_q4_0_keep_their_values_where_the_scale_is_a_bfloat16() -> None:
    integers = np.random.default_rng(0).integers(-8, 8, (16, 64))
    integers[:, ::32] = -8
    scales = np.repeat(2.0 ** np.arange(-8, 8)[:, None], 2, 1).astype(np.float32)
    weights = (integers * np.repeat(scales, 32, 1)).astype(np.float32)
    blocks = gguf.quantize(weights, gguf.GGMLQuantizationType.Q4_0)
    tensor = StoredTensor("Q4_0", weights.shape, blocks)
    np.testing.assert_array_equal(tensor.float32(), weights)
    made = quantize_groups(weights, 32, scale_hints(tensor, 32))
    np.testing.assert_array_equal(values(made), weights)
    assert made.error == 0


def test_rows_of_int8() -> None:
    weights = normal(50, 96)
    made = quantize_rows(weights)
    assert made.integers.min() >= -127 and np.abs(weights - values(made)).max() <= made.scales.max() / 2 * 1.0001
    assert made.relative_error < 0.01


def test_zeros_stay_zeros() -> None:
    zeros = np.zeros((4, 64), np.float32)
    for made in (quantize_groups(zeros, 32), quantize_rows(zeros)):
        assert not made.integers.any() and (made.scales > 0).all() and made.relative_error == 0
