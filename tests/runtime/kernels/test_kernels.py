"""Every kernel against eager torch, sample by sample."""

from __future__ import annotations

import pytest

from edgewright.formats.operator_signatures import OPERATORS
from edgewright.runtime.registry import KERNELS
from tests.ir.aten.harness import Sample, all_samples, assert_close, eager, ours

SAMPLES = all_samples()


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_kernel_gives_what_eager_torch_gives(sample: Sample) -> None:
    expected = eager(sample)
    actual = ours(sample, expected)
    assert len(actual) == len(expected)
    for ours_, theirs in zip(actual, expected, strict=True):
        assert_close(ours_, theirs, sample)


def test_every_operator_of_the_stock_list_has_a_kernel() -> None:
    assert sorted(set(OPERATORS) - set(KERNELS)) == []


def test_every_tensor_operator_has_samples() -> None:
    covered = {sample.key for sample in SAMPLES}
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
    assert sorted(set(OPERATORS) - covered - elsewhere) == []
