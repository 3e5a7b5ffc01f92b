"""Models quantized through PT2E, lowered to XNNPACK, and run by us and by stock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from edgewright.backends.xnnpack.blob import read_blob
from edgewright.backends.xnnpack.blob_reader import from_blob
from edgewright.backends.xnnpack.partitioner import XnnpackPartitioner
from edgewright.backends.xnnpack.quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from edgewright.formats import read_program
from edgewright.ir.graph import Value
from edgewright.lowering.partition.report import PartitionReport
from edgewright.program.edge import to_edge_transform_and_lower
from edgewright.runtime import Runtime
from tests.support.stock import stock


def quantizer(**options: Any) -> XNNPACKQuantizer:
    return XNNPACKQuantizer().set_global(get_symmetric_quantization_config(**options))


def converted(model: nn.Module, inputs: Sequence[Tensor], chosen: XNNPACKQuantizer) -> Any:
    """A model calibrated on noise like its inputs."""
    prepared = prepare_pt2e(torch.export.export(model.eval(), tuple(inputs)).module(), chosen)
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        prepared(*(torch.randn(i.shape, generator=generator) for i in inputs))
    return convert_pt2e(prepared)


class Run:
    """What a quantized model gives: in eager torch, in our runtime, in stock."""

    def __init__(self, model: Any, inputs: Sequence[Tensor], **options: Any) -> None:
        partitioner = XnnpackPartitioner(**options)
        manager = to_edge_transform_and_lower(torch.export.export(model, tuple(inputs)), partitioner=[partitioner])
        self.buffer = manager.to_executorch().buffer
        self.report: PartitionReport = partitioner.reports["forward"]
        arrays = [i.numpy() for i in inputs]
        self.ours = np.asarray(Runtime.get().load_program(self.buffer).load_method("forward").execute(arrays)[0])
        self.stock = stock().run(self.buffer, "forward", arrays)[0]
        self.eager = model(*inputs).detach().numpy()

    @property
    def whole(self) -> bool:
        """True if all of it is one delegate."""
        return all(v.backend for v in self.report.verdicts) and len({v.group for v in self.report.verdicts}) == 1


def stored(buffer: bytes, argument: str = "weight") -> list[Value]:
    """What the delegates of a program hold as an operator's argument of this name."""
    program = read_program(buffer)
    named = {item.key: program.segment(item.segment_index) for item in program.named_data or ()}
    blobs = [program.blob(delegate) for plan in program.execution_plan for delegate in plan.delegates]
    ops = [op for blob in blobs for op in from_blob(read_blob(blob), named).ops]
    return [op.args[argument] for op in ops if argument in op.args]


def relative(got: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.abs(got - wanted).max() / max(np.abs(wanted).max(), 1e-12))


def sqnr(got: np.ndarray, wanted: np.ndarray) -> float:
    """How far the noise is below the signal, in decibels."""
    noise = ((got.astype(np.float64) - wanted) ** 2).sum()
    return float(10 * np.log10((wanted.astype(np.float64) ** 2).sum() / max(noise, 1e-30)))


# ------------------------------------------------------------------------------------------------------ models


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU6(inplace=True))
        self.depthwise = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.ReLU())
        self.point = nn.Conv2d(8, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x)
        return torch.relu(self.point(self.depthwise(y)) + y)


class Concatenated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(3, 6, 1)
        self.after = nn.Conv2d(10, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(torch.relu(torch.cat([self.left(x), self.right(x)], 1)))


class Upward(nn.Module):
    """Transposed convolutions, with and without groups."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.ConvTranspose2d(3, 4, 2, stride=2)
        self.two = nn.ConvTranspose2d(4, 8, 3, stride=2, padding=1, output_padding=1, groups=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(F.relu(self.one(x)))


class Head(nn.Module):
    """A convolution, pooling, a reshape and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2, groups=1)
        self.grouped = nn.Conv2d(8, 8, 3, groups=4)
        self.linear = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = F.max_pool2d(F.relu(self.conv(x)), 3, 2, 1)
        return self.linear(F.adaptive_avg_pool2d(self.grouped(y), 1).flatten(1))


class Products(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 6, 1), nn.Conv2d(3, 6, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.a(x) * self.b(x)).mean((2, 3), keepdim=True) - self.b(x)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 64), nn.Hardtanh(), nn.Linear(64, 10))


IMAGE = (1, 3, 12, 12)
STATIC: dict[str, tuple[Any, tuple[int, ...]]] = {
    "residual": (Residual, IMAGE), "concatenated": (Concatenated, IMAGE), "upward": (Upward, IMAGE),
    "head": (Head, (2, *IMAGE[1:])), "products": (Products, IMAGE), "mlp": (mlp, (4, 64)),
}  # fmt: skip


def made(name: str) -> tuple[nn.Module, tuple[Tensor]]:
    """A model of the table and inputs, the same every time."""
    model, shape = STATIC[name]
    torch.manual_seed(0)
    return model().eval(), (torch.randn(shape, generator=torch.Generator().manual_seed(9)),)
