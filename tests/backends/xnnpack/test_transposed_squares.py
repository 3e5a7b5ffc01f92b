"""Products of a transposed value with itself, which stock's runtime would compute with other operands."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import edgewright as ew
from tests.support.stock import stock


class Square(nn.Module):
    def __init__(self, transpose: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.transpose = transpose

    def forward(self, x: Tensor) -> Tensor:
        y = self.transpose(x)
        return torch.bmm(y, y)


@pytest.mark.parametrize(
    "transpose",
    [
        lambda x: x.permute(1, 0, 2),
        lambda x: x.relu().permute(2, 1, 0),
        lambda x: x.permute(1, 2, 0) * 1,
        lambda x: x.mT,
    ],
    ids=["first two", "all", "not read directly", "last two"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_stock_computes_what_eager_does(transpose: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    model, x = Square(transpose), torch.randn(5, 5, 5, dtype=dtype)
    _check(ew.compile(model, (x,), "xnnpack", quiet=True), model, x)


def test_of_dynamic_sizes() -> None:
    model = Square(lambda x: x.permute(1, 0, 2))
    rows, width = Dim("rows", min=2, max=6), Dim("width", min=2, max=8)
    result = ew.compile(
        model, (torch.randn(4, 3, 4),), "xnnpack", dynamic_shapes=({0: width, 1: rows, 2: width},), quiet=True
    )
    for n, m in ((4, 3), (8, 6), (2, 2)):
        _check(result, model, torch.randn(n, m, n))


def _check(result: ew.CompileResult, model: nn.Module, x: Tensor) -> None:
    wanted = model(x).float().numpy()
    bound = (1e-5 if x.dtype == torch.float32 else 0.02) * np.abs(wanted).max()
    assert result.report.coverage["macs"] == 1.0
    theirs = stock().run(bytes(result.program.buffer), "forward", [x.numpy()])[0]
    for got in (result.run(x).numpy(), theirs):
        np.testing.assert_allclose(np.asarray(got, np.float32), wanted, rtol=0, atol=bound)
