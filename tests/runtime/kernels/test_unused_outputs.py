"""Outputs a call does not ask for keep what they held."""

from __future__ import annotations

import numpy as np

import edgewright.runtime.stock_kernels  # noqa: F401  (fills the registry)
from edgewright.ir.dtypes import ScalarType
from edgewright.runtime.registry import KERNELS
from edgewright.runtime.tensor import TensorSlot


def test_a_masked_gradient_is_left_alone() -> None:
    x, w = np.ones((1, 1, 4, 4), np.float32), np.ones((1, 1, 2, 2), np.float32)
    grad = np.ones((1, 1, 3, 3), np.float32)
    slots = []
    for shape in (x.shape, (7,), (1,)):
        memory = np.zeros(4 * int(np.prod(shape)), np.uint8)
        slots.append(TensorSlot(ScalarType.FLOAT32, shape, tuple(range(len(shape))), memory=memory))
    mask = [True, False, True]
    KERNELS["aten::convolution_backward.out"]([grad, x, w, [1], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, mask], slots)
    kept, untouched, bias = (slot.array for slot in slots)
    assert kept is not None and kept.sum() == 36
    assert untouched is not None and untouched.tolist() == [0] * 7
    assert bias is not None and bias.tolist() == [9]
