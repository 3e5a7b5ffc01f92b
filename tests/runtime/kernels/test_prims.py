"""The operators that return Python numbers, and those whose values are random."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import edgewright.runtime.stock_kernels  # noqa: F401  (fills the registry)
from edgewright.ir.aten.reference import activations
from edgewright.ir.dtypes import bfloat16
from edgewright.runtime.registry import KERNELS
from edgewright.runtime.tensor import TensorSlot

INT_MAX, INT_MIN = 2**63 - 1, -(2**63)
INF, NAN = float("inf"), float("nan")

RESULTS: list[tuple[str, tuple[Any, ...], Any]] = [
    ("add.Scalar", (2, 3), 5), ("add.Scalar", (2, 0.5), 2.5), ("add.Scalar", (INT_MAX, INT_MIN), -1),
    ("sub.Scalar", (2, 3), -1), ("sub.Scalar", (2.5, 1), 1.5), ("sub.Scalar", (-1, INT_MAX), INT_MIN),
    ("mul.Scalar", (-4, 3), -12), ("mul.Scalar", (4, 0.25), 1.0), ("mul.Scalar", (2**31, 2**31), 2**62),
    ("truediv.Scalar", (7, 2), 3.5), ("truediv.Scalar", (-6, 3), -2.0), ("truediv.Scalar", (1.0, 4), 0.25),
    ("floordiv.Scalar", (7, 2), 3), ("floordiv.Scalar", (-7, 2), -4), ("floordiv.Scalar", (7, -2), -4),
    ("floordiv.Scalar", (-7.5, 2), -4.0), ("floordiv.Scalar", (2**62 + 1, 1), 2**62 + 1),
    ("floordiv.int", (7, 2), 3), ("floordiv.int", (-7, 2), -3), ("floordiv.int", (7, -2), -3),
    ("floordiv.int", (-7, -2), 3), ("floordiv.int", (INT_MIN, 1), INT_MIN), ("floordiv.int", (0, -5), 0),
    ("mod.Scalar", (7, 3), 1), ("mod.Scalar", (-7, 3), -1), ("mod.Scalar", (7, -3), 1),
    ("mod.int", (-7, -3), -1), ("mod.int", (-6, 3), 0), ("mod.int", (INT_MIN, -1), 0), ("mod.int", (INT_MIN, 10), -8),
    ("eq.Scalar", (2, 2), True), ("eq.Scalar", (2, 2.5), False), ("eq.Scalar", (True, True), True),
    ("lt.Scalar", (1, 2), True), ("lt.Scalar", (2, 2), False),
    ("le.Scalar", (2, 2), True), ("le.Scalar", (3, 2.5), False),
    ("gt.Scalar", (3, 2.5), True), ("gt.Scalar", (2, 2), False),
    ("ge.Scalar", (2, 2), True), ("ge.Scalar", (NAN, 1), False),
    ("neg.Scalar", (5,), -5), ("neg.Scalar", (-2.5,), 2.5), ("neg.Scalar", (INT_MAX,), -INT_MAX),
    ("ceil.Scalar", (1.2,), 2), ("ceil.Scalar", (-1.2,), -1), ("ceil.Scalar", (3,), 3),
    ("trunc.Scalar", (1.9,), 1), ("trunc.Scalar", (-1.9,), -1),
    ("round.Scalar", (0.5,), 0), ("round.Scalar", (1.5,), 2), ("round.Scalar", (-2.5,), -2),
    ("round.Scalar", (2.6,), 3), ("round.Scalar", (INT_MAX,), INT_MAX),
    ("sym_float.Scalar", (3,), 3.0), ("sym_int.Scalar", (3.7,), 3), ("sym_int.Scalar", (-3.7,), -3),
    ("sym_ite.Scalar", (True, 1, 2.5), 1), ("sym_ite.Scalar", (False, 1, 2.5), 2.5),
    ("sym_max.Scalar", (2, 3), 3), ("sym_max.Scalar", (3, 2.5), 3.0), ("sym_min.Scalar", (2, 3), 2),
    ("sym_min.Scalar", (2, 2.5), 2.0), ("sym_not.Scalar", (True,), False), ("sym_not.Scalar", (False,), True),
]  # fmt: skip

ERRORS: list[tuple[str, tuple[Any, ...], type[Exception]]] = [
    *((f"{op}.Scalar", (a, 0), ZeroDivisionError) for op in ("truediv", "floordiv", "mod") for a in (0, 5)),
    *((f"{op}.int", (5, 0), ZeroDivisionError) for op in ("floordiv", "mod")),
    ("truediv.Scalar", (1.0, 0.0), ZeroDivisionError),
    ("add.Scalar", (INT_MAX, 1), OverflowError), ("sub.Scalar", (INT_MIN, 1), OverflowError),
    ("mul.Scalar", (INT_MAX, INT_MAX), OverflowError), ("mul.Scalar", (INT_MIN, -1), OverflowError),
    ("neg.Scalar", (INT_MIN,), OverflowError), ("floordiv.int", (INT_MIN, -1), OverflowError),
    ("floordiv.Scalar", (INT_MIN, -1), OverflowError),
    *((f"{op}.Scalar", (1e19,), OverflowError) for op in ("ceil", "round", "trunc", "sym_int")),
    *((f"{op}.Scalar", (INF,), OverflowError) for op in ("ceil", "round", "trunc", "sym_int")),
    *((f"{op}.Scalar", (NAN,), ValueError) for op in ("ceil", "round", "trunc", "sym_int")),
    ("floordiv.int", (5.0, 2), TypeError), ("mod.int", (5, 2.0), TypeError),
    ("mul.Scalar", ("x", 2**40), TypeError), ("add.Scalar", (None, 1), TypeError),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "expected"), RESULTS, ids=str)
def test_result(name: str, args: tuple[Any, ...], expected: Any) -> None:
    result = KERNELS[f"executorch_prim::{name}"](args, ())
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(("name", "args", "error"), ERRORS, ids=str)
def test_error(name: str, args: tuple[Any, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        KERNELS[f"executorch_prim::{name}"](args, ())


def test_every_prim_has_a_result() -> None:
    named = {f"executorch_prim::{name}" for name, _, _ in RESULTS}
    tensors = {"executorch_prim::et_view.default", "executorch_prim::et_copy_index.tensor"}
    assert {key for key in KERNELS if key.startswith("executorch_prim::")} - tensors == named


def test_sizes() -> None:
    x = np.zeros((2, 3, 0))
    size, numel = KERNELS["aten::sym_size.int"], KERNELS["aten::sym_numel"]
    assert [size([x, dim], ()) for dim in (0, 1, 2, -1, -3)] == [2, 3, 0, 0, 2]
    assert [numel([a], ()) for a in (x, np.zeros((2, 3)), np.zeros(()))] == [0, 6, 1]
    for array, dim in ((x, 3), (x, -4), (np.zeros(()), 0)):
        with pytest.raises(IndexError):
            size([array, dim], ())


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int64", "float16", "float32", "float64", bfloat16])
def test_item(dtype: Any) -> None:
    result = KERNELS["aten::_local_scalar_dense"]([np.ones((1, 1), dtype)], ())
    kind = {"b": bool, "i": int, "u": int}.get(np.dtype(dtype).kind, float)
    assert result == 1
    assert type(result) is kind


def test_item_is_exact_and_needs_one_number() -> None:
    item = KERNELS["aten::_local_scalar_dense"]
    assert item([np.array(2**53 + 1)], ()) == 2**53 + 1
    for bad in (np.zeros(2), np.zeros(0), np.zeros(1, np.complex64)):
        with pytest.raises(ValueError, match="element"):
            item([bad], ())


def _run(key: str, args: list[Any], shape: tuple[int, ...], *dtypes: int) -> list[np.ndarray]:
    slots = [TensorSlot(d, shape, tuple(range(len(shape))), memory=np.full(8 * 10**5, 0xCD, np.uint8)) for d in dtypes]
    KERNELS[key](args, slots)
    return [slot.array for slot in slots if slot.array is not None]


def test_random_numbers_have_their_distribution() -> None:
    (uniform,) = _run("aten::rand.out", [[100, 200]], (100, 200), 6)
    assert 0 <= uniform.min() < 0.01
    assert 0.99 < uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.02
    (normal,) = _run("aten::randn.out", [[100, 200]], (100, 200), 7)
    assert abs(normal.mean()) < 0.05
    assert abs(normal.std() - 1) < 0.05
    assert not np.array_equal(uniform, _run("aten::rand.out", [[100, 200]], (100, 200), 6)[0])


@pytest.mark.parametrize("train", [True, None])
def test_dropout_keeps_its_share_scaled_up(train: bool | None) -> None:
    x = np.ones((100, 200), np.float32)
    result, mask = _run("aten::native_dropout.out", [x, 0.25, train], x.shape, 6, 11)
    assert abs(mask.mean() - 0.75) < 0.03
    np.testing.assert_allclose(result, mask / 0.75, rtol=1e-6)


def test_a_generator_makes_dropout_repeatable() -> None:
    x = np.arange(50.0)
    first, second = (activations.dropout(x, 0.5, True, np.random.default_rng(3))[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
