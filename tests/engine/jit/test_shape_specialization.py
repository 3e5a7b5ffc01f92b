"""Graphs whose sizes vary: kernels are compiled for the first sizes and do for all others, with the same results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from edgewright.backends.xnnpack.numerics import XNNPACK
from edgewright.engine import Specialized
from edgewright.engine.profile import Profile
from edgewright.ir.core.execute import Executor
from edgewright.ir.graph import Graph, Op, Value
from tests.engine.graphs import biases, constant, cpus, filters, graph, random, real
from tests.engine.lower.test_dynamic_gemm import linear as rows_times
from tests.engine.lower.test_dynamic_gemm import weights

LENGTHS = (37, 2, 5, 16, 64, 77, 128)
MOST = 128


def op(kind: str, *shape: int, **args: Any) -> tuple[Value, Op]:
    out = real("y", *shape)
    return out, Op(f"core.{kind}", args, [out])


def linear(x: Value, width: int, seed: int = 1) -> tuple[Value, Op]:
    weight = filters(width, x.bound[-1], quantize=False, seed=seed)
    return op("linear", *x.bound[:-1], width, input=x, weight=weight, bias=biases(width, False), transposed=False)


def layer(batch: int = 1, width: int = 48, heads: int = 3) -> Graph:
    """Attention as a transformer has it, a sum, a norm, and a gate: the length of the sequence is left open."""
    x = real("x", batch, MOST, width)
    each, ops = width // heads, []

    def add(made: tuple[Value, Op]) -> Value:
        ops.append(made[1])
        return made[0]

    def split(v: Value) -> Value:
        cut = add(op("view", batch, MOST, heads, each, self=v, size=[batch, 0, heads, each]))
        return add(op("permute", batch, heads, MOST, each, self=cut, dims=[0, 2, 1, 3]))

    query, key, value = (split(add(linear(x, width, seed))) for seed in (3, 4, 5))
    turned = add(op("permute", batch, heads, each, MOST, self=key, dims=[0, 1, 3, 2]))
    scores = add(op("bmm", batch, heads, MOST, MOST, self=query, other=turned))
    scores = add(op("mul", *scores.bound, self=scores, other=constant(np.float32([0.3]))))
    shares = add(op("softmax", *scores.bound, self=scores))
    mixed = add(op("bmm", batch, heads, MOST, each, self=shares, other=value))
    mixed = add(op("permute", batch, MOST, heads, each, self=mixed, dims=[0, 2, 1, 3]))
    mixed = add(op("view", batch, MOST, width, self=mixed, size=[batch, 0, width]))
    y = add(op("add", *x.bound, self=add(linear(mixed, width, 6)), other=x))
    y = add(op("layer_norm", *x.bound, input=y, normalized_shape=[width], weight=None, bias=None, eps=1e-5))
    gate = add(op("sigmoid", batch, MOST, 20, self=add(linear(y, 20, 7))))
    joined = add(op("cat", batch, MOST, 20 + width, tensors=[gate, y], dim=-1))
    return graph([x], [joined], *ops)


def check(made: Graph, special: Specialized, given: Sequence[Any], bound: float = 3e-6) -> None:
    for got, want in zip(special.run(given), Executor(made, XNNPACK).run(given), strict=True):
        assert got.shape == want.shape
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        scale = max(float(np.nanmax(np.abs(want), initial=0)), 1e-6)
        assert float(np.nanmax(np.abs(got - want), initial=0)) <= bound * scale


@pytest.mark.parametrize("cpu", cpus())
def test_a_layer_is_compiled_once(cpu: str) -> None:
    made = layer()
    special = Specialized(made, threads=1, dynamic=True, cpu=cpu)
    for length in LENGTHS:
        check(made, special, [random(real("x", 1, length, 48), length)])
    assert special.specializer.compilations == 1


@pytest.mark.parametrize("cpu", cpus())
def test_a_layer_of_two_sequences(cpu: str) -> None:
    made = layer(2)
    special = Specialized(made, threads=2, dynamic=True, cpu=cpu)
    for length in (33, 3, 128):
        check(made, special, [random(real("x", 2, length, 48), length)])
    assert special.specializer.compilations == 1


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("dims", [[0, 1], [1, 0], [2, 1]])
@pytest.mark.parametrize("shape", [(3, 40, 50), (1, 7, 3), (2, 1, 1), (4, 15, 129)])
def test_products_of_any_sizes(cpu: str, dims: list[int], shape: tuple[int, int, int]) -> None:
    """Rows, depth and columns all vary; the second operand lies as it is, turned, or anyhow."""
    most = {"n": 130, "k": 130, "m": 130}
    a, sizes = real("a", 4, most["n"], most["k"]), shape
    plain = {0: (4, most["k"], most["m"]), 1: (4, most["m"], most["k"]), 2: (most["k"], most["m"], 4)}[dims[0]]
    order = {0: [0, 1, 2], 1: [0, 2, 1], 2: [2, 0, 1]}[dims[0]]
    b = real("b", *plain)
    turned, turn = op("permute", 4, most["k"], most["m"], self=b, dims=order)
    out, multiply = op("bmm", 4, most["n"], most["m"], self=a, other=turned)
    made = graph([a, b], [out], turn, multiply)
    special = Specialized(made, threads=1, dynamic=True, cpu=cpu)
    for batch, rows, columns in (sizes, (2, 29, 31), (1, 130, 17)):
        depth = (rows * 7) % 130 + 1
        natural = (batch, depth, columns)
        shapes = (batch, rows, depth), tuple(natural[order.index(d)] for d in range(3))
        check(made, special, [random(real("x", *s), i) for i, s in enumerate(shapes)])


@pytest.mark.parametrize("cpu", cpus())
def test_softmax_of_extreme_rows(cpu: str) -> None:
    x = real("x", 6, 200)
    y, soft = op("softmax", 6, 200, self=x)
    made = graph([x], [y], soft)
    special = Specialized(made, threads=1, dynamic=True, cpu=cpu)
    for length in (1, 3, 8, 15, 16, 17, 31, 33, 200):
        given: Any = random(real("x", 5, length), length) * 30
        given[0, -1], given[1, :] = -np.inf, 1e30
        given[2, length // 2] = 3e38
        with np.errstate(invalid="ignore"):  # a row of nothing but -inf has no shares
            check(made, special, [given])
    assert special.specializer.compilations == 1


@pytest.mark.parametrize("cpu", cpus())
def test_elements_of_other_types(cpu: str) -> None:
    """Copies of eight, two and one bytes: no element more or less."""
    for dtype in (np.int64, np.int16, np.int8, np.float32):
        kind = np.dtype(dtype)
        x = Value("x", kind, (3, 70, 5), (0, 1, 2))
        y = Value("y", kind, (3, 140, 5), (0, 1, 2))
        made = graph([x], [y], Op("core.cat", {"tensors": [x, x], "dim": 1}, [y]))
        special = Specialized(made, threads=1, dynamic=True, cpu=cpu)
        for length in (70, 13):
            given = np.random.default_rng(length).integers(-100, 100, (3, length, 5)).astype(kind)
            (got,) = special.run([given])
            np.testing.assert_array_equal(got, np.concatenate([given, given], 1))


@pytest.mark.sample(2)
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize(("bits", "block"), [(8, None), (4, None), (4, 32)])
def test_rows_quantized_by_their_own_range_are_exact(cpu: str, bits: int, block: int | None) -> None:
    made = rows_times((1, MOST, 96), weights(70, 96, bits, block))
    special = Specialized(made, threads=1, dynamic=True, cpu=cpu)
    for length in (40, 1, 6, 128):
        given = [random(real("x", 1, length, 96), length)]
        (want,), (got,) = Executor(made, XNNPACK).run(given), special.run(given)
        if block is None:
            np.testing.assert_array_equal(got, want)
        else:
            np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * float(np.abs(want).max()))
    assert special.specializer.compilations == 2  # a single row has a kernel of its own


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("dim", [[1], [2], [0, 1]])
@pytest.mark.parametrize("kind", ["mean", "sum", "amax"])
def test_reductions_of_any_number_of_rows(cpu: str, dim: list[int], kind: str) -> None:
    x = real("x", 3, MOST, 37)
    left = [n for d, n in enumerate(x.bound) if d not in dim]
    y, reduce = op(kind, *left, self=x, dim=dim, keepdim=False)
    made = graph([x], [y], reduce)
    special = Specialized(made, threads=1, dynamic=True, cpu=cpu)
    for length in (5, 128, 64):
        check(made, special, [random(real("x", 3, length, 37), length)])
    assert special.specializer.compilations == 1


@pytest.mark.parametrize("cpu", cpus())
def test_places_of_any_number(cpu: str) -> None:
    """Rows are looked up, and written to a cache."""
    at, table = Value("at", np.dtype(np.int64), (MOST,), (0,)), constant(np.random.default_rng(0).random((9, 20), "f4"))
    rows, embed = op("embedding", MOST, 20, weight=table, indices=at)
    kept = real("kept", 9, 20)
    new, put = op("index_put", 9, 20, self=kept, indices=[at], values=rows, accumulate=False)
    made = graph([at, kept], [new], embed, put)
    special = Specialized(made, threads=1, dynamic=True, cpu=cpu)
    for length in (4, 1, 30):
        places = np.random.default_rng(length).integers(0, 9, length)
        check(made, special, [places, random(kept, 1)], 0)
    assert special.specializer.compilations == 1


def test_what_is_compiled_for_its_shape_says_so() -> None:
    x, y = real("x", 1, 1, 20, 8), real("y", 1, 1, 20, 6)
    args = {"input": x, "weight": filters(6, 1, 3, 8, quantize=False), "bias": None, "stride": [1, 1],
            "padding": [0, 0, 1, 1], "dilation": [1, 1], "groups": 1, "output_padding": [0, 0]}  # fmt: skip
    made = graph([x], [y], Op("core.conv2d", args, [y]))
    special = Specialized(made, threads=1, dynamic=True)
    labels = []
    for length in (20, 9, 20):
        profile = Profile()
        given = random(real("x", 1, 1, length, 8))
        (want,) = Executor(made, XNNPACK).run([given])
        np.testing.assert_allclose(special.run([given], profile)[0], want, atol=1e-5)
        labels.append(" ".join(row.name for row in profile.part_rows()))
    assert special.specializer.compilations == 2
    assert "compiled for this shape" not in labels[0] + labels[2]
    assert "conv2d (compiled for this shape)" in labels[1]


def test_weights_are_packed_once() -> None:
    special = Specialized(layer(), threads=1, dynamic=True)
    forms = [special.compiled([(1, n, 48)]) for n in (20, 30)]
    assert forms[0].plan.shared is forms[1].plan.shared
    assert len(forms[0].plan.shared) == 5
    assert forms[1].plan.weights.nbytes < 4096
