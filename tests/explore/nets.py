"""Models, data and metrics that sweeps of the tests name."""

from __future__ import annotations

from typing import Any

import torch

DATA_CALLS = 12


class Net(torch.nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, width), torch.nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.second(self.first(x).relu())
        return result

    def example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.zeros(1, 8),)


class Counter(Net):
    """A model with state, whose calls depend on each other."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(1, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)  # type: ignore[operator]
        return super().forward(self.total)  # type: ignore[arg-type]


def small() -> Net:
    return Net(4)


def large() -> Net:
    return Net(16)


def widths(width: int) -> Net:
    return Net(width)


def data(count: int = DATA_CALLS) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    return [torch.randn(1, 8, generator=draw) * (1 + n % 5) for n in range(count)]


def many() -> list[torch.Tensor]:
    return data(300)


def mean_output(model: Any) -> float:
    return float(torch.as_tensor(model(data()[0])).mean())


def raising(model: Any) -> float:
    return {}["no such label"]  # type: ignore[no-any-return]


def not_a_number(model: Any) -> float:
    return float(torch.zeros(0).mean())


not_a_function = 3
