"""Places: what finds them, reads at them and writes at them, in real models and with 64 bits as torch has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgewright.backends.qualcomm import QuantDtype
from tests.backends.qualcomm.lowered import lower, quantize

X = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(3))


class Net(nn.Module):
    """A product, so that there is something to delegate, and then what is tested."""

    def __init__(self, then: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.then = nn.Linear(8, 8), then
        self.table = nn.Embedding(16, 8)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.then(self.fc(inputs[0]), *inputs[1:])


def _best(x: torch.Tensor) -> Any:
    return torch.topk(x, 3, dim=1)


def _sorted(x: torch.Tensor) -> Any:
    return torch.sort(x, dim=-1, descending=True)


def _largest(x: torch.Tensor) -> Any:
    return torch.max(x, dim=1)


def _only_places(x: torch.Tensor) -> Any:
    return torch.topk(x, 2).indices, x.argmin(-1)


def _chained(x: torch.Tensor) -> Any:
    return torch.gather(x, 2, x.argmax(-1, keepdim=True)), x.sum()


def _masked(x: torch.Tensor) -> Any:
    steps = torch.arange(8, dtype=torch.int32)
    return torch.where(steps > 3, x, torch.full((8,), -1.0)) + torch.ones(8), (x > 0).to(torch.float32).cumsum(-1)


@pytest.mark.parametrize("then", [_best, _sorted, _largest, _only_places, _chained, _masked])
def test_places_and_numbers_are_those_of_eager(then: Callable[..., Any]) -> None:
    model = Net(then).eval()
    made = lower(model, (X,), fp16=True)
    assert not made.report.refused, made.report
    wanted, found = model(X), made.method.execute([X.numpy()])
    for real, ours in zip(wanted, found, strict=True):
        ours = np.asarray(ours)
        assert str(ours.dtype) == str(real.dtype).removeprefix("torch.")
        if real.dtype == torch.int64:
            assert np.mean(ours == real.numpy()) > 0.95  # 16 bits may tie what 32 do not
        else:
            np.testing.assert_allclose(ours, real.detach().numpy(), 1e-2, 2e-2)


@pytest.mark.parametrize("then", [_best, _sorted, _largest, _only_places, _chained])
def test_what_gives_numbers_and_places_is_quantized(then: Callable[..., Any]) -> None:
    model = Net(then).eval()
    converted = quantize(model, (X,), QuantDtype.use_16a8w)
    made = lower(converted, (X,), fp16=False)
    assert not made.report.refused, made.report
    for real, ours in zip(converted(X), made.method.execute([X.numpy()]), strict=True):
        if real.dtype == torch.int64:
            assert np.mean(np.asarray(ours) == real.numpy()) > 0.95
        else:
            np.testing.assert_allclose(np.asarray(ours), real.detach().numpy(), 1e-3, 1e-2)


class Cache(nn.Module):
    """Rows of a table, written to a cache at a place and read again."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.fc = nn.Embedding(16, 8), nn.Linear(8, 8)
        self.register_buffer("cache", torch.zeros(1, 4, 8))

    def forward(self, token: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        row = self.fc(self.table(token))
        self.cache.index_copy_(1, place, row)
        return torch.softmax(self.cache.sum(-1), -1) + self.cache[:, place].sum(-1)


def test_a_cache_is_written_and_read() -> None:
    model, eager = Cache().eval(), Cache().eval()
    inputs = (torch.tensor([[3]]), torch.tensor([0]))
    made = lower(model, inputs, fp16=True)
    assert "embedding" in {v.operator for v in made.report.taken}
    for step, token in enumerate((3, 7, 1)):
        given = [torch.tensor([[token]]), torch.tensor([step])]
        (found,) = made.method.execute([g.numpy() for g in given])
        np.testing.assert_allclose(np.asarray(found), eager(*given).detach().numpy(), 1e-2, 1e-2)
