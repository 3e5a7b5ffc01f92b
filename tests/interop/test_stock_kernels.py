"""Every operator sample as a one-call program: the stock runtime and ours, from the same file."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from edgewright.pte import write_program
from edgewright.runtime import Runtime
from tests.ops.harness import Sample, all_samples, assert_close, eager
from tests.support.build import arrays_of, one_call
from tests.support.stock import StockError, stock

BY_OPERATOR: dict[str, list[Sample]] = defaultdict(list)
for _sample in all_samples():
    BY_OPERATOR[_sample.key].append(_sample)

# Stock has a kernel but refuses every call this wheel can be given.
REFUSED: dict[str, str] = {}


@pytest.mark.parametrize("key", sorted(BY_OPERATOR))
def test_stock_and_ours_agree(key: str) -> None:
    """Ours gives eager's result for every sample, and stock's for every sample stock does not refuse."""
    agreed, differing, refused = 0, [], []
    for sample in BY_OPERATOR[key]:
        expected = eager(sample)
        program = write_program(one_call(key, sample.args, expected, sample.dim_order))
        inputs = arrays_of(sample.args)
        ours = Runtime.get().load_program(program).load_method().execute(inputs)
        for actual, wanted in zip(ours, expected, strict=True):
            assert_close(actual, wanted, sample)
        if not sample.stock:
            assert sample.why, f"{sample}: say what stock does instead"
            continue
        try:
            theirs = stock().run(program, "forward", inputs)
            for actual, wanted in zip(ours, theirs, strict=True):
                assert_close(actual, np.asarray(wanted), sample)
            agreed += 1
        except StockError as error:
            refused.append(f"{sample}: {error}")
        except AssertionError as error:
            differing.append(str(error))
    assert not differing, "\n".join(differing)
    assert agreed or key in REFUSED, "\n".join(refused[:3])
