"""Outputs that are inputs with rows written over: in place where that is right, and never seen where it is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.backends.xnnpack.numerics import XNNPACK
from edgewright.engine import CompiledGraph, compile
from edgewright.ir.core.execute import Executor
from edgewright.ir.graph import Graph, Op, Value
from tests.engine.graphs import cpus, dirty, graph, random, real

SHAPE = (2, 12, 24)


def put(x: Value, rows: Value, at: Value, name: str = "y") -> tuple[Value, Op]:
    y = real(name, *SHAPE)
    args = {"self": x, "indices": [None, at], "values": rows, "accumulate": False}
    return y, Op("core.index_put", args, [y])


def ends(count: int = 2) -> tuple[Value, Value, Value]:
    """A cache, new rows, and where they belong."""
    at = Value("at", np.dtype(np.int64), (count,), (0,))
    return real("x", *SHAPE), real("rows", 2, count, SHAPE[2]), at


def read(x: Value, name: str) -> tuple[Value, Op]:
    """What an operator makes of a value: its own memory."""
    y = real(name, *SHAPE)
    return y, Op("core.neg", {"self": x}, [y])


def given(made: Graph) -> list[Any]:
    return [random(v, i) if v.dtype == np.float32 else np.array([7, -10][: v.bound[0]])
            for i, v in enumerate(made.inputs)]  # fmt: skip


def check(made: Graph, compiled: CompiledGraph) -> None:
    """New arrays, others' arrays, and the input's own, all have the reference's results."""
    inputs = given(made)
    wanted = [w.copy() for w in Executor(made, XNNPACK).run(inputs)]
    dirty(compiled)
    for got, want in zip(compiled.run(inputs), wanted, strict=True):
        np.testing.assert_array_equal(got, want)
    kept = inputs[0].copy()
    outputs = [np.full_like(w, 7) for w in wanted]
    compiled.run(inputs, outputs)
    np.testing.assert_array_equal(inputs[0], kept, "an input that is elsewhere stays as it was")
    for got, want in zip(outputs, wanted, strict=True):
        np.testing.assert_array_equal(got, want)
    for output in range(len(wanted)):
        if wanted[output].shape == inputs[0].shape:
            over = [inputs[0] if i == output else np.empty_like(w) for i, w in enumerate(wanted)]
            compiled.run(inputs, over)
            for got, want in zip(over, wanted, strict=True):
                np.testing.assert_array_equal(got, want)
            inputs[0][...] = kept


def copies(compiled: CompiledGraph) -> list[str]:
    return [step.kernel for step in compiled.plan.steps if step.kernel.startswith("copy")]


@pytest.mark.parametrize("cpu", cpus())
def test_only_new_rows_are_written(cpu: str) -> None:
    x, rows, at = ends()
    y, op = put(x, rows, at)
    made = graph([x, rows, at], [y], op)
    compiled = compile(made, threads=1, cpu=cpu)
    assert compiled.plan.updates == ((0, 0),)
    assert not copies(compiled)
    check(made, compiled)


@pytest.mark.parametrize("cpu", cpus())
def test_what_is_made_of_the_new_value_reads_it_there(cpu: str) -> None:
    x, rows, at = ends()
    y, op = put(x, rows, at)
    flat = real("flat", 24, 24)
    scores = real("scores", 24, 24)
    turned = real("turned", 24, 24)
    view = Op("core.view", {"self": y, "size": [24, 24]}, [flat])
    turn = Op("core.permute", {"self": flat, "dims": [1, 0]}, [turned])
    product = Op("core.bmm", {"self": flat, "other": turned}, [scores])
    made = graph([x, rows, at], [scores, y], op, view, turn, product)
    compiled = compile(made, threads=1, cpu=cpu)
    assert compiled.plan.updates == ((1, 0),)
    assert not copies(compiled)
    inputs = given(made)
    wanted = [w.copy() for w in Executor(made, XNNPACK).run(inputs)]
    outputs = [np.empty_like(wanted[0]), inputs[0]]
    compiled.run(inputs, outputs)
    np.testing.assert_allclose(outputs[0], wanted[0], atol=2e-5)
    np.testing.assert_array_equal(outputs[1], wanted[1])


def test_the_old_value_is_read_before() -> None:
    x, rows, at = ends()
    old, first = read(x, "old")
    y, op = put(x, rows, at)
    made = graph([x, rows, at], [y, old], first, op)
    compiled = compile(made, threads=1)
    assert compiled.plan.updates == ((0, 0),)
    check(made, compiled)


def test_the_old_value_is_read_after() -> None:
    """Then it must still be there."""
    x, rows, at = ends()
    y, op = put(x, rows, at)
    old, later = read(x, "old")
    made = graph([x, rows, at], [y, old], op, later)
    compiled = compile(made, threads=1)
    assert compiled.plan.updates == ()
    check(made, compiled)


def test_the_old_value_is_shown() -> None:
    x, rows, at = ends()
    y, op = put(x, rows, at)
    made = graph([x, rows, at], [y, x], op)
    compiled = compile(made, threads=1)
    assert compiled.plan.updates == ()
    check(made, compiled)


def test_a_view_of_the_old_value_is_read_after() -> None:
    x, rows, at = ends()
    part, old = real("part", 2, 1, 24), real("old", 2, 1, 24)
    cut = Op("core.slice", {"self": x, "start": [0, 7, 0], "length": [2, 1, 24]}, [part])
    y, op = put(x, rows, at)
    made = graph([x, rows, at], [y, old], cut, op, Op("core.neg", {"self": part}, [old]))
    compiled = compile(made, threads=1)
    assert compiled.plan.updates == ()
    check(made, compiled)


def test_rows_of_the_old_value_are_written_to_it() -> None:
    x, _, at = ends(1)
    part = real("part", 2, 1, 24)
    cut = Op("core.slice", {"self": x, "start": [0, 3, 0], "length": [2, 1, 24]}, [part])
    y, op = put(x, part, at)
    made = graph([x, at], [y], cut, op)
    check(made, compile(made, threads=1))


def test_written_twice() -> None:
    x, rows, at = ends()
    more, there = real("more", 2, 1, 24), Value("there", np.dtype(np.int64), (1,), (0,))
    y, first = put(x, rows, at, "y")
    z, second = put(y, more, there, "z")
    made = graph([x, rows, at, more, there], [z], first, second)
    compiled = compile(made, threads=1)
    assert compiled.plan.updates == ((0, 0),)
    assert not copies(compiled)
    check(made, compiled)


def test_what_lies_between_is_shown() -> None:
    x, rows, at = ends()
    more, there = real("more", 2, 1, 24), Value("there", np.dtype(np.int64), (1,), (0,))
    y, first = put(x, rows, at, "y")
    z, second = put(y, more, there, "z")
    made = graph([x, rows, at, more, there], [z, y], first, second)
    check(made, compile(made, threads=1))


def test_two_new_values_of_one() -> None:
    x, rows, at = ends()
    y, first = put(x, rows, at, "y")
    z, second = put(x, rows, at, "z")
    made = graph([x, rows, at], [y, z], first, second)
    compiled = compile(made, threads=1)
    assert len(compiled.plan.updates) == 1
    check(made, compiled)


def test_shown_twice() -> None:
    x, rows, at = ends()
    y, op = put(x, rows, at)
    made = graph([x, rows, at], [y, y], op)
    compiled = compile(made, threads=1)
    assert len(compiled.plan.updates) == 1
    check(made, compiled)


def test_arrays_that_lie_across_each_other() -> None:
    """The input starts in the middle of the output's memory."""
    x, rows, at = ends()
    y, op = put(x, rows, at)
    made = graph([x, rows, at], [y], op)
    inputs = given(made)
    (want,) = Executor(made, XNNPACK).run(inputs)
    memory = np.zeros(2 * x.nbytes, np.uint8)
    source = memory[64 : 64 + x.nbytes].view(np.float32).reshape(SHAPE)
    target = memory[: x.nbytes].view(np.float32).reshape(SHAPE)
    source[...] = inputs[0]
    compile(made, threads=1).run([source, *inputs[1:]], [target])
    np.testing.assert_array_equal(target, want)
