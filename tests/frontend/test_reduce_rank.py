"""Permutes of many dimensions between views: the same elements with fewer dimensions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import edgewright as ew
from edgewright.frontend.prepare import prepare
from edgewright.frontend.reduce_rank import merge_dims, reduce_rank
from edgewright.lowering.kernel_resolution import kernel_set
from tests.program.case import Call

X = torch.randn(2, 8, 12, 3, generator=torch.Generator().manual_seed(0))


def windows(x: Tensor) -> Tensor:
    return x.view(2, 2, 4, 3, 4, 3).permute(0, 1, 3, 2, 4, 5).reshape(12, 16, 3)


@pytest.mark.parametrize("shape", [(2, 3, 2, 2), (1, 3, 1, 2), (2, 1, 1, 3), (1, 1, 1, 1)])
def test_merged_dimensions_move_the_same_elements(shape: tuple[int, ...]) -> None:
    x = torch.arange(math.prod(shape)).reshape(shape)
    for dims in itertools.permutations(range(4)):
        sizes, order = merge_dims(shape, dims)
        assert torch.equal(x.reshape(sizes).permute(order).flatten(), x.permute(dims).flatten())
        assert all(after != before + 1 for before, after in itertools.pairwise(order))


FEWER: dict[str, Callable[[Tensor], Tensor]] = {
    "windows": windows,
    "back": lambda x: windows(x).view(2, 2, 3, 4, 4, 3).permute(0, 1, 3, 2, 4, 5).reshape(2, 8, 12, 3),
    "two readers": lambda x: (lambda p: p.reshape(12, 48).sum(1) + p.reshape(48, 12).sum(1)[:12])(
        x.view(2, 2, 4, 3, 4, 3).permute(0, 1, 3, 2, 4, 5)),
    "copied": lambda x: x.view(2, 2, 4, 3, 4, 3).permute(0, 1, 3, 2, 4, 5).contiguous().view(12, 16, 3),
}  # fmt: skip
SAME: dict[str, Callable[[Tensor], Tensor]] = {
    "read as it is": lambda x: x.view(2, 2, 4, 3, 4, 3).permute(0, 1, 3, 2, 4, 5) + 1,
    "reversed": lambda x: x.view(2, 2, 4, 3, 4, 3).permute(5, 4, 3, 2, 1, 0).reshape(12, 16, 3),
}


@pytest.mark.parametrize(("name", "fewer"), [*((n, True) for n in FEWER), *((n, False) for n in SAME)])
def test_ranks_above_the_limit_are_gone_where_dimensions_merge(name: str, fewer: bool) -> None:
    module = Call({**FEWER, **SAME}[name])
    program = prepare(torch.export.export(module, (X,)), kernel_set("wheel").supports)
    reduce_rank(program.graph_module, 5)
    ranks = [n.meta["val"].dim() for n in program.graph.nodes if n.op == "call_function"]
    assert (max(ranks) <= 5) == fewer
    assert torch.equal(program.module()(X), module(X))


class Window(nn.Module):
    """Attention's part of a Swin transformer: a shift, windows, a layer in each, and back."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.roll(self.first(x), (-2, -1), (1, 2))
        x = x.view(2, 2, 4, 3, 4, 8).permute(0, 1, 3, 2, 4, 5).reshape(12, 16, 8).softmax(1)
        x = x.view(2, 2, 3, 4, 4, 8).permute(0, 1, 3, 2, 4, 5).reshape(2, 8, 12, 8)
        return self.last(torch.roll(torch.roll(x, (2, 1), (1, 2)), 5))


@pytest.mark.parametrize("quantize", ["int8", None])
def test_windows_are_one_delegate(quantize: str | None) -> None:
    module = Window().eval()
    data = [(X,)] if quantize else None
    result = ew.compile(module, (X,), "sm8650", quantize=quantize, calibration=data, simulate=True, quiet=True)
    report = result.program.partition_reports["forward"]
    assert (report.groups, report.coverage()["operators"]) == (1, 1)
    noise = (torch.as_tensor(result.run(X)) - module(X)).abs().max() / module(X).abs().max()
    assert noise < (0.05 if quantize else 2e-3)
