"""Every operator sample as a one-call program: the stock runtime and ours, from the same file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest

from edgewright.formats import write_program
from edgewright.runtime import Runtime
from tests.ir.aten.harness import Sample, all_samples, assert_close, eager
from tests.ir.aten.stock_differences import reason
from tests.support.build import arrays_of, dim_order_of, one_call
from tests.support.stock import StockError, stock

BY_OPERATOR: dict[str, list[Sample]] = defaultdict(list)
for _sample in all_samples():
    BY_OPERATOR[_sample.key].append(_sample)

FEW = 6  # samples of an operator in a default run, or a few more
# Operators whose samples stock cannot be compared on, and why.
INCOMPARABLE = {
    "aten::empty.out": "the contents are undefined",
    "dim_order_ops::_empty_dim_order.out": "the contents are undefined",
    "et_copy::_d2h_copy.out": "stock refuses it without a device",
    "et_copy::_h2d_copy.out": "stock refuses it without a device",
}

# Stock computes doubles in single precision in many kernels, and rounds halves more than once.
LOOSER = {"float64": (1e-5, 1e-5), "float16": (4e-3, 2e-3), "complex128": (1e-5, 1e-5)}


def one_layout(sample: Sample) -> bool:
    """Stock's kernels do not check that tensors share a layout, and mix up elements when they do not."""
    orders = {dim_order_of(a) for a in arrays_of(sample.args) if a.ndim > 2}
    wanted = {tuple(sample.dim_order)} if sample.dim_order else {(0, *range(1, n)) for n in (3, 4, 5)}
    plain = all(a.transpose(dim_order_of(a)).flags.c_contiguous for a in arrays_of(sample.args))
    return plain and len(orders) <= 1 and orders <= wanted


def comparable(sample: Sample) -> bool:
    return sample.stock and not reason(sample) and one_layout(sample)


@pytest.mark.parametrize("key", sorted(BY_OPERATOR))
def test_stock_and_ours_agree(key: str) -> None:
    samples = [sample for sample in BY_OPERATOR[key] if comparable(sample)] or BY_OPERATOR[key]
    check(key, samples[:: max(1, len(samples) // FEW)])


@pytest.mark.slow
@pytest.mark.parametrize("key", sorted(BY_OPERATOR))
def test_stock_and_ours_agree_on_all_samples(key: str) -> None:
    check(key, BY_OPERATOR[key])


def check(key: str, samples: Sequence[Sample]) -> None:
    """Ours gives eager's result for every sample, and stock's for every sample stock does not refuse."""
    agreed, differing, refused = 0, [], []
    for sample in samples:
        expected = eager(sample)
        program = write_program(one_call(key, sample.args, expected, sample.dim_order))
        inputs = arrays_of(sample.args)
        ours = Runtime.get().load_program(program).load_method().execute(inputs)
        for actual, wanted in zip(ours, expected, strict=True):
            assert_close(actual, wanted, sample)
        assert sample.stock or sample.why, f"{sample}: say what stock does instead"
        if not comparable(sample):
            continue
        try:
            theirs = stock().run(program, "forward", inputs)
            for actual, wanted in zip(ours, theirs, strict=True):
                assert_close(actual, np.asarray(wanted), sample, LOOSER)
            agreed += 1
        except StockError as error:
            refused.append(f"{sample}: {error}")
        except AssertionError as error:
            differing.append(str(error))
    assert not differing, "\n".join(differing)
    assert agreed or key in INCOMPARABLE, "\n".join(refused[:3])
