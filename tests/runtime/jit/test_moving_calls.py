"""Calls on caches at a position that is known at run time, lowered and run by the engine, against the kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.engine.compiler import compile
from edgewright.errors import ExecutionError
from edgewright.formats.operator_signatures import operators
from edgewright.ir.dtypes import ScalarType, to_scalar_type
from edgewright.runtime.infer_shapes import RuntimeInt
from edgewright.runtime.jit.bind_call import lower_call
from edgewright.runtime.jit.graph_builder import GraphBuilder
from edgewright.runtime.registry import KERNELS
from edgewright.runtime.tensor import TensorSlot
from tests.engine.graphs import cpus, steps_in_python

START = 70  # the position, at run time
CHOOSE = "quantized_decomposed::choose_qparams_per_token_asymmetric.out"
QUANTIZE = "quantized_decomposed::quantize_per_token.out"


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def slot(array: np.ndarray) -> TensorSlot:
    return TensorSlot(to_scalar_type(array.dtype), array.shape, tuple(range(array.ndim)))


class Lowered:
    """A graph of calls; ``arrays`` are the contents of the slots from outside."""

    def __init__(self) -> None:
        self.builder, self.arrays = GraphBuilder(lambda _: False), dict[TensorSlot, Any]()

    def outside(self, array: np.ndarray) -> TensorSlot:
        made = slot(array)
        self.arrays[made] = array
        return made

    def call(self, key: str, arguments: list[Any], outs: list[TensorSlot]) -> bool:
        names = [a.name for a in operators()[key].inputs]
        return lower_call(self.builder, key, dict(zip(names, arguments, strict=True)), outs)

    def run(self, results: list[TensorSlot]) -> list[np.ndarray]:
        graph = self.builder.graph
        graph.outputs = self.builder.results(results)
        assert steps_in_python(graph, cpus()[-1]) == []
        inputs = [self.arrays[s] if s in self.arrays else np.array(START) for s in self.builder.input_slots]
        return list(compile(graph, threads=1).run([np.array(a) for a in inputs]))


def check(key: str, arguments: list[Any], results: list[int], tolerance: float) -> None:
    """Lower a call of which ``START`` is the position, and compare its result and the arguments ``results``."""
    lowered = Lowered()
    slots = [lowered.outside(a) if isinstance(a, np.ndarray) else RuntimeInt(9) if a is START else a for a in arguments]
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    expected = KERNELS[key].fn(*copies)
    out = slot(np.zeros(1, np.float32) if expected is None else expected)
    assert lowered.call(key, slots, [out])
    found = lowered.run([*([] if expected is None else [out]), *(slots[i] for i in results)])
    wanted = [*([] if expected is None else [expected]), *(copies[i] for i in results)]
    for mine, kernels in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, kernels, 0, tolerance * np.abs(kernels).max(initial=0))


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_cache_updates(dtype: Any, count: int) -> None:
    rows, cache = ((9 * normal(1, n, 2, 16)).astype(dtype) for n in (count, 96))
    check("llama::update_cache.out", [rows, cache, START], [1], 0)


@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_cache_updates_at_indices(dtype: Any) -> None:
    rows, cache = ((9 * normal(1, n, 2, 16)).astype(dtype) for n in (5, 96))
    indices = np.array([[94, 95, 0, 1, 0]])  # the last row of an index stays
    check("llama::update_cache_with_indices.out", [rows, cache, START, indices], [1], 0)


@pytest.mark.parametrize("operator", ["remainder", "add", "mul"])
def test_indices_that_the_graph_computes_must_be_in_range(operator: str) -> None:
    lowered, numbers = Lowered(), np.array([[94, 95, 96]])
    start, indices = lowered.outside(numbers), slot(numbers)
    rows, cache = normal(1, 3, 2, 16), normal(1, 96, 2, 16)
    operands = [start, 96, 1] if operator == "add" else [start, 96]
    assert lowered.call(f"aten::{operator}.Scalar_out", operands, [indices])
    slots = [lowered.outside(rows), lowered.outside(cache), 0, indices]
    bounded = lowered.call("llama::update_cache_with_indices.out", slots, [slot(np.zeros(1, np.float32))])
    assert bounded == (operator == "remainder")
    if bounded:
        (found,) = lowered.run([slots[1]])
        cache[0, [94, 95, 0]] = rows[0]
        np.testing.assert_array_equal(found, cache)


def test_updates_that_kernels_reject_are_left_to_them() -> None:
    rows, cache, indices = normal(1, 2, 2, 16), normal(1, 96, 2, 16), np.array([[0, 1]])
    for wrong in ((rows[:, :, :1], cache, indices), (rows, cache[0], indices), (rows, cache, indices[0]),
                  (rows, cache, indices.astype(np.int32)), (rows.astype(np.int8), cache, indices)):  # fmt: skip
        lowered = Lowered()
        slots: list[Any] = [lowered.outside(a) for a in wrong]
        slots.insert(2, 0)
        assert not lowered.call("llama::update_cache_with_indices.out", slots, [slot(np.zeros(1, np.float32))])


@pytest.mark.parametrize("count", [1, 5])
def test_updates_and_attention_in_one_call(count: int) -> None:
    query, key, value = normal(1, count, 4, 16), normal(1, count, 2, 16, seed=1), normal(1, count, 2, 16, seed=2)
    caches = [normal(1, 96, 2, 16, seed=seed) for seed in (3, 4)]
    arguments = [query, key, value, *caches, START, count, None, 0.0, True, None]
    check("llama::sdpa_with_kv_cache.out", arguments, [3, 4], 2e-6)


def int8_operands(count: int) -> tuple[list[Any], list[Any]]:
    """Queries, keys and values; zero points and scales of each."""
    rng, arrays, parameters = np.random.default_rng(0), [], []
    for heads, length in ((4, count), (2, 96), (2, 96)):
        arrays.append(rng.integers(-128, 128, (1, length, heads, 16), np.int8))
        parameters.append(rng.integers(-20, 20, (1, length, heads, 1), np.int8))
        parameters.append(rng.uniform(0.01, 0.03, (1, length, heads, 1)).astype(np.float32))
    return arrays, parameters


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("start", [START, 0])
@pytest.mark.parametrize("count", [1, 5])
def test_attention_of_int8(count: int, start: int, mask: bool) -> None:
    arrays, parameters = int8_operands(count)
    added = normal(count, 96) if mask else None
    arguments = [*arrays, start, added, 0.0, not mask, None, *parameters, False]
    check("llama::custom_quantized_sdpa.out", arguments, [], 6e-5 if count == 1 else 5e-6)


def test_operands_that_kernels_reject_are_left_to_them() -> None:
    arrays, parameters = int8_operands(1)
    for at, wrong in ((1, arrays[1][:, :, :1]), (3, 96), (3, -1), (4, normal(1, 95)), (9, None), (14, True)):
        arguments = [*arrays, 3, None, 0.0, False, None, *parameters, False]
        arguments[at] = wrong
        lowered = Lowered()
        slots = [lowered.outside(a) if isinstance(a, np.ndarray) else a for a in arguments]
        assert not lowered.call("llama::custom_quantized_sdpa.out", slots, [slot(arrays[0].astype(np.float32))]), at


class QuantizedRows:
    """Calls that quantize rows, as the exporter writes them: the parameters in 64 bits, casts, and the rows."""

    def __init__(self) -> None:
        self.lowered, self.rows = Lowered(), normal(1, 5, 2, 16)
        self.x, shape = self.lowered.outside(self.rows), (1, 5, 2, 1)
        self.scales, self.zeros = slot(np.empty(shape, np.float64)), slot(np.empty(shape, np.int64))
        assert self.lowered.call(CHOOSE, [self.x, ScalarType.INT8], [self.scales, self.zeros])

    def quantize(self, low: int = -128) -> tuple[bool, TensorSlot]:
        out = slot(self.rows.astype(np.int8))
        return self.lowered.call(QUANTIZE, [self.x, self.scales, self.zeros, low, 127, ScalarType.INT8], [out]), out

    def cast(self, source: TensorSlot, dtype: Any) -> tuple[bool, TensorSlot]:
        out = slot(np.empty(source.bound, dtype))
        return self.lowered.call("aten::_to_copy.out", [source, False, None], [out]), out


def test_rows_are_quantized() -> None:
    made = QuantizedRows()
    done, outs = zip(made.quantize(), made.cast(made.scales, np.float32), made.cast(made.zeros, np.int8), strict=True)
    assert done == (True, True, True)
    scales, zeros = KERNELS[CHOOSE].fn(made.rows, ScalarType.INT8)
    quantized = KERNELS[QUANTIZE].fn(made.rows, scales, zeros, -128, 127, ScalarType.INT8)
    expected = quantized, scales.astype(np.float32), zeros.astype(np.int8)
    for mine, kernels in zip(made.lowered.run(list(outs)), expected, strict=True):
        np.testing.assert_array_equal(mine, kernels)


def test_parameters_in_64_bits_stay_inside_of_a_graph() -> None:
    made = QuantizedRows()
    assert not made.quantize(low=-127)[0]
    for source, dtype in ((made.scales, np.float16), (made.zeros, np.int32), (made.zeros, np.float32)):
        assert not made.cast(source, dtype)[0]
    for escaping in (made.scales, made.zeros):
        with pytest.raises(ExecutionError, match="type that the graph computes"):
            made.lowered.builder.results([escaping])
