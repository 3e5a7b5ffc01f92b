"""Small networks that have a bit of everything, and their way to a device graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from edgewright.backends.samsung import EnnPartitioner, gen_samsung_backend_compile_spec, quantize_module
from edgewright.backends.samsung.partitioner import to_enn
from edgewright.frontend.delegate import LoweredBackendModule
from edgewright.ir.graph import Graph
from edgewright.program.edge import to_edge_transform_and_lower


class Mixed(nn.Module):
    """Convolutions of three kinds, a batch norm, a residual, a gate, a mean, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.norm = nn.BatchNorm2d(8)
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.gate = nn.Conv2d(8, 8, 1)
        self.last = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        y = F.hardtanh(self.deep(x), -1, 1) + x
        y = y * torch.sigmoid(self.gate(y))
        y = F.max_pool2d(y, 2)
        y = torch.cat([y, y * 0.5], 2)
        return torch.softmax(F.relu6(self.last(y.mean((2, 3)))), -1)


def mixed(batch: int = 1) -> tuple[nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(0)
    model = Mixed().eval()
    model.norm.running_mean.normal_()  # type: ignore[operator]
    return model, (torch.randn(batch, 3, 16, 16),)


def quantized(model: nn.Module, inputs: tuple[torch.Tensor, ...], precision: Any, **options: Any) -> Any:
    torch.manual_seed(1)
    data = [tuple(torch.randn_like(x) for x in inputs) for _ in range(3)]
    return quantize_module(model, inputs, [*data, inputs], precision, **options)


class Capturing(EnnPartitioner):
    """Keeps the device graphs it makes."""

    def __init__(self) -> None:
        super().__init__([gen_samsung_backend_compile_spec("E9955", simulate_only=True)])
        self.graphs: list[Graph] = []

    def lower(self, group: Graph) -> LoweredBackendModule:
        made = super().lower(group)
        self.graphs.append(to_enn(group, self.target()))
        return made


def device_graphs(model: Any, inputs: tuple[Any, ...]) -> list[Graph]:
    partitioner = Capturing()
    to_edge_transform_and_lower(torch.export.export(model, inputs), partitioner=[partitioner])
    return partitioner.graphs
