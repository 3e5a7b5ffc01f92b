"""Constants that XNNPACK reads in place are inputs of the delegate: the stock runtime frees those in the blob."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edgewright.backends.xnnpack.blob import read_blob
from edgewright.backends.xnnpack.blob_reader import from_blob
from edgewright.backends.xnnpack.delegate import XnnpackDelegate
from edgewright.backends.xnnpack.partitioner import XnnpackPartitioner
from edgewright.errors import FormatError
from edgewright.formats import read_program
from edgewright.program.edge import to_edge_transform_and_lower
from edgewright.runtime import Runtime
from edgewright.runtime.delegates import DelegateBlob
from tests.backends.quantized import converted, quantizer
from tests.support.stock import stock

_PACKED = {("core.conv2d", "weight"), ("core.conv2d", "bias"), ("core.linear", "weight"), ("core.linear", "bias")}


class Scaled(nn.Module):
    """A number, a factor per channel, and a constant that is concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.factor = nn.Parameter(torch.rand(1, 4, 1, 1) + 1)
        self.edge = nn.Parameter(torch.randn(1, 4, 5, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.edge, self.conv(x) * self.factor * 2], 3)


class Slopes(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 4, 1), nn.PReLU(4))


class Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 8)
        self.register_buffer("other", torch.randn(3, 8, 2))

    def forward(self, x: Tensor) -> Tensor:
        return torch.bmm(self.linear(x[0]), self.other)


def _compiled(model: nn.Module, inputs: tuple[Tensor, ...], quantized: bool) -> bytes:
    exported = torch.export.export(model.eval(), inputs)
    if quantized:
        exported = torch.export.export(converted(model, inputs, quantizer()), inputs)
    return to_edge_transform_and_lower(exported, partitioner=XnnpackPartitioner()).to_executorch().buffer


def _delegates(buffer: bytes) -> list[Any]:
    program = read_program(buffer)
    named = {item.key: program.segment(item.segment_index) for item in program.named_data or ()}
    plan = program.execution_plan[0]
    return [from_blob(read_blob(program.blob(delegate)), named) for delegate in plan.delegates]


@pytest.mark.parametrize("quantized", [False, True], ids=["float", "int8"])
@pytest.mark.parametrize("model", [Scaled, Slopes, Product])
def test_blobs_hold_only_what_xnnpack_packs(model: type[nn.Module], quantized: bool) -> None:
    torch.manual_seed(0)
    inputs = (torch.randn(1, 3, 5, 5),)
    buffer = _compiled(model(), inputs, quantized)
    graphs = _delegates(buffer)
    assert graphs
    stored = {
        (op.kind, name)
        for graph in graphs
        for op in graph.ops
        for name, arg in op.args.items()
        for value in (arg if isinstance(arg, list) else [arg])
        if getattr(value, "constant", False)
    }
    assert stored and stored <= _PACKED
    method = Runtime.get().load_program(buffer).load_method("forward")
    ours = method.execute([inputs[0].numpy()])[0]
    (theirs,) = stock().run(buffer, "forward", [inputs[0].numpy()])
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


def test_the_runtime_compiles_such_inputs_as_constants() -> None:
    torch.manual_seed(0)
    inputs = (torch.randn(1, 3, 5, 5),)
    (graph,) = _delegates(buffer := _compiled(Scaled(), inputs, False))
    assert len(graph.inputs) == 4
    method = Runtime.get().load_program(buffer).load_method("forward")
    (delegate,) = method._delegates
    assert isinstance(delegate, XnnpackDelegate) and delegate.device_graph is not None
    assert (delegate.input_count, len(delegate.bound_inputs), len(delegate.device_graph.inputs)) == (4, 3, 1)


def _bound(constants: dict[int, Any]) -> XnnpackDelegate:
    torch.manual_seed(0)
    program = read_program(_compiled(Scaled(), (torch.randn(1, 3, 5, 5),), False))
    named = {item.key: program.segment(item.segment_index) for item in program.named_data or ()}
    blob = program.blob(program.execution_plan[0].delegates[0])
    return XnnpackDelegate(DelegateBlob("XnnpackBackend", blob, {}, named, constants=constants))


def test_a_constant_of_another_type_or_shape_is_rejected() -> None:
    with pytest.raises(FormatError, match=r"input 1 must be a float32 tensor of shape \[.*\]; got int32"):
        _bound({1: np.zeros((1, 1, 1, 4), np.int32)})
    with pytest.raises(FormatError, match=r"input 1 must be a float32 tensor of shape \[.*\]; got float32 \[7\]"):
        _bound({1: np.zeros(7, np.float32)})


def test_a_result_that_is_a_constant_is_rejected() -> None:
    with pytest.raises(FormatError, match=r"a result must not be a constant of the file; got argument 4"):
        _bound({4: np.zeros((1, 4, 5, 6), np.float32)})
