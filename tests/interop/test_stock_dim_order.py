"""Elementwise kernels on channels-last tensors: the stock runtime computes what it does on contiguous ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgewright.formats import write_program
from edgewright.formats.operator_signatures import OPERATORS
from edgewright.ir.aten.ops import OPS
from edgewright.ir.aten.table import OpClass
from tests.interop.test_stock_kernels import BY_OPERATOR
from tests.ir.aten.harness import Sample, channels_last, eager
from tests.support.build import arrays_of, one_call
from tests.support.stock import StockError, stock

KEYS = [key for key, signature in OPERATORS.items() if OpClass.ELEMENTWISE in OPS.classes(signature.functional)]


def image(sample: Sample, dim_order: tuple[int, ...]) -> Sample:
    """The sample with all tensors in the shape of an image."""
    images = [np.resize(a, (2, 3, 4, 5)) if isinstance(a, np.ndarray) else a for a in sample.args]
    if dim_order == (0, 2, 3, 1):
        images = [channels_last(a) if isinstance(a, np.ndarray) else a for a in images]
    return replace(sample, args=images, dim_order=dim_order)


def run(sample: Sample) -> np.ndarray:
    program = one_call(sample.key, sample.args, eager(sample), sample.dim_order)
    result: np.ndarray = stock().run(write_program(program), "forward", arrays_of(sample.args))[0]
    return result


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


@pytest.mark.sample(14)
@pytest.mark.parametrize("key", KEYS)
def test_elementwise_kernels_follow_the_dim_order(key: str) -> None:
    compared = 0
    for sample in (s for s in BY_OPERATOR[key] if s.stock and s.expect is None and s.shapes is None):
        try:
            contiguous = run(image(sample, (0, 1, 2, 3)))
        except StockError:  # types that the kernel does not support
            continue
        np.testing.assert_allclose(
            _wide(run(image(sample, (0, 2, 3, 1)))), _wide(contiguous), 1e-6, err_msg=str(sample)
        )
        compared += 1
    assert compared, f"no sample of {key} runs in the stock runtime"
