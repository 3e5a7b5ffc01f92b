"""Rows quantized by their own range, and weights of 8 and 4 bits: what the reference makes, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgewright.backends.xnnpack.numerics import XNNPACK
from edgewright.engine import make_plan
from edgewright.ir.core.execute import Executor
from edgewright.ir.dtypes import bfloat16
from edgewright.ir.graph import Graph, Op, QParams, Value
from tests.engine.graphs import I8, biases, compare, constant, cpus, graph, random, real, run, steps_in_python


def rows(shape: tuple[int, ...], axis: int = -1) -> Value:
    q = QParams(1.0, 0, I8, -128, 127, axis=axis, dynamic="per_token")
    return Value("rows", I8, shape, tuple(range(len(shape))), q=q)


def weights(
    columns: int, depth: int, bits: int, block: int | None = None, per_channel: bool = True, seed: int = 1
) -> Value:
    rng = np.random.default_rng(seed)
    low, high = (-8, 7) if bits == 4 else (-127, 127)
    count = columns * (depth // block if block else 1)
    scales: Any = (rng.random(count) * 0.02 + 0.001).astype(np.float32)
    scales = scales.astype(bfloat16).astype(np.float32) if block else scales
    least = -8 if bits == 4 else -128
    q = QParams(tuple(scales.tolist()) if per_channel else 0.01, 0, I8, least, high, 0 if per_channel else None, block)
    return constant(rng.integers(low, high + 1, (columns, depth)).astype(np.int8), q)


def linear(shape: tuple[int, ...], weight: Value, biased: bool = True, **args: Any) -> Graph:
    x, stored, y = real("x", *shape), rows(shape), real("y", *shape[:-1], weight.bound[0])
    bias = biases(weight.bound[0], False) if biased else None
    product = Op("core.linear", {"input": stored, "weight": weight, "bias": bias, "transposed": False, **args}, [y])
    return graph([x], [y], Op("core.convert", {"self": x}, [stored]), product)


def exactly(made: Graph, cpu: str, scale: float = 1.0) -> None:
    assert steps_in_python(made, cpu) == []
    given = [random(made.inputs[0]) * np.float32(scale)]
    np.testing.assert_array_equal(run(made, given, cpu)[0], Executor(made, XNNPACK).run(given)[0])


@pytest.mark.sample(7)
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("shape", [(1, 40), (1, 257), (7, 64), (2, 13, 100), (30, 3)])
@pytest.mark.parametrize("columns", [1, 16, 70, 200])
def test_a_scale_for_each_column_is_exact(cpu: str, bits: int, shape: tuple[int, ...], columns: int) -> None:
    exactly(linear(shape, weights(columns, shape[-1], bits), columns % 2 == 0, limits=(-0.5, 3.0)), cpu)


@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e6])
def test_rows_of_any_size(scale: float) -> None:
    exactly(linear((5, 48), weights(20, 48, 8, per_channel=False)), cpus()[-1], scale)


def test_rows_on_one_side_of_zero() -> None:
    made = linear((3, 40), weights(9, 40, 8))
    x = np.abs(random(made.inputs[0])) * np.array([[1], [-1], [0]], np.float32)
    np.testing.assert_array_equal(run(made, [x], cpus()[-1])[0], Executor(made, XNNPACK).run([x])[0])


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize(("shape", "block"), [((1, 64), 32), ((1, 256), 64), ((9, 96), 32), ((2, 5, 64), 8)])
@pytest.mark.parametrize("columns", [10, 130])
def test_a_scale_for_each_block_is_close(cpu: str, bits: int, shape: tuple[int, ...], block: int, columns: int) -> None:
    """The reference sums blocks in double precision, the engine in single."""
    made = linear(shape, weights(columns, shape[-1], bits, block))
    compare(made, [random(made.inputs[0])], cpu, 3e-6)


@pytest.mark.parametrize("cpu", cpus())
def test_scales_of_blocks_that_need_all_their_bits(cpu: str) -> None:
    weight = weights(40, 96, 4, 32)
    assert weight.q is not None
    q = replace(weight.q, scale=tuple((np.asarray(weight.q.scale) * 1.0009).tolist()))
    made = linear((3, 96), constant(weight.data, q))
    assert make_plan(made, 1, cpu=cpu).weights.nbytes > make_plan(linear((3, 96), weight), 1, cpu=cpu).weights.nbytes
    compare(made, [random(made.inputs[0])], cpu, 3e-6)


@pytest.mark.parametrize("bits", [8, 4])
def test_weights_that_no_near_cache_holds(bits: int) -> None:
    exactly(linear((20, 1040), weights(600, 1040, bits)), cpus()[-1])


@pytest.mark.parametrize("cpu", cpus())
def test_pixels(cpu: str) -> None:
    """A pointwise convolution: each pixel has a range of its own."""
    weight = weights(24, 16, 8)
    weight = constant(np.asarray(weight.data).reshape(24, 1, 1, 16), weight.q)
    x, stored, y = real("x", 2, 3, 5, 16), rows((2, 3, 5, 16), -3), real("y", 2, 3, 5, 24)
    args = {"stride": [1, 1], "padding": [0, 0, 0, 0], "dilation": [1, 1], "groups": 1, "output_padding": [0, 0]}
    product = Op("core.conv2d", {"input": stored, "weight": weight, "bias": biases(24, False), **args}, [y])
    exactly(graph([x], [y], Op("core.convert", {"self": x}, [stored]), product), cpu)


def test_rows_are_made_once_and_what_follows_is_done_at_once() -> None:
    x, stored, out, last = real("x", 6, 32), rows((6, 32)), real("y", 6, 48), real("z", 6, 48)
    other, more = real("o", 6, 8), weights(8, 32, 4)
    ops = [
        Op("core.convert", {"self": x}, [stored]),
        Op("core.linear", {"input": stored, "weight": weights(48, 32, 8), "bias": None, "transposed": False}, [out]),
        Op("core.tanh", {"self": out}, [last]),
        Op("core.linear", {"input": stored, "weight": more, "bias": None, "transposed": False}, [other]),
    ]
    made = graph([x], [last, other], *ops)
    assert [s.label for s in make_plan(made, 1).steps] == ["convert", "linear+tanh", "linear"]
    compare(made, [random(x)], cpus()[-1])
