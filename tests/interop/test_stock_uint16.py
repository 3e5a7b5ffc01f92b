"""Integers of 16 bits without a sign, of inputs, outputs and state: ExecuTorch's runtime takes them as ours does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from edgewright import to_edge
from edgewright.runtime import Runtime


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
    from executorch.runtime import Runtime as Stock

    first, second = (
        torch.tensor([[1, 7, 200, top]], dtype=torch.int64).to(dtype) for top in (torch.iinfo(dtype).max, 3)
    )
    file = bytes(to_edge(torch.export.export(Kept(dtype), (first,))).to_executorch().buffer)
    stock: Any = Stock.get().load_program(file).load_method("forward")
    ours = Runtime.get().load_program(file).load_method("forward")
    for given, wanted in ((first, torch.zeros_like(first)), (second, first)):
        (theirs,) = stock.execute([given])
        assert theirs.dtype == dtype and theirs.tolist() == wanted.tolist()
        found = np.asarray(ours.execute([given.numpy()])[0])
        assert found.dtype == wanted.numpy().dtype
        np.testing.assert_array_equal(found, wanted.numpy())
