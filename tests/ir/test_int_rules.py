"""Rules of a dialect outside of Edgewright: numpy and machine code run its integer operators, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from edgewright.backends import registry
from edgewright.backends.info import BackendInfo
from edgewright.engine import compile
from edgewright.ir.dialect import Dialect
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from edgewright.ir.int_arithmetic import IntArithmetic, IntRangeError, RangedInt
from edgewright.ir.int_reference import run_definition
from edgewright.ir.int_rules import (
    DESCRIPTIONS,
    ELEMENTWISE,
    FloatConversion,
    IndexGather,
    IntReduction,
    check_windows,
    describes,
    elementwise_rule,
    reduce_axes,
    result_of,
    tabulate,
)
from edgewright.ir.numerics import FLOAT32, Numerics
from tests.engine.graphs import cpus

INT8 = np.dtype(np.int8)
Q = QParams(0.5, 3, INT8, -128, 127)


REFERENCES: dict[str, Any] = {
    "gap": lambda op, a, b: np.abs(a.astype(np.int32) - b.astype(np.int32)),
    "huge": lambda op, a, b: (a.astype(np.int64) ** 2 * b.astype(np.int64) ** 2 % 97).astype(np.int32),
    "bits": lambda op, x: np.unpackbits(x.view(np.uint8)[..., None], axis=-1).sum(-1).astype(np.int8),
    "average": lambda op, x: (x.astype(np.int32).sum(-1, keepdims=True, dtype=np.int32) + 2) >> 2,
    "backward": lambda op, x: np.ascontiguousarray(x[..., ::-1]),
    "real": lambda op, x: (x.astype(np.float32) - 3) * np.float32(0.5),
}  # fmt: skip


class Toy(Dialect):
    def check_row(self, op: Op, row: Any, memory: int) -> None:
        """Nothing is wrong with the graphs of this test."""

    def run_op(self, op: Op, arrays: Mapping[Value, Array], numerics: Numerics) -> Sequence[Array]:
        return [self.row(op.kind)(op, *(arrays[v] if v.data is None else v.data for v in op.args["inputs"]))]

    def load_rules(self) -> None:
        _register()


def _register() -> None:
    tabulate("toy.bits")

    @elementwise_rule("toy.gap")
    def gap(i: IntArithmetic, op: Op, args: list[RangedInt]) -> RangedInt:
        return i.sub(i.largest(*args), i.smallest(*args))

    @elementwise_rule("toy.huge")
    def huge(i: IntArithmetic, op: Op, args: list[RangedInt]) -> RangedInt:
        raise IntRangeError("may exceed 64 bits")

    @describes("toy.average")
    def average(op: Op, numerics: Numerics) -> IntReduction:
        (x,), out = op.args["inputs"], result_of(op)
        axes = reduce_axes(x, [-1], True, out)
        return IntReduction(x, "sum", lambda i, total, extras: i.shift_right(i.plus(total, 2), 2), axes)

    @describes("toy.backward")
    def backward(op: Op, numerics: Numerics) -> IndexGather:
        (x,) = op.args["inputs"]
        return IndexGather(x, [*(np.arange(n) for n in x.bound[:-1]), np.arange(x.bound[-1])[::-1]])

    @describes("toy.real")
    def real(op: Op, numerics: Numerics) -> FloatConversion:
        (x,) = op.args["inputs"]

        return FloatConversion(x, dequantize=lambda i, stored: i.float_op("mul", i.to_float(i.plus(stored, -3)), 0.5))


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_REGISTERED", {})
    registry.register_backend(BackendInfo("toy", dialects={"toy": Toy("toy", "Toy", REFERENCES, FLOAT32)}))
    yield
    registry.find_dialect.cache_clear()
    for kind in [f"toy.{name}" for name in REFERENCES]:
        ELEMENTWISE.pop(kind, None)
        DESCRIPTIONS.pop(kind, None)


def tensor(name: str, shape: Sequence[int], dtype: Any, q: QParams | None = None) -> Value:
    return Value(name, np.dtype(dtype), tuple(shape), tuple(range(len(shape))), q=q)


def check(op: Op, native: bool = True) -> None:
    graph = Graph("case", list(op.args["inputs"]), [result_of(op)], [op])
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-128, 128, v.bound).astype(v.dtype) for v in graph.inputs]
    dialect = registry.find_dialect("toy")
    assert dialect is not None
    (expected,) = dialect.execute(graph, inputs)
    dialect.load_rules()
    defined = run_definition(op, dict(zip(graph.inputs, inputs, strict=True)), FLOAT32)
    if defined is None:
        assert op.kind in ("toy.bits", "toy.huge")
    else:
        np.testing.assert_array_equal(defined, expected)
    for cpu in cpus():
        compiled = compile(graph, threads=1, cpu=cpu)
        assert [step.python is None for step in compiled.plan.steps] == [native] * len(compiled.plan.steps)
        np.testing.assert_array_equal(compiled.run(inputs)[0], expected)


SHAPE = (5, 7, 33)


def test_elementwise() -> None:
    a, b = (tensor(name, SHAPE, np.int16) for name in "ab")
    check(Op("toy.gap", {"inputs": [a, b]}, [tensor("y", SHAPE, np.int32)]))


def test_what_may_exceed_64_bits_runs_in_numpy() -> None:
    a, b = (tensor(name, SHAPE, np.int16) for name in "ab")
    check(Op("toy.huge", {"inputs": [a, b]}, [tensor("y", SHAPE, np.int32)]), native=False)


def test_a_table() -> None:
    check(Op("toy.bits", {"inputs": [tensor("x", SHAPE, np.int8, Q)]}, [tensor("y", SHAPE, np.int8, Q)]))


def test_a_reduction() -> None:
    shape = (5, 7, 4)
    check(Op("toy.average", {"inputs": [tensor("x", shape, np.int8)]}, [tensor("y", (5, 7, 1), np.int32)]))


def test_a_gather() -> None:
    check(Op("toy.backward", {"inputs": [tensor("x", SHAPE, np.int16)]}, [tensor("y", SHAPE, np.int16)]))


def test_a_conversion() -> None:
    check(Op("toy.real", {"inputs": [tensor("x", SHAPE, np.int8, Q)]}, [tensor("y", SHAPE, np.float32)]))


@pytest.mark.parametrize("axes", [[3], [], [0, 5]])
def test_axes_that_a_tensor_does_not_have(axes: list[int]) -> None:
    x, y = tensor("x", (2, 3, 4), np.int8), tensor("y", (2, 3, 1), np.int8)
    with pytest.raises(IntRangeError):
        reduce_axes(x, axes, True, y)


@pytest.mark.parametrize(
    ("window", "stride", "pads", "out"),
    [
        ((2, 2), (2, 2), (0, 0, 0, 0), (1, 4, 4, 3)),  # one column too few
        ((2, 2), (0, 2), (0, 0, 0, 0), (1, 4, 5, 3)),
        ((2, 2), (2, 2), (2, 0, 0, 0), (1, 5, 5, 3)),  # a window in the padding alone
        ((9, 9), (1, 1), (0, 0, 0, 0), (1, 1, 2, 3)),
        ((2, 2), (2, 2), (0, 0, 0, 0), (1, 4, 5, 4)),  # other channels
    ],
)
def test_windows_that_do_not_fit(window: Any, stride: Any, pads: Any, out: Any) -> None:
    x = tensor("x", (1, 8, 10, 3), np.int8)
    check_windows(x, tensor("y", (1, 4, 5, 3), np.int8), (2, 2), (2, 2))
    with pytest.raises(IntRangeError):
        check_windows(x, tensor("y", out, np.int8), window, stride, pads)
