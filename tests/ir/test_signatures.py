"""Signatures and quantization parameters: what is rejected, and in which words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgewright.backends.ethos_u.dialect.table import SIGNATURES as TOSA_SIGNATURES
from edgewright.backends.ethos_u.dialect.table import TOSA
from edgewright.backends.nxp.dialect.table import SIGNATURES as TFLITE_SIGNATURES
from edgewright.backends.nxp.dialect.table import TFLITE
from edgewright.backends.qualcomm.dialect.table import QNN
from edgewright.backends.qualcomm.dialect.table import SIGNATURES as QNN_SIGNATURES
from edgewright.backends.samsung.dialect.table import ENN
from edgewright.backends.samsung.dialect.table import SIGNATURES as ENN_SIGNATURES
from edgewright.errors import FormatError
from edgewright.ir.core.quant_params import check_structure, check_values
from edgewright.ir.graph import Graph, Op, QParams, Value
from edgewright.ir.signatures import Signatures, describe_type, type_code

NAN, INF = float("nan"), float("inf")
TABLE = Signatures(
    {"F": "f32 f16", "B": "qi8 qu8", "weight": "qi8 ci8"},
    {"add sub": "F F -> F | B B -> B", "conv": "B weight#~ i32#? -> B", "cat": "B=* -> B=", "split": "F -> F?*"},
)


def value(dtype: str, name: str = "x", scale: Any = None, zero: Any = 0, axis: int | None = None, data: Any = None,
          **more: Any) -> Value:  # fmt: skip
    kind = np.dtype(dtype)
    made = Value(name, kind, (2, 3), (0, 1), None if data is None else np.asarray(data, kind))
    if scale is not None:
        info = np.iinfo(kind)
        made.q = QParams(scale, zero, kind, int(info.min), int(info.max), axis, **more)
    return made


def check(kind: str, operands: list[Value | None], *results: Value | None) -> None:
    op = Op(kind, {}, list(results))
    TABLE.check(kind, [(f"operand {i}", v) for i, v in enumerate(operands)], op)


BYTE, OTHER = value("int8", "a", 0.5), value("int8", "b", 0.25)
WEIGHT = value("int8", "w", (0.5, 0.25), (0, 0), 0, np.zeros((2, 3)))


def test_what_fits_is_accepted() -> None:
    check("add", [value("float32"), value("float32")], value("float32"))
    check("sub", [BYTE, OTHER], value("int8", "y", 0.1))
    check("conv", [BYTE, WEIGHT], OTHER)
    check("conv", [BYTE, WEIGHT, value("int32", data=np.zeros((2, 3)))], OTHER)
    check("conv", [BYTE, WEIGHT, None], OTHER)
    check("cat", [BYTE, BYTE, BYTE], BYTE)
    check("split", [value("float16")], value("float16"), None, value("float16"))


@pytest.mark.parametrize(
    ("kind", "operands", "result", "message"),
    [
        ("add", [value("int64"), value("int64")], value("int64"),
         "operand 0: must be float16 or float32 or int8 (quantized) or uint8 (quantized); got int64"),
        ("add", [value("float32", "p"), value("float16")], value("float32"),
         "operand 1: must be stored as 'p' is, float32; got float16"),
        ("add", [value("float32", "p"), value("float32")], value("int8", "y", 0.1),
         "result: must be float16 or float32; got int8 (quantized)"),
        ("conv", [BYTE, replace(WEIGHT, data=None)], BYTE, "operand 1: must be a constant; got a computed value"),
        ("conv", [BYTE, value("int8", "w", 0.5, 3, data=np.zeros((2, 3)))], BYTE,
         "operand 1: must have a zero point of 0; got 3"),
        ("conv", [BYTE], BYTE, "operands: must be 3; got 1"),
        ("conv", [BYTE, WEIGHT, None, BYTE], BYTE, "operands: must be at most 3; got 4"),
        ("conv", [BYTE, None], BYTE, "operand 1: must be a tensor; got nothing"),
        ("cat", [BYTE, OTHER], BYTE, "operand 1: must have the scale and zero point of 'a'; got 0.25, 0"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(kind: str, operands: list[Value | None], result: Value, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        check(kind, operands, result)
    assert str(caught.value) == f"format: {message}"


def test_words_for_how_values_are_stored() -> None:
    dynamic = value("int8", scale=1.0, dynamic="per_token")
    block = value("int8", scale=(1.0,) * 6, axis=0, block=1)
    found = [type_code(v) for v in (value("bool"), value("uint16"), BYTE, WEIGHT, block, dynamic)]
    assert found == ["bool", "u16", "qi8", "ci8", "bi8", "di8"]
    assert describe_type("bi8") == "int8 (quantized in blocks)"


@pytest.mark.parametrize(
    ("signatures", "kinds"),
    [
        (TOSA_SIGNATURES, [*(set(TOSA) - {"resize"}), "resize.nearest", "resize.bilinear"]),
        (TFLITE_SIGNATURES, TFLITE), (QNN_SIGNATURES, QNN), (ENN_SIGNATURES, ENN),
    ],
    ids=["tosa", "tflite", "qnn", "enn"],
)  # fmt: skip
def test_every_operator_of_a_dialect_has_a_row(signatures: Signatures, kinds: Any) -> None:
    assert set(signatures) == set(kinds)


# ------------------------------------------------------------------------------------------------------ parameters


def test_parameters_that_are_sound() -> None:
    block = value("int8", "b", (0.1,) * 6, 0, 0, block=1)
    dynamic = value("int8", "d", 1.0, 0, -1, dynamic="per_token")
    many = value("int8", "m", (0.1,) * 2, (0, 3), 0)
    check_values([BYTE, WEIGHT, block, dynamic, many, value("float32"), value("bool", data=np.ones((2, 3)))])


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        *((value("int8", "x", scale), "scale: must be a positive number from 1e-30 to 1e\\+30")
          for scale in (0.0, -0.5, NAN, INF, 1e-40, 1e39)),
        *((value("int8", "x", (0.5, scale), 0, 0), "scale\\[1\\]: must be a positive number")
          for scale in (0.0, -0.5, NAN, INF)),
        (value("int8", "x", 0.5, 128), "zero_point: must be from -128 to 127; got 128"),
        (value("uint8", "x", 0.5, -1), "zero_point: must be from 0 to 255; got -1"),
        (value("int8", "x", (0.5, 0.5), (0, 300), 0), "zero_point\\[1\\]: must be from -128 to 127; got 300"),
        (value("int8", "x", (0.5,), 0, 0), "scale: must be 2 numbers, one for each slice; got \\[1\\]"),
        (value("int8", "x", (0.5, 0.5), (0,), 0), "scale: must be 2 numbers, one for each slice; got \\[2, 1\\]"),
        (value("int8", "x", (0.5, 0.5), 0, 2), "axis: must be a dimension, from 0 to 1; got 2"),
        (value("int8", "x", (0.5, 0.5), 0, -1), "axis: must be a dimension, from 0 to 1; got -1"),
        (value("int8", "x", (0.5, 0.5)), "scale: must be one number where there is no axis"),
        (value("int8", "x", 0.5, 0, 0), "scale: must be a number for each slice along the axis"),
        (value("int8", "x", (0.5, 0.5), 0, 0, block=2), "block: must divide the 3 elements of a slice; got 2"),
        (value("int8", "x", 1.0, 0, 0, dynamic="per_token"), "axis: must be from -2 to -1; got 0"),
        (replace(BYTE, dtype=np.dtype(np.uint8)), "dtype: must be integers that are stored as they are quantized"),
        (replace(BYTE, q=replace(BYTE.q, qmin=-129)), "qmin, qmax: must be a range of int8"),
        (replace(BYTE, q=replace(BYTE.q, qmin=5, qmax=4)), "qmin, qmax: must be a range of int8"),
        (value("float32", data=np.zeros((3, 2))), "constant: must be float32 \\[2, 3\\]; got float32 \\[3, 2\\]"),
        (replace(value("int8"), data=np.zeros((2, 3), np.int16)), "constant: must be int8 \\[2, 3\\]; got int16"),
        (replace(value("bool"), data=np.full((2, 3), 2, np.uint8).view(bool)), "constant: must be bytes of 0 or 1"),
        (replace(WEIGHT, q=replace(WEIGHT.q, qmin=-8, qmax=7), data=np.full((2, 3), 9, np.int8)),
         "constant: must be integers from -8 to 7; got \\(9, 9\\)"),
    ],
)  # fmt: skip
def test_parameters_that_are_not(broken: Value, message: str) -> None:
    with pytest.raises(FormatError, match=f"value '{broken.name}'.{message}"):
        check_values([broken])


def test_nan_between_many_scales() -> None:
    scales = (0.5,) * 500 + (NAN,) + (0.5,) * 499
    many = Value("w", np.dtype(np.int8), (1000,), (0,), q=QParams(scales, 0, np.dtype(np.int8), -128, 127, 0))
    with pytest.raises(FormatError, match=r"scale\[500\]: must be a positive number .* got nan"):
        check_values([many])


def test_outputs_that_nothing_computes() -> None:
    x, y = value("float32"), value("float32", "y")
    with pytest.raises(FormatError, match="returns a value that is never defined; got y"):
        check_structure(Graph("g", [x], [y], []))
