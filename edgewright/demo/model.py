"""CifarNet: the model of ``edgewright demo``, and an example for ``edgewright compile``."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram

from edgewright.demo import WEIGHTS, images
from edgewright.frontend.export import export
from edgewright.frontend.safetensors import load_weights
from edgewright.program.config import ExecutorchBackendConfig
from edgewright.program.edge import to_edge_transform_and_lower


class CifarNet(torch.nn.Module):
    """Three 5x5 convolutions with pooling, and one linear layer; trained on CIFAR-10."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 32, 5, padding=2)
        self.conv2 = torch.nn.Conv2d(32, 32, 5, padding=2)
        self.conv3 = torch.nn.Conv2d(32, 64, 5, padding=2)
        self.fc = torch.nn.Linear(1024, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv in (self.conv1, self.conv2, self.conv3):
            x = torch.nn.functional.max_pool2d(conv(x).relu(), 2, 2)
        logits: torch.Tensor = self.fc(x.flatten(1))
        return logits

    def example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.zeros(1, 3, 32, 32),)


def cifarnet() -> CifarNet:
    """The trained model. Its weights stay memory-mapped."""
    with torch.device("meta"):
        model = CifarNet()
    load_weights(model, WEIGHTS)
    return model.eval()


def calibration() -> list[torch.Tensor]:
    """Calibration inputs: images that the demo does not classify."""
    return [torch.from_numpy(x) for x in images.load()[0][-images.CALIBRATION_COUNT :]]


def export_cifarnet() -> ExportedProgram:
    model = cifarnet()
    return export(model, model.example_inputs())


def lower_cifarnet(program: ExportedProgram) -> Any:
    """Lower to the shipped program: without a manifest, so that every torch release gives the same bytes."""
    return to_edge_transform_and_lower(program).to_executorch(ExecutorchBackendConfig(manifest=False))
