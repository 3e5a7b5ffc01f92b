"""A module with control flow in it, and the calls that are made of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from tests.program.case import Call


@dataclass
class Flow:
    """A module, and the inputs of the calls made in a row on one loaded method."""

    name: str
    module: Callable[..., Any]
    calls: list[tuple[Any, ...]]
    dynamic: Any = None
    rtol: float = 1e-5

    def make(self) -> nn.Module:
        torch.manual_seed(0)
        module = self.module() if isinstance(self.module, type) else Call(self.module)
        return module.eval()

    @property
    def shapes(self) -> Any:
        return self.dynamic if isinstance(self.module, type) or self.dynamic is None else (self.dynamic,)


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


UP, DOWN = seeded(2, 3).abs() + 0.1, -seeded(2, 3).abs() - 0.1
N = Dim("n", min=2, max=8)
