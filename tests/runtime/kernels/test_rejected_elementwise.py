"""Calls that must be refused before anything large is computed: one line per rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.errors import ExecutionError
from edgewright.runtime.registry import KERNELS
from edgewright.runtime.tensor import TensorSlot
from tests.ir.aten.samples.values import array, normal

INF, NAN = float("inf"), float("nan")
I3, F3, B3, C3 = normal("int32", 3), normal("float32", 3), normal("bool", 3), normal("complex64", 3)

REFUSED: list[tuple[str, list[Any], type[Exception]]] = [
    ("aten::add.out", [F3, normal("float32", 2), 1], ValueError),
    ("aten::add.out", [I3, I3, 2.5], ValueError),
    ("aten::sub.out", [B3, B3, 1], TypeError),
    ("aten::neg.out", [B3], TypeError),
    ("aten::add.out", [F3.reshape(3, 1), F3, 1], ExecutionError),
    *((f"aten::{op}.Tensor_out", [I3, array([1, 0, 2], "int32")], ZeroDivisionError) for op in ("fmod", "remainder")),
    *((f"aten::{op}.Scalar_out", [I3, 0], ZeroDivisionError) for op in ("fmod", "remainder")),
    *(("aten::div.Scalar_mode_out", [I3, 0, mode], ZeroDivisionError) for mode in ("floor", "trunc")),
    ("aten::floor_divide.out", [I3, I3 * 0], ZeroDivisionError),
    ("aten::div.out_mode", [F3, F3, "up"], ValueError),
    ("aten::pow.Tensor_Scalar_out", [I3, -1], ValueError),
    ("aten::pow.Tensor_Scalar_out", [I3.astype("int8"), 300], ValueError),
    ("aten::clamp.out", [F3, None, None], ValueError),
    ("aten::clamp.Tensor_out", [F3, normal("float32", 2), None], ValueError),
    ("aten::lt.Tensor_out", [C3, C3], ValueError),
    ("aten::bitwise_and.Tensor_out", [F3, F3], TypeError),
    ("aten::bitwise_left_shift.Tensor_out", [B3, B3], ValueError),
    ("aten::bitwise_right_shift.Tensor_Scalar_out", [I3, 1.5], ValueError),
    ("aten::where.self_out", [I3, F3, F3], ValueError),
    ("aten::masked_fill.Scalar_out", [F3, I3, 1], ValueError),
    ("aten::masked_fill.Scalar_out", [I3, B3, INF], OverflowError),
    ("aten::masked_fill.Scalar_out", [I3, B3, 2**40], OverflowError),
    ("aten::fill.Scalar_out", [I3, NAN], OverflowError),
    ("aten::fill.Tensor_out", [F3, F3], ValueError),
    ("aten::hardtanh.out", [I3, -INF, INF], OverflowError),
    ("aten::hardtanh.out", [I3.astype("uint8"), -1, 1], ValueError),
    ("aten::erf.out", [C3], ValueError),
    ("aten::gelu.out", [F3, "sigmoid"], ValueError),
    ("aten::glu.out", [F3, 0], ValueError),
    ("aten::glu.out", [normal("float32", 6), 1], IndexError),
    ("aten::glu.out", [normal("float32"), 0], ValueError),
    *(("aten::native_dropout.out", [F3, p, True], ValueError) for p in (-0.1, 1.5, NAN)),
    *((f"aten::{op}.out", [[-3]], ValueError) for op in ("zeros", "ones", "rand", "randn")),
    *((f"aten::{op}.out", [[2**40, 2**40]], ExecutionError) for op in ("zeros", "ones", "rand", "randn")),
    ("aten::full.out", [[2**62], 1], ExecutionError),
    ("aten::empty.out", [[4], None], ExecutionError),
    ("dim_order_ops::_empty_dim_order.out", [[3], [1]], ValueError),
    ("dim_order_ops::_to_dim_order_copy.out", [F3, False, [0, 0]], ValueError),
    ("dim_order_ops::_clone_dim_order.out", [F3, False, [0, 1]], ValueError),
    ("aten::arange.out", [-3], ValueError),
    *(("aten::arange.out", [n], ExecutionError) for n in (2**62, 1e300)),
    *(
        ("aten::arange.start_out", v, ValueError)
        for v in ([0, 3, 0], [0, 3, -1], [0, INF, 1], [NAN, 3, 1], [0, 3, INF])
    ),
    *(("aten::arange.start_out", v, ExecutionError) for v in ([0, 3, 1e-300], [-(2**63), 2**63 - 1, 1])),
    ("aten::arange.start_out", [-1e308, 1e308, 1.0], ValueError),
    ("aten::copy.out", [F3, normal("float32", 2, 3), False], ValueError),
    ("aten::copy_", [F3.copy(), normal("float32", 2, 3), False], ValueError),
    ("aten::view_as_real_copy.out", [F3.reshape(3)], ExecutionError),
]


@pytest.mark.parametrize(("key", "args", "error"), REFUSED, ids=lambda v: v if isinstance(v, str) else "")
def test_refused(key: str, args: list[Any], error: type[Exception]) -> None:
    kernel = KERNELS[key]
    assert kernel.signature is not None
    slots = [TensorSlot(6, (3,), (0,), memory=np.zeros(12, np.uint8)) for _ in kernel.signature.outputs]
    with pytest.raises(error):
        kernel(args, slots)
