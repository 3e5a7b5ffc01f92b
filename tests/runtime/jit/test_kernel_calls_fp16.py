"""Kernel calls of portable programs on reals of 16 bits: machine code, and what eager torch gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from edgewright.formats.operator_signatures import operators
from edgewright.program.edge import to_edge_transform_and_lower
from tests.engine.coverage import portable
from tests.engine.coverage.calls import HALVES, TYPES, Taken, in_numpy, samples, taken
from tests.engine.coverage.vendors import native
from tests.engine.graphs import cpus
from tests.runtime.jit.test_kernel_calls import check
from tests.runtime.jit.test_segments import loaded, lowered, segments
from tests.runtime.jit.test_state import Cached, by_index

FAMILIES = 4


def calls(family: int, most: int) -> list[Taken]:
    """Of each kernel, so many samples that are machine code altogether."""
    made = []
    for key in [key for i, key in enumerate(samples(halves=True)) if i % FAMILIES == family]:
        chosen = samples(halves=True)[key]
        found = (taken(s) for s in chosen[:: max(1, len(chosen) // most)])
        known = [c for c in found if c is not None and {str(w.dtype) for w in c.wanted} <= TYPES | HALVES]
        made += [c for c in known if native(c.graph)]
    return made


@pytest.mark.sample(1)
@pytest.mark.parametrize("family", range(FAMILIES))
def test_calls_give_what_eager_torch_gives(family: int) -> None:
    made = calls(family, 1)
    assert len(made) > 30
    check(made, cpus()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("family", range(FAMILIES))
@pytest.mark.parametrize("cpu", cpus())
def test_all_calls(family: int, cpu: str) -> None:
    check(calls(family, 1000), cpu)


@pytest.mark.slow
def test_what_is_left_to_numpy() -> None:
    listed = [f"aten::{k}" if "::" not in k else k for keys in portable.HALVES.values() for k in keys.split()]
    assert len(listed) == len(set(listed))
    assert {key for key in operators() if in_numpy(key, halves=True)} == set(listed)


class Mixed(nn.Module):
    """A network of images, and a layer of rows with a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.deep = (
            nn.Conv2d(3, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.Conv2d(16, 16, 3, groups=16),
        )
        self.line, self.rows = nn.Linear(16, 32), nn.LayerNorm(32)

    def forward(self, x: torch.Tensor) -> Any:
        x = torch.relu(self.norm(self.conv(x)))
        x = nn.functional.hardtanh(self.deep(x), 0, 6).flatten(2).transpose(1, 2)
        x = self.rows(nn.functional.gelu(self.line(x)))
        return torch.cat([x, torch.softmax(x, -1) * 2 - x], 1), x.mean(1), x > 0.5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_program_is_one_segment(dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    model, x = Mixed().eval().to(dtype), torch.randn(2, 3, 20, 21).to(dtype)
    data = to_edge_transform_and_lower(torch.export.export(model, (x,))).to_executorch().buffer
    for method in (loaded(data), loaded(data)):  # compiled, and as it was kept
        (made,) = segments(method)
        assert made.end == sum(len(chain) for chain in method._chains)
        found = [o.float() for o in method.execute([x])]
    wanted, step = [o.float() for o in model.float()(x.float())], torch.finfo(dtype).eps
    for got, want in zip(found[:2], wanted, strict=False):
        assert (got - want).abs().max() < 4 * step * want.abs().max()
    assert (found[2] != wanted[2]).float().mean() < 0.02


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_cache_is_kept(dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    model, x = Cached(by_index).eval().to(dtype), torch.randn(1, 1, 256).to(dtype)
    method = loaded(lowered(model, x, torch.tensor([0])))
    assert len(segments(method)) == 1
    for at in (0, 5, 1, 19):
        want = model(x * (at + 1), torch.tensor([at])).float()
        (got,) = method.execute([x * (at + 1), torch.tensor([at])])
        assert (got.float() - want).abs().max() < 4 * torch.finfo(dtype).eps * want.abs().max()
