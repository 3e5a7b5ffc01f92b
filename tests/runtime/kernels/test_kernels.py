"""Every kernel against eager torch, sample by sample."""

from __future__ import annotations

from collections import defaultdict

import pytest

from edgewright.formats.operator_signatures import OPERATORS
from edgewright.runtime.registry import KERNELS
from tests.ir.aten.harness import Sample, all_samples, assert_close, eager, ours

BY_OPERATOR: dict[str, list[Sample]] = defaultdict(list)
for _sample in all_samples():
    BY_OPERATOR[_sample.key].append(_sample)


@pytest.mark.parametrize("key", sorted(BY_OPERATOR))
def test_kernel_gives_what_eager_torch_gives(key: str) -> None:
    for sample in BY_OPERATOR[key]:
        try:
            expected = eager(sample)
            actual = ours(sample, expected)
        except Exception as error:
            error.add_note(str(sample))
            raise
        assert len(actual) == len(expected), str(sample)
        for ours_, theirs in zip(actual, expected, strict=True):
            assert_close(ours_, theirs, sample)


def test_every_operator_of_the_stock_list_has_a_kernel() -> None:
    assert sorted(set(OPERATORS) - set(KERNELS)) == []


def test_every_tensor_operator_has_samples() -> None:
    elsewhere = {
        "aten::rand.out",
        "aten::randn.out",
        "aten::sym_size.int",
        "aten::sym_numel",
        "aten::_local_scalar_dense",
        "executorch_prim::et_view.default",
        "executorch_prim::et_copy_index.tensor",
    }
    elsewhere |= {key for key in OPERATORS if key.startswith("executorch_prim::") and key.endswith((".Scalar", ".int"))}
    elsewhere |= {key for key in OPERATORS if key.startswith("llama::")}  # test_llama_kernels.py
    assert sorted(set(OPERATORS) - set(BY_OPERATOR) - elsewhere) == []
