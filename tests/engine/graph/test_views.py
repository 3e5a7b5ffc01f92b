"""Values that are moved on the way between products and functions: seen where they are, not copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewright.engine import make_plan
from edgewright.engine.graph.layout import restride
from edgewright.ir.graph import Graph, Op, Value
from tests.engine.graphs import biases, compare, constant, cpus, filters, graph, layouts, quantized, random, real


class Builder:
    """Operators one after the other."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def __call__(builder, kind: str, shape: tuple[int, ...], /, **args: Any) -> Value:  # noqa: N805  (``self`` is an argument)
        out = real(f"v{len(builder.ops)}", *shape)
        builder.ops.append(Op(f"core.{kind}", args, [out]))
        return out


def attention(rows: int = 19, heads: int = 4, width: int = 8) -> Graph:
    """As a transformer has it: queries, keys and values are cut from one product, heads are turned outside."""
    whole, b, x = heads * width, Builder(), real("x", rows, heads * width)
    made = b("linear", (rows, 3 * whole), input=x, weight=filters(3 * whole, whole, quantize=False),
             bias=biases(3 * whole, False), transposed=False)  # fmt: skip
    cut = b("permute", (3, rows, whole), self=b("view", (rows, 3, whole), self=made, size=[rows, 3, whole]),
            dims=[1, 0, 2])  # fmt: skip
    parts = []
    for i in range(3):
        part = b("slice", (1, rows, whole), self=cut, start=[i, 0, 0], length=[1, rows, whole])
        split = b("view", (rows, heads, width), self=part, size=[rows, heads, width])
        parts.append(b("permute", (heads, rows, width), self=split, dims=[1, 0, 2]))
    scaled = b("mul", (heads, rows, width), self=parts[0], other=constant(np.array([0.3], np.float32)))
    turned = b("permute", (heads, width, rows), self=parts[1], dims=[0, 2, 1])
    shares = b("softmax", (heads, rows, rows), self=b("bmm", (heads, rows, rows), self=scaled, other=turned))
    mixed = b("bmm", (heads, rows, width), self=shares, other=parts[2])
    joined = b("permute", (rows, heads, width), self=mixed, dims=[1, 0, 2])
    flat = b("view", (rows, whole), self=joined, size=[rows, whole])
    out = b("linear", (rows, whole), input=flat, weight=filters(whole, whole, quantize=False), bias=None,
            transposed=False)  # fmt: skip
    return graph([x], [out], *b.ops)


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("rows", [1, 3, 19, 33])
def test_attention_moves_nothing(cpu: str, rows: int) -> None:
    made = attention(rows)
    compare(made, [random(made.inputs[0])], cpu, 1e-5)
    first, *labels = [s.label for s in make_plan(made, 1, cpu=cpu).steps]
    assert first == "clone"  # an input is copied in
    assert set(labels) <= {"linear", "mul", "bmm", "softmax", "attention"}


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_restride_is_numpys(data: Any) -> None:
    """numpy reshapes without a copy exactly where strides exist."""
    shape = data.draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4))
    order = data.draw(st.permutations(range(len(shape))))
    array = np.zeros([shape[i] for i in order], np.float32).transpose(np.argsort(order))
    left, wanted = int(np.prod(shape)), list[int]()
    while left > 1 and len(wanted) < 4:
        wanted.append(data.draw(st.sampled_from([n for n in range(2, left + 1) if left % n == 0])))
        left //= wanted[-1]
    wanted.append(left)
    found = restride(array.shape, array.strides, wanted, 4)
    reshaped = array.reshape(wanted)
    assert (found is not None) == np.shares_memory(array, reshaped)
    if found is not None:
        kept = [i for i, n in enumerate(wanted) if n != 1]
        assert [found[i] for i in kept] == [reshaped.strides[i] for i in kept]


MOVES = ["permute", "slice", "view", "clone"]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_chains_of_moves(data: Any) -> None:
    """Any run of moves between a function and a product."""
    b, x = Builder(), real("x", 4, 6, 8)
    value = b("exp", (4, 6, 8), self=x) if data.draw(st.booleans()) else x
    for kind in data.draw(st.lists(st.sampled_from(MOVES), max_size=4)):
        value = _moved(data, b, kind, value)
    last = data.draw(st.sampled_from(["exp", "bmm", "linear", "softmax", "two"]))
    outputs = [_read(b, last, value)]
    if last == "two":
        outputs.append(b("abs", value.bound, self=value))
    made = graph([x], outputs, *b.ops)
    compare(made, [random(x)], cpus()[-1], 1e-5)


def _moved(data: Any, b: Builder, kind: str, value: Value) -> Value:
    shape = value.bound
    if kind == "permute":
        dims = list(data.draw(st.permutations(range(len(shape)))))
        return b("permute", tuple(shape[d] for d in dims), self=value, dims=dims)
    if kind == "slice":
        starts = [data.draw(st.integers(0, n - 1)) for n in shape]
        lengths = [data.draw(st.integers(1, n - a)) for n, a in zip(shape, starts, strict=True)]
        return b("slice", tuple(lengths), self=value, start=starts, length=lengths)
    if kind == "view":
        size = list(data.draw(st.sampled_from([shape[::-1], (*shape, 1), (int(np.prod(shape)),), (1, *shape)])))
        return b("view", tuple(size), self=value, size=size)
    return b("clone", shape, self=value)


def _read(b: Builder, kind: str, value: Value) -> Value:
    shape = value.bound
    if kind == "bmm" and len(shape) > 1:
        return b("bmm", (*shape[:-2], shape[-1], shape[-1]),
                 self=b("permute", (*shape[:-2], shape[-1], shape[-2]), self=value, dims=_turned(len(shape))),
                 other=value)  # fmt: skip
    if kind == "linear":
        return b("linear", (*shape[:-1], 5), input=value, weight=filters(5, shape[-1], quantize=False), bias=None,
                 transposed=False)  # fmt: skip
    return b("softmax" if kind == "softmax" else "exp", shape, self=value)


def _turned(rank: int) -> list[int]:
    return [*range(rank - 2), rank - 1, rank - 2]


@pytest.mark.parametrize("cpu", cpus())
def test_long_rows_are_padded(cpu: str) -> None:
    """Rows of a power of two would map to the same sets of the cache; everything else sees no difference."""
    b, x = Builder(), real("x", 1, 5, 16)
    wide = b("linear", (1, 5, 1024), input=x, weight=filters(1024, 16, quantize=False), bias=None, transposed=False)
    flat = b("view", (5, 1024), self=b("abs", (1, 5, 1024), self=wide), size=[5, 1024])
    out = b("linear", (5, 8), input=flat, weight=filters(8, 1024, quantize=False), bias=None, transposed=False)
    also = b("softmax", (5, 1024), self=b("neg", (5, 1024), self=flat))
    made = graph([x], [out, also], *b.ops)
    assert layouts(made, cpu)[flat.name].strides == (4096 + 64, 4)
    compare(made, [random(x)], cpu, 1e-5)


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("width", [20, 32, 48])
def test_slices_of_int8_are_read_in_place(cpu: str, width: int) -> None:
    """A part of a layer's result, by operators that need nothing beside it, and by a layer that does."""
    x, joined = quantized("x", 5, 24), quantized("j", 5, 3 * width, scale=0.2)
    weight, other = filters(3 * width, 24, quantize=True), filters(16, width, quantize=True)
    cut, turned, split = (quantized(n, *s, scale=0.2) for n, s in
                          (("c", (5, width)), ("t", (width, 5)), ("s", (5, width // 4, 4))))  # fmt: skip
    outs = [real("a", 5, width), real("b", width, 5), real("d", 5, width // 4, 4), quantized("e", 5, 16, scale=2.0)]
    first = {"input": x, "weight": weight, "bias": biases(3 * width, True), "transposed": False}
    second = {"input": cut, "weight": other, "bias": biases(16, True), "transposed": False}
    ops = [
        Op("core.linear", first, [joined]),
        Op("core.slice", {"self": joined, "start": [0, width], "length": [5, width]}, [cut]),
        Op("core.permute", {"self": cut, "dims": [1, 0]}, [turned]),
        Op("core.view", {"self": cut, "size": [5, width // 4, 4]}, [split]),
        *(Op("core.convert", {"self": v}, [o]) for v, o in zip((cut, turned, split), outs, strict=False)),
    ]
    alone = graph([x], outs[:3], *ops)
    compare(alone, [random(x)], cpu)
    labels = [s.label for s in make_plan(alone, 1, cpu=cpu).steps]
    assert "slice" not in labels, "nothing needs a copy"
    compare(graph([x], outs, *ops, Op("core.linear", second, [outs[3]])), [random(x)], cpu)
