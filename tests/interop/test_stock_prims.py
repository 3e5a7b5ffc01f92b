"""Scalar operators in the stock runtime and in ours, from the same file."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest

from edgewright.errors import ExecutionError
from edgewright.formats import schema, write_program
from edgewright.formats.operator_signatures import OPERATORS
from edgewright.runtime import Runtime
from tests.support.build import PlanBuilder
from tests.support.stock import StockError, stock

NUMBERS: list[Any] = [0, 1, -1, 7, -7, 3, 2.5, -2.5, 0.5, 1e10]
INTEGERS = [n for n in NUMBERS if isinstance(n, int)]
BOOLS = [True, False]
SCALARS = [k for k in OPERATORS if k.startswith("executorch_prim::") and k.endswith((".Scalar", ".int"))]
ROUNDING = {"ceil", "round", "trunc", "sym_int"}


def operands(key: str) -> list[tuple[Any, ...]]:
    name = key.removeprefix("executorch_prim::").partition(".")[0]
    if name == "sym_not":
        return [(b,) for b in BOOLS]
    if name == "sym_ite":
        return list(product(BOOLS, [3, 2.5], [4, -1.5]))
    if name in ROUNDING:
        return [(n,) for n in NUMBERS if isinstance(n, float)]
    if len(OPERATORS[key].args) == 1:
        return [(n,) for n in NUMBERS]
    pairs = list(product(INTEGERS if name == "mod" or key.endswith(".int") else NUMBERS, repeat=2))
    # What division by zero does in stock is left to the machine.
    return [p for p in pairs if p[1] or name not in {"mod", "floordiv", "truediv"}]


def scalar_program(key: str, args: tuple[Any, ...]) -> bytes:
    builder = PlanBuilder()
    made = [_value(builder, a) for a in args]
    result = builder.value(schema.Int(int_val=0))
    builder.call(key, [*made, result])
    builder.outputs = [result]
    return write_program(builder.program())


def _value(builder: PlanBuilder, number: Any) -> int:
    if isinstance(number, bool):
        return builder.value(schema.Bool(bool_val=number))
    if isinstance(number, int):
        return builder.value(schema.Int(int_val=number))
    return builder.value(schema.Double(double_val=number))


@pytest.mark.parametrize("key", SCALARS)
def test_scalar_operators_agree(key: str) -> None:
    agreed = 0
    for args in operands(key):
        program = scalar_program(key, args)
        ours = Runtime.get().load_program(program).load_method().execute()
        try:
            theirs = stock().run(program, "forward", [])
        except StockError:
            continue  # a mix of types stock does not take
        assert type(ours[0]) is type(theirs[0]), (key, args, ours, theirs)
        assert ours == theirs or math.isclose(ours[0], theirs[0]), (key, args)
        agreed += 1
    assert agreed


@pytest.mark.parametrize("key", [k for k in SCALARS if "div" in k or "mod" in k])
def test_division_by_zero_is_an_error_of_ours(key: str) -> None:
    with pytest.raises(ExecutionError, match="zero"):
        Runtime.get().load_program(scalar_program(key, (1, 0))).load_method().execute()
