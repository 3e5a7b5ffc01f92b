"""A tensor that is an attribute, but no buffer, is a constant to torch.export: models that write it are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e, prepare_qat_pt2e

import edgewright as ew
from edgewright import to_edge, to_edge_transform_and_lower
from edgewright.backends.xnnpack import XnnpackPartitioner, XNNPACKQuantizer, get_symmetric_quantization_config
from edgewright.errors import ExportError
from edgewright.frontend.export import export

X = torch.ones(2, 4)
Write = Callable[[torch.Tensor, torch.Tensor], Any]
WRITES: dict[str, Write] = {
    "add": lambda seen, y: seen.add_(1.0),
    "copy": lambda seen, y: seen.copy_(seen * 0.5 + y.mean(0)),
    "slice": lambda seen, y: seen[0:2].copy_(y[0, :2]),
    "chain": lambda seen, y: seen.mul_(0.5).add_(y.mean(0)),
}


class Plain(nn.Module):
    def __init__(self, write: Write, buffer: bool = False) -> None:
        super().__init__()
        self.fc, self.write = nn.Linear(4, 4), write
        self.inner = nn.Module()
        if buffer:
            self.inner.register_buffer("seen", torch.zeros(4))
        else:
            self.inner.seen = torch.zeros(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.fc(x)
        seen: Any = self.inner.seen
        self.write(seen, y)
        result: torch.Tensor = y + seen
        return result


def quantizer() -> Any:
    return XNNPACKQuantizer().set_global(get_symmetric_quantization_config())


def program(write: str) -> torch.export.ExportedProgram:
    return torch.export.export(Plain(WRITES[write]).eval(), (X,))


WAYS: dict[str, Callable[[str], Any]] = {
    "export": lambda write: export(Plain(WRITES[write]), (X,)),
    "to_edge": lambda write: to_edge(program(write)),
    "lower": lambda write: to_edge_transform_and_lower(program(write), partitioner=[XnnpackPartitioner()]),
    "float": lambda write: ew.compile(Plain(WRITES[write]), X, quiet=True),
    "float-program": lambda write: ew.compile(program(write), quiet=True),
    "int8": lambda write: ew.compile(Plain(WRITES[write]), X, quantize="int8", calibration=[X], quiet=True),
    "int8-program": lambda write: ew.compile(program(write), quantize="int8", calibration=[X], quiet=True),
    "prepare": lambda write: prepare_pt2e(program(write).module(), quantizer()),
    "prepare-qat": lambda write: prepare_qat_pt2e(program(write).module(), quantizer()),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_refuses_a_model_that_writes_a_plain_tensor(way: str) -> None:
    for write in WRITES:
        with pytest.raises(ExportError, match=r"inner\.seen.*: is a tensor that forward writes(.|\n)*register_buffer"):
            WAYS[way](write)


class Reads(nn.Module):
    """Reads plain tensors, writes copies of them, and copies them to a buffer."""

    state: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.table = nn.Linear(4, 4), torch.arange(4.0)
        self.register_buffer("state", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        copied, literal = self.table.clone(), torch.tensor([1.0, 2.0, 3.0, 4.0])
        copied[0] = x[0, 0]
        literal[1] = x[0, 1]
        self.state.copy_(self.table)
        result: torch.Tensor = self.fc(x) + copied + literal + self.state
        return result


def test_plain_tensors_that_are_only_read_and_buffers_are_fine() -> None:
    result = ew.compile(Reads(), X, quantize="int8", calibration=[X], quiet=True)
    assert result.report.sqnr is not None and result.report.sqnr > 30
    model = Plain(WRITES["chain"], buffer=True)
    kept = ew.compile(model, X, quantize="int8", calibration=[X], quiet=True)
    assert kept.report.sqnr is not None and kept.report.sqnr > 30
    method = kept.method()
    first, second = (np.asarray(method.execute([X])[0]) for _ in range(2))
    with torch.no_grad():
        np.testing.assert_allclose(first, model(X), atol=0.05)
    assert np.abs(second - first).max() > 0.05, "the buffer was written"
