"""Operators of language models against those of the stock runtime, and what they reject."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.errors import ExecutionError
from edgewright.formats import schema
from edgewright.formats.pte_writer import write_program
from edgewright.ir.dtypes import ScalarType, bfloat16
from edgewright.runtime import Runtime
from edgewright.runtime.registry import KERNELS
from tests.support.build import PlanBuilder
from tests.support.stock import stock

TOLERANCE = {np.dtype(np.float32): 2e-6, np.dtype(np.float16): 2e-3, bfloat16: 1.6e-2}


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def both(name: str, *args: Any) -> tuple[list[Any], list[Any]]:
    """The result and the arguments after a call: ours, and stock's."""
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    with np.errstate(all="ignore"):
        result = KERNELS[f"llama::{name}.out"].fn(*copies)
    return [result, *copies], stock().call_eagerly(f"llama.{name}", args)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, bfloat16], ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("heads", "groups", "count", "start"), [(4, 2, 5, 3), (3, 1, 1, 7), (4, 4, 8, 0)])
def test_attention_over_a_cache(heads: int, groups: int, count: int, start: int, causal: bool, dtype: Any) -> None:
    query = normal(2, count, heads, 16, dtype=dtype)
    key, value = (normal(2, 12, groups, 16, dtype=dtype, seed=seed) for seed in (1, 2))
    ours, theirs = both("custom_sdpa", query, key, value, start, None, 0.0, causal, None)
    tolerance = TOLERANCE[np.dtype(dtype)]
    np.testing.assert_allclose(ours[0].astype(np.float32), theirs[0].astype(np.float32), tolerance, tolerance)


def test_attention_with_a_mask_and_a_scale() -> None:
    mask = np.where(np.tri(5, 12, 4) > 0, 0, -np.inf).astype(np.float32) + normal(5, 12)
    args = normal(1, 5, 4, 8), normal(1, 12, 2, 8, seed=1), normal(1, 12, 2, 8, seed=2), 3, mask, 0.0, False, 0.3
    ours, theirs = both("custom_sdpa", *args)
    np.testing.assert_allclose(ours[0], theirs[0], 2e-6, 2e-6)
    mask[2] = -np.inf
    ours, theirs = both("custom_sdpa", *args)
    assert np.isnan(ours[0][0, 2]).all()
    np.testing.assert_allclose(ours[0], theirs[0], 2e-6, 2e-6)


def test_attention_in_blocks_of_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    args = normal(1, 7, 4, 8), normal(1, 12, 2, 8, seed=1), normal(1, 12, 2, 8, seed=2), 4, None, 0.0, True, None
    expected = both("custom_sdpa", *args)[1][0]
    monkeypatch.setattr("edgewright.ir.core.cache._MAX_SCORES", 100)
    np.testing.assert_allclose(KERNELS["llama::custom_sdpa.out"].fn(*args), expected, 2e-6, 2e-6)


@pytest.mark.parametrize("transposed", [False, True])
def test_attention_of_int8(transposed: bool) -> None:
    rng = np.random.default_rng(0)
    arrays: list[Any] = []
    parameters: list[Any] = []
    for heads, length in ((4, 3), (2, 10), (2, 10)):
        shape = (1, heads, length, 16) if transposed else (1, length, heads, 16)
        arrays.append(rng.integers(-128, 128, shape, np.int8))
        parameters.append(rng.integers(-20, 20, (*shape[:3], 1), np.int8))
        parameters.append(rng.uniform(0.01, 0.03, (*shape[:3], 1)).astype(np.float32))
    ours, theirs = both("custom_quantized_sdpa", *arrays, 5, None, 0.0, True, None, *parameters, transposed)
    np.testing.assert_allclose(ours[0], theirs[0], 5e-6, 5e-6)


@pytest.mark.parametrize("size", [1e-30, 1e-3, 1, 1e6])
def test_rows_are_quantized_as_in_the_stock_runtime(size: float) -> None:
    """Bit for bit, also rows without a range, on one side of 0, and with a range below the smallest scale."""
    rows = normal(1, 200, 2, 64) * size * np.abs(normal(1, 200, 2, 1, seed=1)) + size * normal(1, 200, 2, 1, seed=2)
    rows = rows.astype(np.float32)
    rows[0, 0], rows[0, 1], rows[0, 2] = 0, np.abs(rows[0, 1]), -np.abs(rows[0, 2])
    name = "quantized_decomposed::choose_qparams_per_token_asymmetric.out"
    parameters = KERNELS[name].fn(rows, ScalarType.INT8)
    ours = KERNELS["quantized_decomposed::quantize_per_token.out"].fn(rows, *parameters, -128, 127, ScalarType.INT8)
    theirs = stock().run(row_quantization_program(rows.shape), "forward", [rows])
    for mine, stocks in zip((*parameters, ours), theirs, strict=True):
        np.testing.assert_array_equal(mine, stocks)


def row_quantization_program(shape: tuple[int, ...]) -> bytes:
    """Scales, zero points and int8 rows of its input."""
    plan = PlanBuilder()
    rows, out = plan.tensor(np.float32, shape), plan.tensor(np.int8, shape)
    scales, zeros = plan.tensor(np.float64, (*shape[:-1], 1)), plan.tensor(np.int64, (*shape[:-1], 1))
    int8, low, high = (plan.value(schema.Int(int_val=n)) for n in (ScalarType.INT8, -128, 127))
    both_results = plan.value(schema.TensorList(items=[scales, zeros]))
    name = "quantized_decomposed::choose_qparams_per_token_asymmetric.out"
    plan.call(name, [rows, int8, scales, zeros, both_results])
    plan.call("quantized_decomposed::quantize_per_token.out", [rows, scales, zeros, low, high, int8, out, out])
    plan.inputs, plan.outputs = [rows], [scales, zeros, out]
    return write_program(plan.program())


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8], ids=str)
def test_cache_updates(dtype: Any) -> None:
    value, cache = (10 * normal(2, 3, 2, 4)).astype(dtype), (10 * normal(2, 9, 2, 4, seed=1)).astype(dtype)
    ours, theirs = both("update_cache", value, cache, 6)
    assert ours[2].tobytes() == theirs[2].tobytes() != cache.tobytes()
    indices = np.array([[0, 8, 3], [5, 1, 1]])
    ours, theirs = both("update_cache_with_indices", value, cache, 0, indices)
    assert ours[2].tobytes() == theirs[2].tobytes() != cache.tobytes()


def test_cache_updates_and_attention_in_one_call() -> None:
    query, key, value = normal(1, 2, 4, 8), normal(1, 2, 2, 8, seed=1), normal(1, 2, 2, 8, seed=2)
    caches = [normal(1, 9, 2, 8, seed=seed) for seed in (3, 4)]
    ours, theirs = both("sdpa_with_kv_cache", query, key, value, *caches, 5, 2, None, 0.0, True, None)
    for index in (0, 4, 5):
        np.testing.assert_allclose(ours[index], theirs[index], 2e-6, 2e-6)
    assert not np.array_equal(ours[4], caches[0])


@pytest.mark.parametrize("width", [1, 2, 64, 28, 56, 112])
def test_hadamard_transform(width: int) -> None:
    ours, theirs = both("fast_hadamard_transform", normal(3, width))
    np.testing.assert_allclose(ours[0], theirs[0], 1e-5, 1e-5)


def cache_program(length: int) -> bytes:
    """Writes its input to a cache at its second input, and returns attention of the input to the cache."""
    plan = PlanBuilder()
    x, position = plan.tensor(np.float32, (1, 2, 1, 4)), plan.tensor(np.int64, (1,))
    cache, dummy = plan.tensor(np.float32, (1, length, 1, 4)), plan.tensor(np.float32, (1,))
    out, start, none = plan.tensor(np.float32, (1, 2, 1, 4)), plan.value(schema.Int()), plan.value(schema.Null())
    zero, true = plan.value(schema.Double()), plan.value(schema.Bool(bool_val=True))
    plan.call("aten::_local_scalar_dense", [position, start])
    plan.call("llama::update_cache.out", [x, cache, start, dummy, dummy])
    plan.call("llama::custom_sdpa.out", [x, cache, cache, start, none, zero, true, none, out, out])
    plan.inputs, plan.outputs = [x, position], [out]
    return write_program(plan.program())


def test_a_program_keeps_its_cache_from_call_to_call() -> None:
    program = cache_program(8)
    calls = [[normal(1, 2, 1, 4, seed=seed), np.array([2 * seed])] for seed in range(4)]
    expected = stock().run_many(program, "forward", calls)
    method = Runtime.get().load_program(program).load_method("forward")
    for call, outputs in zip(calls, expected, strict=True):
        np.testing.assert_allclose(method.execute(call)[0], outputs[0], 2e-6, 2e-6)


def test_positions_beyond_the_cache_are_an_error() -> None:
    method = Runtime.get().load_program(cache_program(8)).load_method("forward")
    for position in (7, -1, 2**62):
        with pytest.raises(ExecutionError, match="longer than the context"):
            method.execute([normal(1, 2, 1, 4), np.array([position])])


REJECTED: list[tuple[str, str, tuple[Any, ...]]] = [
    ("key heads", "custom_sdpa", (normal(1, 2, 3, 4), normal(1, 8, 2, 4), normal(1, 8, 2, 4), 0)),
    ("rank", "custom_sdpa", (normal(2, 3, 4), normal(1, 8, 2, 4), normal(1, 8, 2, 4), 0)),
    ("types", "custom_sdpa", (normal(1, 2, 2, 4), normal(1, 8, 2, 4, dtype=np.float16), normal(1, 8, 2, 4), 0)),
    ("past the end", "custom_sdpa", (normal(1, 2, 2, 4), normal(1, 8, 2, 4), normal(1, 8, 2, 4), 7)),
    ("mask", "custom_sdpa", (normal(1, 2, 2, 4), normal(1, 8, 2, 4), normal(1, 8, 2, 4), 0, normal(2, 7))),
    ("causal", "custom_sdpa", (*[normal(1, 8, 2, 4)] * 3, 0, normal(8, 8), 0.0, True)),
    ("scales", "custom_quantized_sdpa", (*[np.zeros((1, 8, 2, 4), np.int8)] * 3, 0)),
    ("length", "sdpa_with_kv_cache", (*[normal(1, 2, 2, 4)] * 3, *[normal(1, 8, 2, 4)] * 2, 0, 3)),
    ("width", "fast_hadamard_transform", (normal(2, 12),)),
    ("type", "fast_hadamard_transform", (normal(2, 16, dtype=bfloat16),)),
]


@pytest.mark.parametrize(("name", "args"), [case[1:] for case in REJECTED], ids=[case[0] for case in REJECTED])
def test_operands_that_are_rejected(name: str, args: tuple[Any, ...]) -> None:
    shape = KERNELS[f"llama::{name}.out"].shape
    assert shape is not None
    with pytest.raises((ValueError, IndexError)):
        shape(*args)


def test_indices_outside_the_cache_are_rejected() -> None:
    update = KERNELS["llama::update_cache_with_indices.out"].fn
    for indices in ([[0, 9]], [[-1, 0]], [[0]]):
        with pytest.raises((ValueError, IndexError)):
            update(normal(1, 2, 1, 4), normal(1, 9, 1, 4), 0, np.array(indices))
