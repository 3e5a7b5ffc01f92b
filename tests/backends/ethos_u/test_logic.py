"""Comparison, logic, choice and gathering: what a U85 takes, checked against the TOSA reference model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.backends.ethos_u.logic import BEYOND_RANGE, threshold
from edgewright.backends.ethos_u.partitioner import to_tosa
from edgewright.backends.ethos_u.target import EthosUCompileSpec
from tests.backends.ethos_u.hand_written import case
from tests.backends.ethos_u.rows import check

U55, U85 = "ethos-u55-128", "ethos-u85-256"


def places(*data: Any) -> Any:
    return np.array(data, np.int32)


MASK = np.array([[True, False, True, False]] * 3)

TAKEN: list[tuple[Any, ...]] = [
    ("aten.gt.Scalar", (3, 4), 0.5),
    ("aten.le.Scalar", (3, 4), -0.25),
    ("aten.eq.Tensor", (3, 4), (4,)),
    ("aten.ge.Tensor", (2, 3, 4, 5), (5,)),
    ("aten.ne.Scalar", places([1, 2, 3]), 2),
    ("aten.where.self", MASK, (3, 4), (1, 4)),
    ("aten.masked_fill.Scalar", (3, 4), MASK, -1.0),
    ("aten.bitwise_xor.Tensor", places([1, 2, 3]), places([7, -2, 0])),
    ("aten.index_select.default", (2, 3, 4), 1, places(2, 0, 0)),
    ("aten.gather.default", (3, 4), 1, places([0, 3], [1, 1]).astype(np.int64)),
    ("aten.index.Tensor", (3, 4, 5), [places(0, -1, 1)]),
    ("aten.index.Tensor", (3, 4, 5), [None, places([0, -1], [1, 2])]),
    ("aten.index.Tensor", (3, 4, 5), [places(0, 2), places(-1, 3)]),
    ("aten.index_put.default", (4, 5), [places(3, 0)], (2, 5)),
    ("aten.embedding.default", (6, 5), places([0, 5], [2, 2])),
    ("aten.any.dim", MASK, 1),
]


@pytest.mark.parametrize("call", TAKEN, ids=lambda c: c[0][5:])
def test_a_u85_gives_the_reference_models_integers(call: tuple[Any, ...]) -> None:
    outcome = check(case(*call), U85)
    assert not outcome.rejections
    assert outcome.steps == 0


SHIFTS: list[tuple[Any, ...]] = [
    ("aten.bitwise_left_shift.Tensor_Scalar", places([1, 2, -3]), 4),
    ("aten.bitwise_left_shift.Tensor_Scalar", places([1, 2**30, -(2**31)]), 1),
    ("aten.bitwise_right_shift.Tensor_Scalar", places([1, 2**30, -5], [-(2**31), 7, 2**31 - 1]), 1),
]


@pytest.mark.parametrize("target", [U55, "ethos-u65-256", U85])
@pytest.mark.parametrize("call", SHIFTS, ids=lambda c: c[0][5:])
def test_shifts_by_constants_on_every_npu(call: tuple[Any, ...], target: str) -> None:
    outcome = check(case(*call), target)
    assert not outcome.rejections and outcome.steps == 0


@pytest.mark.parametrize("call", TAKEN, ids=lambda c: c[0][5:])
def test_others_refuse_them(call: tuple[Any, ...]) -> None:
    assert any("U85" in text for text in check(case(*call), U55).rejections)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (("aten.eq.Scalar", (3, 4), float("nan")), "representable in the tensor's type; got nan"),
        (("aten.bitwise_left_shift.Tensor_Scalar", places([1, 2]), 32), "got 32 to 32"),
        (("aten.index.Tensor", (3, 4, 5), [places(0, 1), None, places(1, 2)]), "adjacent; got [0, 2]"),
        (("aten.index.Tensor", (3, 4), [MASK]), "indices must be int32 tensors, or constant; got bool"),
        (("aten.index_put.default", (3, 4), [None, places(1)], (3, 1)), "start with the first; got [1]"),
    ],
)
def test_refusals_say_the_rule_and_the_value(call: tuple[Any, ...], words: str) -> None:
    rejections = check(case(*call), U85).rejections
    assert any(words in text for text in rejections), rejections


@pytest.mark.parametrize(
    ("x", "amounts", "value"),
    [(places([1, 2]).astype(np.int8), 2, "int8"), (places([1, 2]), places([1, 2]), "x1")],
)
def test_shifts_that_need_a_u85(x: Any, amounts: Any, value: str) -> None:
    name = "Tensor" if isinstance(amounts, np.ndarray) else "Tensor_Scalar"
    call = case(f"aten.bitwise_left_shift.{name}", x, amounts)
    (text,) = check(call, U55).rejections
    assert text.startswith("shifts on U55 and U65 must be of int32 tensors by constant amounts; got")
    assert not check(call, U85).rejections


@pytest.mark.parametrize("kind", ["gt", "ge", "lt", "le", "eq", "ne"])
@pytest.mark.parametrize("number", [-2.5, -2.0, 0.0, 0.3, 1.0, 7.75, float("inf"), -float("inf")])
def test_numbers_become_whole_ones_that_compare_alike(kind: str, number: float) -> None:
    whole = threshold(kind, number)
    compare = {"gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal, "eq": np.equal,
               "ne": np.not_equal}[kind]  # fmt: skip
    values = np.arange(-300, 300)
    assert -BEYOND_RANGE <= whole <= BEYOND_RANGE
    assert np.array_equal(compare(values, whole), compare(values, number))


@pytest.mark.parametrize("index", [places(2, 0, 1), places(1, 1, 1, 2), places(-1, 0)])
@pytest.mark.parametrize("target", [U55, "ethos-u65-256", U85])
def test_constant_indices_are_slices_on_every_npu(index: Any, target: str) -> None:
    made = case("aten.index.Tensor", (2, 3, 4), [None, index])
    value = made.op.args["indices"][1]
    value.data = index.astype(np.int64)
    value.dtype = np.dtype(np.int64)
    made.graph.inputs.remove(value)
    made.inputs.pop()
    assert "tosa.gather" not in {op.kind for op in to_tosa(made.copy(), EthosUCompileSpec(target)).ops}
    outcome = check(made, target)
    assert not outcome.rejections
    assert outcome.steps == 0
