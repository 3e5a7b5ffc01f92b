"""A portable program of selections, indices, integers and bools, which the engine runs as one; and what it rejects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgewright.engine.runner import ENGINE_VARIABLE
from edgewright.errors import EdgewrightError
from edgewright.program.edge import to_edge_transform_and_lower
from edgewright.runtime import Runtime
from edgewright.runtime.binding import KernelStep
from edgewright.runtime.jit.segment_step import SegmentStep
from edgewright.runtime.method import Method


class Mixed(nn.Module):
    """float32, integers and bools, chosen, counted and gathered."""

    def forward(self, x: torch.Tensor, by: torch.Tensor, at: torch.Tensor) -> Any:
        y = torch.where(x > 0.1, x.abs().log1p(), torch.sin(x) ** 3)
        best, places = y.topk(3, 1)
        first = y.argmax(1)
        share = torch.div(first.to(torch.int32) * 7 - 3, by, rounding_mode="floor")
        total = (y[:, :64].flip(1) < 0).to(torch.int64).cumsum(1)
        masked = y.masked_fill(torch.isnan(y) | (y <= -1), 0.5).roll(5, 1)
        return best, places, share, total, masked, torch.index_select(y, 1, at), y.max(1).values


def program() -> bytes:
    given = (torch.zeros(40, 3001), torch.ones(40, dtype=torch.int32), torch.zeros(5, dtype=torch.int64))
    return to_edge_transform_and_lower(torch.export.export(Mixed(), given, strict=False)).to_executorch().buffer


@pytest.fixture(scope="module")
def data() -> bytes:
    return program()


def loaded(data: bytes) -> Method:
    method: Method = Runtime(threads=1).load_program(data).load_method("forward")
    return method


def inputs() -> list[Any]:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((40, 3001)).astype(np.float32)
    x[2, 7], x[3, :9] = np.inf, 2.5
    by = rng.integers(1, 9, 40).astype(np.int32) * rng.choice([-1, 1], 40).astype(np.int32)
    return [x, by, np.array([0, 3000, 17, 17, 5])]


def test_one_segment_gives_what_eager_torch_gives(data: bytes) -> None:
    method, given = loaded(data), inputs()
    steps = [s for chain in method._chains for s in chain]
    assert isinstance(steps[0], SegmentStep) and steps[0].end == len(steps)
    assert all(isinstance(call, KernelStep) for call in steps[0]._calls)
    wanted = Mixed()(*map(torch.from_numpy, given))
    for got, want in zip(method.execute(given), wanted, strict=True):
        assert got.dtype == want.numpy().dtype
        np.testing.assert_allclose(got, want.numpy(), 2e-6, 1e-6)


@pytest.mark.parametrize(("which", "value"), [(1, 0), (2, 3001), (2, -1)])
def test_wrong_divisors_and_indices_are_reported_as_without_the_engine(
    data: bytes, which: int, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = inputs()
    given[which][3] = value
    told = []
    for engine in ("", "reference"):
        monkeypatch.setenv(ENGINE_VARIABLE, engine)
        with pytest.raises(EdgewrightError) as caught:
            loaded(data).execute(given)
        told.append(str(caught.value).splitlines()[0].rpartition("): ")[2])  # what is wrong, without where
    assert told[0] and told[0] == told[1]
