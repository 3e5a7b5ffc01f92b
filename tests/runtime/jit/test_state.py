"""Programs that keep state: written where it lies, ours and those that ExecuTorch's compiler makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgewright.runtime.method import Method
from tests.runtime.jit.test_segments import loaded, lowered, segments


class Cached(nn.Module):
    """A step of a decoder with keys that are kept; ``write`` puts new ones there."""

    def __init__(self, write: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any], width: int = 256) -> None:
        super().__init__()
        self.write, self.inside = write, nn.Linear(width, 2 * width)
        self.head = nn.Linear(width, 4096)
        self.register_buffer("keys", torch.zeros(1, 4, 20, width // 4))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        query, key = self.inside(x).split(x.shape[-1], -1)
        query, key = (z.view(1, 1, 4, -1).transpose(1, 2) for z in (query, key))
        self.write(self.keys, at, key)
        shares = torch.softmax(query @ self.keys.transpose(-1, -2), -1)
        return self.head((shares @ self.keys).transpose(1, 2).reshape(x.shape))


def by_index(keys: torch.Tensor, at: torch.Tensor, key: torch.Tensor) -> None:
    torch.ops.aten.index_put_(keys, [None, None, at], key)


def by_slice(keys: torch.Tensor, at: torch.Tensor, key: torch.Tensor) -> None:
    keys[:, :, 3:4] = key


def by_row(keys: torch.Tensor, at: torch.Tensor, key: torch.Tensor) -> None:
    keys[:, :, -2] = key[:, :, 0]


def stock(model: nn.Module, *inputs: torch.Tensor, in_place: bool = False) -> bytes:
    from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge

    with torch.no_grad():
        edge = to_edge(torch.export.export(model, inputs), compile_config=EdgeCompileConfig(_check_ir_validity=False))
        return bytes(edge.to_executorch(ExecutorchBackendConfig(run_reinplace_pass=in_place)).buffer)


def steps(model: nn.Module, method: Method) -> None:
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for at in (0, 1, 5, 1, 19):
            x = torch.from_numpy(rng.standard_normal((1, 1, 256)).astype(np.float32))
            want = model(x, torch.tensor([at])).numpy()
            (got,) = method.execute([x.numpy(), np.array([at])])
            np.testing.assert_allclose(got, want, atol=2e-5)


def written_over(method: Method) -> int:
    """How many outputs of segments are inputs, written over."""
    return sum(len(step.runner._default.plan.updates) for step in segments(method))  # type: ignore[attr-defined]


@pytest.fixture
def given() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(1, 1, 256), torch.tensor([0])


@pytest.mark.parametrize("write", [by_index, by_slice, by_row])
def test_state_is_written_where_it_lies(write: Any, given: tuple[torch.Tensor, torch.Tensor]) -> None:
    model = Cached(write).eval()
    method = loaded(lowered(model, *given))
    assert len(segments(method)) == 1
    assert written_over(method) == 1
    steps(model, method)
    method.reset()
    model.keys.zero_()
    steps(model, method)


@pytest.mark.slow
@pytest.mark.parametrize("in_place", [False, True])
def test_state_of_stock_files(in_place: bool, given: tuple[torch.Tensor, torch.Tensor]) -> None:
    model = Cached(by_index).eval()
    method = loaded(stock(model, *given, in_place=in_place))
    assert written_over(method) == 1
    steps(model, method)


class Late(nn.Module):
    """What was kept is read after it was written over; and the state of a recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(256, 4096)
        self.register_buffer("kept", torch.zeros(8, 256))
        self.register_buffer("mean", torch.zeros(1, 256))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        new = self.kept.index_put((at,), x)
        made = self.head(new - self.kept + self.mean)
        self.kept.copy_(new)
        self.mean.copy_(torch.tanh(self.mean + x))
        return made


def test_the_old_state_is_read_after_the_new_one_is_made() -> None:
    torch.manual_seed(1)
    model = Late().eval()
    method = loaded(lowered(model, torch.randn(1, 256), torch.tensor([2])))
    assert len(segments(method)) == 1
    assert written_over(method) == 0
    with torch.no_grad():
        for at in (2, 3, 2):
            x = torch.randn(1, 256)
            want = model(x, torch.tensor([at])).numpy()
            (got,) = method.execute([x.numpy(), np.array([at])])
            np.testing.assert_allclose(got, want, atol=2e-5)
