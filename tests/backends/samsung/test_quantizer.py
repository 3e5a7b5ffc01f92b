"""Quantizing for Exynos NPUs: precisions by stock's names and more, and stock's faults not repeated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F  # noqa: N812
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from edgewright.backends.samsung import EnnQuantizer, Precision, get_quant_config, quantize_module
from edgewright.backends.samsung.dialect import DIALECT
from edgewright.errors import UsageError
from edgewright.ir.graph import Graph
from tests.backends.samsung.networks import device_graphs, mixed, quantized

TYPES = {
    "A8W8": ("int8", "int8"),
    "A16W16": ("int16", "int16"),
    "UA8W8": ("uint8", "int8"),
    "UA16W16": ("uint16", "int16"),
}


def stored(graph: Graph) -> tuple[set[str], set[str]]:
    """Types of quantized activations and of weights."""
    held = [v for v in graph.values() if v.q is not None]
    weights = {str(v.dtype) for v in held if v.data is not None and len(v.shape) > 1}
    return {str(v.dtype) for v in held if v.data is None}, weights


def run(model: Any, inputs: tuple[torch.Tensor, ...]) -> Any:
    (graph,) = device_graphs(model, inputs)
    return DIALECT.execute(graph, [x.numpy() for x in inputs])[0]


def decibels(wanted: Any, made: Any) -> float:
    return float(10 * np.log10((wanted**2).sum() / ((made - wanted) ** 2).sum()))


def test_precisions_are_stocks_and_more() -> None:
    assert Precision.A8W8 == 3
    quantizer = EnnQuantizer()
    assert (quantizer.precision, quantizer.is_per_channel, quantizer.is_qat) == (Precision.A8W8, True, False)
    quantizer.set_quant_params("A16W16", is_per_channel=False, is_qat=True)
    quantizer.setup_precision(Precision.UA8W8)
    assert (quantizer.precision, quantizer.is_per_channel, quantizer.is_qat) == (Precision.UA8W8, False, True)
    for wrong in ("A8W4", 2, None, True):
        with pytest.raises(UsageError, match="precision: must be one of A8W8, A16W16, UA8W8, UA16W16"):
            quantizer.setup_precision(wrong)
    with pytest.raises(UsageError, match="is_qat"):
        get_quant_config("A8W8", True, 1)  # type: ignore[arg-type]


@pytest.mark.sample(2)
@pytest.mark.parametrize("precision", TYPES)
@pytest.mark.parametrize("per_channel", [True, False])
def test_networks_are_quantized_whole_and_right(precision: str, per_channel: bool) -> None:
    model, inputs = mixed()
    made = quantized(model, inputs, precision, is_per_channel=per_channel)
    (graph,) = device_graphs(made, inputs)
    activations, weights = TYPES[precision]
    assert stored(graph) == ({activations}, {weights})
    filters = [op.args["inputs"][1] for op in graph.ops if op.kind.endswith("CONV2D")]
    assert {w.q.axis for w in filters} == ({0} if per_channel else {None})  # type: ignore[union-attr]
    assert {str(v.dtype) for v in (*graph.inputs, *graph.outputs)} == {"float32"}
    with torch.no_grad():
        wanted = model(*inputs).numpy()
    assert decibels(wanted, DIALECT.execute(graph, [inputs[0].numpy()])[0]) > (28 if "8" in precision else 60)


@pytest.mark.parametrize("precision", TYPES)
def test_a_sigmoid_is_not_cut_off_in_the_middle(precision: str) -> None:
    """Stock gives it a zero point of 0 in a type that starts at -128: nothing above a half can be stored."""

    class Sigmoid(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sigmoid(x + x)

    inputs = (torch.linspace(-4, 4, 64).reshape(1, 64),)
    made = run(quantized(Sigmoid().eval(), inputs, precision), inputs)
    wanted = Sigmoid()(*inputs).numpy()
    assert made.max() > 0.99 and np.abs(made - wanted).max() < 0.02


class _Limited(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.line = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu6(self.line(F.hardtanh(self.conv(x), -0.5, 2.0).permute(0, 2, 3, 1)))


@pytest.mark.parametrize("precision", [None, "A8W8", "A16W16"])
def test_any_limits_may_follow_a_convolution(precision: str | None) -> None:
    """Stock's lowering ends with an error for others than (0, 6)."""
    torch.manual_seed(0)
    model, inputs = _Limited().eval(), (torch.randn(1, 3, 6, 6) * 3,)
    made = model if precision is None else quantized(model, inputs, precision)
    with torch.no_grad():
        wanted = model(*inputs).numpy()
    assert decibels(wanted, run(made, inputs)) > (28 if precision == "A8W8" else 50)


def test_channels_are_counted_for_every_batch() -> None:
    """Stock divides them by the batch."""
    model, inputs = mixed(4)
    (graph,) = device_graphs(model, inputs)
    convolutions = [op for op in graph.ops if op.kind.endswith("CONV2D")]
    assert [op.args["out_channels"] for op in convolutions] == [op.args["inputs"][1].shape[0] for op in convolutions]


def test_annotations_of_the_users_come_last() -> None:
    model, inputs = mixed()
    seen: list[int] = []

    def look(module: fx.GraphModule) -> None:
        seen.append(sum("quantization_annotation" in n.meta for n in module.graph.nodes))

    quantizer = EnnQuantizer()
    quantizer.add_custom_quant_annotations([look])
    prepare_pt2e(torch.export.export(model, inputs).module(), quantizer)
    assert len(seen) == 1 and seen[0] > 8


def test_weights_that_were_left_real_are_stored_when_lowered() -> None:
    """Stock's own helper converts so."""
    model, inputs = mixed()
    prepared = prepare_pt2e(torch.export.export(model, inputs).module(), EnnQuantizer())
    prepared(*inputs)
    (graph,) = device_graphs(convert_pt2e(prepared, fold_quantize=False), inputs)
    assert stored(graph) == ({"int8"}, {"int8"})


@pytest.mark.slow
@pytest.mark.parametrize("precision", [pytest.param("A8W8", marks=pytest.mark.slow), "A16W16"])
def test_training_goes_through_the_same_call(precision: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    data = torch.randn(8, 3, 6, 6)
    goals = data.mean((2, 3))
    losses: list[float] = []

    def train(prepared: fx.GraphModule) -> None:
        optimizer = torch.optim.SGD(prepared.parameters(), 0.05)
        for _ in range(8):
            loss = F.mse_loss(prepared(data), goals)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))

    made = quantize_module(model.train(), (data,), [], precision, is_qat=True, train_fn=train)
    assert losses[-1] < losses[0]
    (graph,) = device_graphs(made, (data,))
    assert stored(graph) == tuple({t} for t in TYPES[precision])
    with pytest.raises(UsageError, match="train_fn"):
        quantize_module(model.eval(), (data,), [], precision, train_fn=train)


class _Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

    def forward(self, x: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        q, k, v = (layer(x) for layer in self.layers)
        never = (1.0 - attention_mask[:, None, :]) * -10000.0
        made: torch.Tensor = torch.softmax(q @ k.transpose(1, 2) / 4 + never, -1) @ v
        return made


def test_masks_of_attention_cost_scores_no_precision() -> None:
    """Stock changes the number, if the mask has its usual name: by its own range nothing would be left of scores."""
    torch.manual_seed(0)
    model = _Masked().eval()
    data = [(2 * torch.randn(1, 12, 16), torch.tensor([[1.0] * n + [0.0] * (12 - n)])) for n in (9, 12, 7, 5)]
    made = quantize_module(model, data[0], data, Precision.A8W8)
    with torch.no_grad():
        wanted, got = (m(*data[0]).numpy() for m in (model, made))
    assert 10 * np.log10((wanted**2).sum() / ((got - wanted) ** 2).sum()) > 28
