"""Sums and changes of scale of 16 bits: the meaning is what the rule says, and machine code gives the same integers."""

from __future__ import annotations

import numpy as np
import pytest

from edgewright import engine
from edgewright.backends.qualcomm.dialect import DIALECT
from edgewright.backends.qualcomm.dialect.int16 import int16_rescale_params, int16_sum_params
from edgewright.backends.qualcomm.dialect.numerics import QNN
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from tests.engine.vendors import cpus

WORD = np.dtype(np.uint16)
SCALES = [
    ((1e-4, 32768), (1e-4, 32768), (2e-4, 32768)), ((6.4e-5, 35888), (5.8e-5, 12072), (1.2e-4, 24000)),
    ((9.1e-5, 0), (1.4e-4, 35939), (2.3e-4, 21845)), ((1.5e-5, 0), (1.8e-4, 2241), (1.9e-4, 2000)),
    ((1e-3, 65535), (1e-3, 65535), (1e-5, 0)), ((1e-3, 0), (1e-6, 65535), (3e-7, 65535)),
    ((1e-2, 30000), (1e-6, 65535), (3e-7, 100)),
]  # fmt: skip
ENDS = np.array([0, 1, 2, 32766, 32767, 32768, 32769, 65533, 65534, 65535], np.uint16)


def tensor(name: str, shape: tuple[int, ...], scale: float, zero: int) -> Value:
    return Value(name, WORD, shape, tuple(range(len(shape))), q=QParams(scale, zero, WORD, 0, 65535))


def mixed(shape: tuple[int, ...], seed: int) -> Array:
    """Random integers, the ends of the range among them."""
    made = np.random.default_rng(seed).integers(0, 65536, shape).astype(np.uint16)
    flat = made.reshape(-1)
    flat[: ENDS.size] = ENDS[: flat.size]
    return made


def graph_of(kind: str, shapes: list[tuple[int, ...]], scales: list[tuple[float, int]]) -> Graph:
    names = ("a", "b", "c")
    *given, out = (tensor(n, s, *q) for n, s, q in zip(names, shapes, scales, strict=False))
    return Graph("words", given, [out], [Op(f"qnn.{kind}", {"inputs": given}, [out])])


def same_in_machine_code(graph: Graph, given: list[Array]) -> None:
    (wanted,) = DIALECT.execute(graph, given)
    for cpu in cpus():
        compiled = engine.compile(graph, threads=1, numerics=QNN, cpu=cpu)
        assert not [step.label for step in compiled.plan.steps if step.python is not None]
        assert np.array_equal(compiled.run(given)[0], wanted), cpu


@pytest.mark.sample(4)
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("kind", ["ElementWiseAdd", "ElementWiseSubtract"])
@pytest.mark.parametrize("shapes", [[(2, 7, 5, 3)] * 3, [(2, 5, 13), (13,), (2, 5, 13)], [(1,), (3, 19), (3, 19)]])
def test_sums(kind: str, shapes: list[tuple[int, ...]], scales: list[tuple[float, int]]) -> None:
    graph = graph_of(kind, shapes, list(scales))
    given = [mixed(v.bound, seed) for seed, v in enumerate(graph.inputs)]
    same_in_machine_code(graph, given)
    apart = scales[0][0] / scales[2][0] > 8192
    assert (int16_sum_params(graph.ops[0]) is None) == apart  # in single precision then
    if apart:
        return
    real = [(x.astype(np.float64) - q[1]) * np.float32(q[0]) for x, q in zip(given, scales, strict=False)]
    exact = (real[0] + real[1] if kind.endswith("Add") else real[0] - real[1]) / np.float32(scales[2][0]) + scales[2][1]
    # A factor is at most half a unit of 15 bits off, for either operand; then comes the last rounding.
    unit = max(q[0] for q in scales[:2]) / scales[2][0] / 2**14
    assert np.abs(DIALECT.execute(graph, given)[0] - np.clip(exact, 0, 65535)).max() <= 1 + unit * 65536


@pytest.mark.parametrize("scales", SCALES)
def test_changes_of_scale(scales: list[tuple[float, int]]) -> None:
    graph = graph_of("Convert", [(2, 37, 5), (2, 37, 5)], [scales[0], scales[2]])
    apart = scales[0][0] / scales[2][0] > 8192
    assert (int16_rescale_params(graph.inputs[0], graph.outputs[0]) is None) == apart
    same_in_machine_code(graph, [mixed((2, 37, 5), 3)])


LIMITS = {"Relu": {}, "Relu6": {}, "ReluMinMax": {"min_value": -1.25, "max_value": 0.75}}


@pytest.mark.sample(7)
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("kind", LIMITS)
def test_limits_are_those_of_a_change_of_scale(kind: str, scales: list[tuple[float, int]]) -> None:
    graph = graph_of(kind, [(2, 37, 5), (2, 37, 5)], [scales[0], scales[2]])
    graph.ops[0].args.update(LIMITS[kind])
    given = [mixed((2, 37, 5), 4)]
    same_in_machine_code(graph, given)
    made, q = DIALECT.execute(graph, given)[0].astype(np.float64), graph.outputs[0].q
    low, high = {"Relu": (0, np.inf), "Relu6": (0, 6), "ReluMinMax": (-1.25, 0.75)}[kind]
    assert q is not None
    least, most = (np.clip(n / q.scale + scales[2][1], 0, 65535) for n in (low, high))
    assert made.min() >= least - 0.51 and made.max() <= most + 0.51


def test_scales_that_are_alike_add_exactly() -> None:
    """Zeros at the middle, factors of one: integers are added, and beyond the last they stay the last."""
    graph = graph_of("ElementWiseAdd", [(4, 9)] * 3, [(1e-4, 32768)] * 3)
    a, b = mixed((4, 9), 1), mixed((4, 9), 2)
    wanted = np.clip(a.astype(np.int64) + b - 32768, 0, 65535)
    assert np.array_equal(DIALECT.execute(graph, [a, b])[0], wanted)


def test_a_rounding_half_goes_up() -> None:
    graph = graph_of("ElementWiseAdd", [(4,)] * 3, [(1e-4, 0), (1e-4, 0), (2e-4, 0)])
    a, b = np.array([0, 1, 2, 3], np.uint16), np.array([1, 1, 1, 1], np.uint16)
    assert DIALECT.execute(graph, [a, b])[0].tolist() == [1, 1, 2, 2]
