"""Small models for the workbench's tests, also named on command lines: ``tests.api.models:net``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch


class Net(torch.nn.Module):
    """Two convolutions and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.stem = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.body = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.ReLU())
        self.fc = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.fc(self.body(self.stem(x).relu()).mean((2, 3)))
        return y

    def example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.zeros(1, 3, 8, 8),)


def net() -> Net:
    return Net().eval()


class Words(torch.nn.Module):
    """Places in, numbers out by name: an embedding, a normalization, and a product with a mask."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.table, self.norm, self.fc = torch.nn.Embedding(10, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 4)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.norm(self.table(ids)) * mask[..., None]
        return {"each": self.fc(x), "all": x.mean(1)}


class Wide(Net):
    """Has something that no NPU's row takes, in a module of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.odd = Odd()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.odd(super().forward(x))
        return y


class Odd(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.cumsum(1)


def wide() -> Wide:
    return Wide().eval()


def calls(count: int = 8) -> list[torch.Tensor]:
    random = np.random.default_rng(5)
    return [torch.from_numpy(random.standard_normal((1, 3, 8, 8)).astype(np.float32)) for _ in range(count)]


def stream() -> Iterator[tuple[torch.Tensor]]:
    """Calibration data by name."""
    yield from ((x,) for x in calls())


def mean_of_first(model: Callable[..., Any]) -> float:
    """A metric."""
    return float(np.asarray(model(calls(1)[0])).mean())


class Spoiled(torch.nn.Module):
    """One layer has a result far larger than its others, which nobody needs: 8 bits are too few for the rest."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.first, self.bad, self.after, self.last = (torch.nn.Conv2d(c, 8, 3, padding=1) for c in (3, 8, 8, 8))
        with torch.no_grad():
            self.bad.weight[0] *= 300
            self.after.weight[:, 0] = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.nn.functional.max_pool2d(self.first(x).relu(), 2)
        y: torch.Tensor = self.last(self.after(self.bad(x)).relu())
        return y

    def example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.zeros(1, 3, 8, 8),)


def spoiled() -> Spoiled:
    return Spoiled().eval()


def quantized() -> torch.export.ExportedProgram:
    """A model that was quantized elsewhere."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    from edgewright.backends.xnnpack import XNNPACKQuantizer, get_symmetric_quantization_config

    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(torch.export.export(net(), (calls(1)[0],)).module(), quantizer)
    for x in calls():
        prepared(x)
    return torch.export.export(convert_pt2e(prepared), (calls(1)[0],))
