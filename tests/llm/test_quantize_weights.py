"""Weight quantization: the search beats rounding to nearest, and what is 4-bit already keeps its values."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from edgewright.ir.dtypes import bfloat16
from edgewright.llm.quantize_weights import (
    QuantizedWeights,
    held_groups,
    nearest_groups,
    quantize_groups,
    quantize_rows,
    rows_of_q8_0,
)
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


def q4_0(integers: np.ndarray, scales: np.ndarray) -> StoredTensor:
    """A tensor of GGUF's blocks: integers [rows, columns] from -8 to 7, scales [rows, columns / 32], of any sign."""
    nibbles = (integers + 8).astype(np.uint8).reshape(*scales.shape, 2, 16)
    packed = nibbles[..., 0, :] | nibbles[..., 1, :] << 4
    halves = scales.astype(np.float16)[..., None].view(np.uint8)
    return StoredTensor("Q4_0", integers.shape, np.concatenate([halves, packed], -1).reshape(len(integers), -1))


def test_q4_0_keeps_its_integers() -> None:
    draw = np.random.default_rng(0)
    integers = draw.integers(-8, 8, (64, 128))
    scales = draw.uniform(0.01, 1, (64, 4)).astype(np.float16).astype(np.float32) * draw.choice([-1, 1], (64, 4))
    integers[:32] = np.maximum(integers[:32], -7)  # without -8, a negative scale can be turned
    integers[32:, ::32] = -8
    tensor = q4_0(integers, scales)
    weights = (integers * np.repeat(scales, 32, 1)).astype(np.float32)
    np.testing.assert_array_equal(tensor.float32(), weights)
    source = held_groups(tensor, 32)
    assert source is not None
    held = (scales > 0) | (np.arange(64) < 32)[:, None]
    np.testing.assert_array_equal(source.held, held)
    made = quantize_groups(weights, 32, source)
    assert made.carried == held.sum()
    kept = np.repeat(held, 32, 1)
    expected = integers * np.where(scales < 0, -1, 1).repeat(32, 1)
    np.testing.assert_array_equal(made.integers[kept], expected[kept])
    np.testing.assert_allclose(values(made)[kept], weights[kept], 2.0**-8)  # the scale's rounding alone
    # Groups that need +8 are rounded again, as weights of other formats are.
    lost, again = ~kept, quantize_groups(weights, 32)
    np.testing.assert_array_equal(made.integers[lost], again.integers[lost])
    assert (values(made) != weights)[lost].any()


def test_q4_0_with_scales_that_are_bfloat16_is_exact() -> None:
    integers = np.random.default_rng(0).integers(-8, 8, (16, 64))
    scales = np.repeat(2.0 ** np.arange(-8, 8)[:, None], 2, 1).astype(np.float32)
    tensor = q4_0(integers, scales)
    made = quantize_groups(tensor.float32(), 32, held_groups(tensor, 32))
    np.testing.assert_array_equal(values(made), tensor.float32())
    assert made.error == 0 and made.carried == 32


def test_only_q4_0_in_groups_of_32_is_carried_over() -> None:
    weights = normal(4, 64)
    stored = {kind: StoredTensor(kind, (4, 64), gguf.quantize(weights, gguf.GGMLQuantizationType[kind]))
              for kind in ("Q4_0", "Q4_1", "Q8_0")}  # fmt: skip
    assert held_groups(stored["Q4_0"], 32) is not None and held_groups(stored["Q4_0"], 64) is None
    assert held_groups(stored["Q4_1"], 32) is None
    assert rows_of_q8_0(stored["Q4_0"]) is None
    exact = rows_of_q8_0(stored["Q8_0"])
    assert exact is not None and exact.group == 32 and exact.error == 0
    np.testing.assert_array_equal(exact.gather(), stored["Q8_0"].float32())
    np.testing.assert_array_equal(exact.gather(np.array([[2, 0]])), stored["Q8_0"].float32()[[[2, 0]]])
    assert exact.energy == pytest.approx(np.square(exact.gather()).sum(), rel=1e-5)


def test_nearest_rounding_is_no_better_than_the_search() -> None:
    weights = normal(40, 256)
    nearest = nearest_groups(weights, 32)
    steps = np.abs(weights).reshape(-1, 32).max(1) / 7.5
    assert (np.abs(nearest - weights).reshape(-1, 32).max(1) <= 0.54 * steps).all()
    assert quantize_groups(weights, 32).error < 0.95 * np.square(nearest - weights).sum()


def test_rows_of_int8() -> None:
    weights = normal(50, 96)
    made = quantize_rows(weights)
    assert made.integers.min() >= -127 and np.abs(weights - values(made)).max() <= made.scales.max() / 2 * 1.0001
    assert made.relative_error < 0.01


def test_zeros_stay_zeros() -> None:
    zeros = np.zeros((4, 64), np.float32)
    for made in (quantize_groups(zeros, 32), quantize_rows(zeros)):
        assert not made.integers.any() and (made.scales > 0).all() and made.relative_error == 0
