"""Tensors of one element: QNN has no scalars, so rank 0 and rank 1 mean the same; constants are compared unrounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.backends.qualcomm.dialect import DIALECT
from edgewright.backends.qualcomm.dialect.numerics import QNN
from edgewright.engine import compile
from edgewright.ir.graph import Array, Graph, Op, Value
from tests.engine.qnn import plain, tensor, whole

_ARGMAX = {"axis": 0, "keep_dims": False}
_REDUCE = {"axes": [0], "keep_dims": False}
_PAD = {"scheme": 0, "pad_amount": [[0, 0]], "pad_constant_value": 0.0}
_SLICE = {"ranges": [[0, 1, 1]], "begin_mask": 0, "end_mask": 0, "shrink_axes": 0}
OPERATORS: dict[str, dict[str, Any]] = {
    "Argmax": _ARGMAX, "Argmin": _ARGMAX, "ReduceMean": _REDUCE, "ReduceSum": _REDUCE, "ReduceMax": _REDUCE,
    "ReduceMin": _REDUCE, "Softmax": {"axis": 0, "beta": 1.0}, "LogSoftmax": {"axis": 0, "beta": 1.0},
    "LayerNorm": {"axes": [0], "epsilon": 1e-3}, "RmsNorm": {"axes": [0], "epsilon": 1e-3}, "Reshape": {},
    "Transpose": {"perm": [0]}, "Tile": {"multiples": [1]}, "Pad": _PAD, "StridedSlice": _SLICE,
    "CumulativeSum": {"axis": 0, "exclusive": False, "reverse": False},
}  # fmt: skip


def both(made: Graph, *inputs: Array) -> list[Array]:
    """By the reference and by machine code."""
    DIALECT.check(made, 1 << 20)
    compiled = compile(made, threads=1, numerics=QNN)
    return [DIALECT.execute(made, inputs)[0], compiled.run(list(inputs))[0]]


@pytest.mark.parametrize("held", ["half", "uint8", "uint16"])
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("ranks", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=str)
def test_rank_0_and_rank_1_are_the_same(name: str, held: str, ranks: tuple[int, int]) -> None:
    shapes = [(1,) * rank for rank in ranks]
    x = tensor("x", shapes[0], held)
    out = plain("y", shapes[1], "int32") if name.startswith("Arg") else tensor("y", shapes[1], held)
    array = np.full(shapes[0], 0.75 if held == "half" else 3, x.dtype)
    reference, native = both(whole(name, [x], out, **OPERATORS[name]), array)
    assert reference.shape == native.shape == shapes[1]
    assert np.array_equal(reference, native)
    vector = whole(name, [tensor("x", (1,), held)], Value("y", out.dtype, (1,), (0,), q=out.q), **OPERATORS[name])
    assert np.array_equal(both(vector, array.reshape(1))[0].reshape(-1), reference.reshape(-1))


@pytest.mark.parametrize("axes", [[0, 1], [1]], ids=str)
@pytest.mark.parametrize("held", ["half", "uint8", "uint16"])
def test_means_of_everything_are_machine_code(held: str, axes: list[int]) -> None:
    """A mean over all dimensions has rank 0 in torch and rank 1 in QNN."""
    x, array = tensor("x", (3, 5), held), np.arange(15).reshape(3, 5)
    shape = (3,) if axes == [1] else ()
    made = whole("ReduceMean", [x], tensor("y", shape, held), axes=axes, keep_dims=False)
    reference, native = both(made, array.astype(x.dtype))
    assert np.array_equal(reference, native)
    compiled = compile(made, threads=1, numerics=QNN)
    assert all(step.python is None for step in compiled.plan.steps)


@pytest.mark.parametrize("dtype", ["int32", "bool"])
@pytest.mark.parametrize("name", ["Greater", "GreaterEqual", "Less", "LessEqual", "Equal", "NotEqual"])
def test_integers_are_compared_with_fractions(name: str, dtype: str) -> None:
    x, out = plain("x", (6,), dtype), plain("y", (6,), "bool")
    half = Value("half", np.dtype(np.float32), (1,), (0,), np.array([0.5], np.float32))
    made = Graph("g", [x], [out], [Op(f"qnn.ElementWise{name}", {"inputs": [x, half]}, [out])])
    array = np.array([0, 1, 0, 0, 1, 1], dtype)
    reference, native = both(made, array)
    compare = {"Greater": np.greater, "GreaterEqual": np.greater_equal, "Less": np.less, "LessEqual": np.less_equal,
               "Equal": np.equal, "NotEqual": np.not_equal}[name]  # fmt: skip
    assert np.array_equal(reference, compare(array, 0.5))
    assert np.array_equal(native, reference)


@pytest.mark.parametrize("dtype", ["int64", "uint32", "int32"])
@pytest.mark.parametrize("name", ["ReduceMax", "ReduceMin"])
def test_extremes_of_wide_integers(name: str, dtype: str) -> None:
    info = np.iinfo(dtype)
    array = np.array([[info.min, 0, info.max], [1, info.max // 2 + 7, 2], [info.max - 1, 5, info.max]], dtype)
    made = whole(name, [plain("x", (3, 3), dtype)], plain("y", (3,), dtype), axes=[1], keep_dims=False)
    reference, native = both(made, array)
    assert np.array_equal(reference, (np.max if name.endswith("Max") else np.min)(array, axis=1))
    assert np.array_equal(native, reference)


def test_nan_is_the_largest() -> None:
    x, out, index = tensor("x", (4,), "half"), tensor("y", (2,), "half"), plain("i", (2,), "int32")
    made = Graph("g", [x], [out], [Op("qnn.TopK", {"inputs": [x], "k": 2, "largest": True}, [out, index])])
    reference, native = both(made, np.array([1, np.nan, 3, -2], np.float32))
    assert np.array_equal(reference, [np.nan, 3], equal_nan=True)
    assert np.array_equal(native, reference, equal_nan=True)
