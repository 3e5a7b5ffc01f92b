"""Arrays that are bound to a compiled graph: validated once, and again if they change."""

from __future__ import annotations

import numpy as np

from edgewright.engine.compiler import compile
from edgewright.engine.jit.bound_arrays import BoundArrays
from edgewright.engine.jit.driver import CompiledGraph
from edgewright.ir.graph import Op
from tests.engine.graphs import graph, real


def added() -> CompiledGraph:
    a, b, out = real("a", 8), real("b", 8), real("o", 8)
    return compile(graph([a, b], [out], Op("core.add", {"self": a, "other": b}, [out])), threads=1)


def floats(value: float) -> np.ndarray:
    return np.full(8, value, np.float32)


def test_arrays_that_change_are_passed_again() -> None:
    compiled = added()
    bound, a, b, out = BoundArrays(compiled), floats(1), floats(2), floats(0)
    assert bound.run([a, b], [out])
    assert out[0] == 3
    a[:] = 5
    assert bound.run([a, b], [out])
    assert out[0] == 7
    assert bound.run([floats(10), b], [out])
    assert out[0] == 12
    other = floats(0)
    assert bound.run([a, b], [other])
    assert (out[0], other[0]) == (12, 7)


def test_calls_of_others_in_between() -> None:
    compiled = added()
    first, second = BoundArrays(compiled), BoundArrays(compiled)
    results = [floats(0), floats(0)]
    operands = [[floats(1), floats(2)], [floats(3), floats(4)]]
    for _ in range(2):
        assert first.run(operands[0], results[:1])
        assert second.run(operands[1], results[1:])
        assert compiled.run([floats(0), floats(0)])[0][0] == 0
        assert (results[0][0], results[1][0]) == (3, 7)
        operands[0][0] += 0


def test_what_cannot_be_bound_is_left_to_the_graph() -> None:
    bound, memory = BoundArrays(added()), np.zeros(24, np.float32)
    a, b, out = memory[:8], memory[8:16], memory[16:]
    assert bound.run([a, b], [out])
    assert not bound.run([a, b], [memory[4:12]])  # overlaps inputs
    assert not bound.run([memory[12:20], b], [out])
    assert bound.run([a, b], [out])
    assert not bound.run([memory[12:20], b], [out])  # only an input has changed
    assert not bound.run([a, memory[::2][:8]], [out])
    assert not bound.run([a, b.astype(np.float64)], [out])
    assert not bound.run([a, b], [None])
    frozen = np.zeros(8, np.float32)
    frozen.flags.writeable = False
    assert not bound.run([a, b], [frozen])
    assert bound.run([frozen, b], [out])
