"""Integers of 16 bits without a sign, of inputs, outputs and state: ExecuTorch's runtime takes them as ours does."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgewright import to_edge
from edgewright.runtime import Runtime
from tests.support.stock import stock


class Kept(torch.nn.Module):
    """Gives what it was given the last time."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(1, 4, dtype=dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        old = self.last.clone()
        self.last.copy_(x)
        return old


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16])
def test_state_inputs_and_outputs_are_what_torch_calls_them(dtype: torch.dtype) -> None:
    first, second = (
        torch.tensor([[1, 7, 200, top]], dtype=torch.int64).to(dtype) for top in (torch.iinfo(dtype).max, 3)
    )
    file = bytes(to_edge(torch.export.export(Kept(dtype), (first,))).to_executorch().buffer)
    calls = [[first.numpy()], [second.numpy()]]
    method = Runtime.get().load_program(file).load_method("forward")
    ours = [method.execute(call) for call in calls]
    wanted = np.zeros_like(first.numpy()), first.numpy()
    for (found,), (theirs,), want in zip(ours, stock().run_many(file, "forward", calls), wanted, strict=True):
        for got in (np.asarray(found), theirs):
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)
