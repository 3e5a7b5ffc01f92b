"""Bias correction and learned rounding, layer by layer."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import nn

import edgewright as ew
from edgewright.errors import UsageError
from edgewright.quantize.bias_correction import correct_bias, shrunk_mean
from edgewright.quantize.layer_walk import LayerSamples, adjust_layers
from edgewright.quantize.layers import Layer, activation_of, find_layers, tensor_of
from edgewright.quantize.learned_rounding import Problem, _patches, learn_rounding, round_rows
from edgewright.quantize.simulate import Simulation
from tests.quantize.test_channel_scales import TARGETS, images, prepared
from tests.quantize.test_preparation import settle


def network() -> nn.Module:
    torch.manual_seed(4)
    layers = (
        nn.Conv2d(3, 12, 3, stride=2, bias=False), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1, groups=12),
        nn.BatchNorm2d(12), nn.ReLU6(), nn.Conv2d(12, 8, 1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 9, 5),
    )  # fmt: skip
    return settle(nn.Sequential(*layers))


def calibrated(precision: str = "int8", target: str = "e9955") -> tuple[Any, list[torch.Tensor]]:
    data = images(16)
    model = prepared(network(), precision, data, target)
    with torch.no_grad():
        for x in data:
            model(x)
    return model, data


def mean_errors(model: Any, data: list[torch.Tensor]) -> torch.Tensor:
    """The mean error of each channel of the output, over the data."""
    with torch.no_grad():
        return torch.cat([Simulation(model).run(x)[0] - model(x)[0] for x in data]).mean(0).abs()


def test_corrected_biases_reduce_the_error_behind_the_activation_of_every_layer() -> None:
    """Without an activation, no channel is further from the float model's mean, and all together are much nearer."""
    model, data = calibrated()
    before, after, shifts = [], [], []

    def method(samples: LayerSamples) -> None:
        shift = _shift(samples)
        before.append(_active_noise(samples))
        correct_bias(samples)
        after.append(_active_noise(samples))
        shifts.append((shift, _shift(samples)))

    with torch.no_grad():
        assert adjust_layers(model, [(x,) for x in data], [method]) == 4
    assert all(second < first for first, second in zip(before, after, strict=True)), (before, after)
    first, second = shifts[-1]  # the linear layer's
    assert float(first.max()) > 1e-5 and bool((second <= first + 1e-7).all())
    assert float(second.square().sum()) < 0.5 * float(first.square().sum())


class _Stub:
    """Samples of a layer with other results."""

    def __init__(self, layer: Layer, exact: torch.Tensor, results: torch.Tensor) -> None:
        assert layer.bias is not None
        self.layer, self.exact, self._results = layer, [exact], [results]
        self.bias = tensor_of(layer.module, layer.bias).detach()

    def results(self) -> list[torch.Tensor]:
        return self._results


@pytest.mark.parametrize(
    "activation",
    [nn.ReLU(), nn.ReLU(inplace=True), nn.ReLU6(), nn.Hardswish()],
    ids=["relu", "relu_", "relu6", "hardswish"],
)
def test_errors_that_an_activation_removes_do_not_move_a_bias(activation: nn.Module) -> None:
    """Far below 0 the layer's results are off by 1, elsewhere by 0.1: the bias takes back the latter."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 1, 1), activation).eval()
    layer = next(find_layers(torch.export.export(model, (torch.zeros(1, 1, 4, 4),)).module()))
    wrong = torch.tensor([[-20.0, -20.0, -20.0], [2.0, 2.5, 1.5]]).expand(4, 1, 2, 3)
    exact = wrong + torch.where(wrong < -10, 1.0, 0.1)

    assert layer.bias is not None
    before = float(tensor_of(layer.module, layer.bias).detach())
    correct_bias(cast(Any, _Stub(layer, exact, wrong)))
    assert float(tensor_of(layer.module, layer.bias).detach()) - before == pytest.approx(0.1, abs=0.02)


class _Log(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.log()


def test_elements_without_a_finite_result_do_not_move_a_bias() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 1), _Log()).eval()
    layer = next(find_layers(torch.export.export(model, (torch.ones(1, 1),)).module()))
    assert activation_of(layer) is not None and layer.bias is not None
    before = float(tensor_of(layer.module, layer.bias).detach())
    correct_bias(cast(Any, _Stub(layer, torch.tensor([[2.1], [-1.0]]), torch.tensor([[2.0], [0.0]]))))
    assert float(tensor_of(layer.module, layer.bias).detach()) == before  # of one input alone: no evidence
    correct_bias(cast(Any, _Stub(layer, torch.tensor([[2.1], [-1.0], [2.1]]), torch.tensor([[2.0], [0.0], [2.0]]))))
    assert float(tensor_of(layer.module, layer.bias).detach()) - before == pytest.approx(0.1, abs=0.01)


def test_a_shift_that_one_input_has_alone_is_not_corrected() -> None:
    values, weights = torch.zeros(8, 2), torch.ones(8, 2)
    values[0, 0], weights[1:, 0] = 1.0, 0.0  # of the first channel, one input passes the activation
    values[:, 1] = 0.5
    assert shrunk_mean(values, weights).tolist() == [0.0, 0.5]


def test_shifts_that_inputs_do_not_agree_on_are_not_corrected() -> None:
    draw = torch.Generator().manual_seed(0)
    noise = torch.randn(20, 1000, generator=draw, dtype=torch.float64)
    ones = torch.ones_like(noise)
    assert float(shrunk_mean(noise, ones).square().sum()) < 0.5 * float(noise.mean(0).square().sum())
    shifted = shrunk_mean(noise * 0.1 + 1, ones)
    assert float((shifted - 1).abs().max()) < 0.1


def _shift(samples: LayerSamples) -> torch.Tensor:
    parts = [(e - r).movedim(samples.layer.axis(e.dim()), 0).flatten(1)
             for e, r in zip(samples.exact, samples.results(), strict=True)]  # fmt: skip
    return torch.cat(parts, 1).double().mean(1).abs()


def _active_noise(samples: LayerSamples) -> float:
    activation = activation_of(samples.layer) or torch.clone
    pairs = zip(samples.exact, samples.results(), strict=True)
    return sum(float((activation(e.clone()) - activation(r.clone())).square().sum()) for e, r in pairs)


def test_a_layer_without_a_bias_gets_one() -> None:
    model, data = calibrated()
    assert next(find_layers(model)).bias is None
    with torch.no_grad():
        adjust_layers(model, [(x,) for x in data], [correct_bias])
    assert all(layer.bias is not None for layer in find_layers(model))


@pytest.mark.parametrize("seed", range(4))
def test_learned_rounding_is_never_worse_than_nearest(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(3, 24, 200, generator=draw)
    x[:, 1:] += x[:, :1]  # correlated inputs: what one weight loses, others can make up for
    weights = torch.randn(3, 10, 24, generator=draw) * 4
    products = x @ x.mT / 200
    problem = Problem(weights, products, weights @ products)
    nearest, learned = torch.round(weights).clamp(-7, 7), round_rows(problem, -7, 7)
    assert torch.equal(learned, learned.round()) and learned.abs().max() <= 7
    assert torch.equal(learned, round_rows(problem, -7, 7))
    errors = [problem.errors(integers) for integers in (learned, nearest)]
    assert bool((errors[0] <= errors[1]).all())
    floor = problem.errors(weights).sum()
    assert float((errors[0].sum() - floor) / (errors[1].sum() - floor)) < 0.8


def test_rounding_of_layers_lowers_their_errors_and_stays_on_the_grid() -> None:
    """On the layer's results themselves, not on the quadratic that they are reduced to."""
    model, data = calibrated()
    ratios = []

    def method(samples: LayerSamples) -> None:
        before = _noise(samples)
        learn_rounding(samples)
        scale = samples.rounding[0].reshape(-1, *(1,) * (samples.weight.dim() - 1))
        steps = samples.weight / scale
        assert float((steps - steps.round()).abs().max()) < 1e-3
        ratios.append(_noise(samples) / before)

    with torch.no_grad():
        adjust_layers(model, [(x,) for x in data], [method])
    assert len(ratios) == 4 and max(ratios) < 1.05 and min(ratios) < 0.8, ratios


def _noise(samples: LayerSamples) -> float:
    return sum(float((e - r).square().sum()) for e, r in zip(samples.exact, samples.results(), strict=True))


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2),
        nn.Conv2d(4, 6, 3, padding="same", dilation=2),
        nn.Conv1d(4, 8, 3, stride=2, padding=1, groups=4),
        nn.Linear(5, 3),
    ],
    ids=["conv2d", "same", "conv1d", "linear"],
)
def test_patches_times_weights_are_the_results(layer: Any) -> None:
    """The products that rounding learns from are of what the layer reads."""
    shape = {2: (2, 5), 3: (1, 4, 9), 4: (1, 4, 7, 8)}[layer.weight.dim()]
    torch.manual_seed(0)
    x = torch.randn(shape)
    found = next(find_layers(torch.export.export(layer.eval(), (x,)).module()))
    weight = layer.weight.detach()
    with torch.no_grad():
        patches = _patches(found, x, weight).reshape(found.groups, weight[0].numel(), -1)
        rows = weight.reshape(found.groups, -1, weight[0].numel()) @ patches
        expected = layer(x).movedim(found.axis(x.dim()), 0).flatten(1)
    torch.testing.assert_close(rows.reshape(expected.shape) + layer.bias.detach()[:, None], expected)


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_takes_all_methods(target: str) -> None:
    """Compiled, checked against its graph, the same every time (one target), and nearer to the float model."""
    model, data = network(), images(20)
    precision = "int8+equalize+mse-weights+adaround+bias"
    results = [
        ew.compile(model, (data[0],), target, quantize=q, calibration=data[:16], evaluate=data[16:], quiet=True)
        for q in ["int8", precision, *([precision] if target == "xnnpack" else [])]
    ]
    assert results[-1].buffer == results[1].buffer != results[0].buffer
    assert all(r.report.check.inputs for r in results)
    assert results[1].report.precision == precision
    assert (results[1].report.sqnr or 0) > (results[0].report.sqnr or 0)


def test_methods_in_recipes() -> None:
    data = images(8)
    recipe = {"quantize": "int8+bias", "modules": {"0": "float"}}
    result = ew.compile(network(), (data[0],), "xnnpack", recipe=recipe, calibration=data, quiet=True)
    assert result.report.precision == "int8+bias + float"
    recipe["modules"] = {"0": "int8+bias"}
    with pytest.raises(UsageError, match="must be a preset: methods are for the complete model"):
        ew.compile(network(), (data[0],), "xnnpack", recipe=recipe, calibration=data, quiet=True)


@pytest.mark.parametrize(
    ("precision", "message"),
    [
        ("int8+adaronud", "method 'adaronud': must be one of equalize, .*\n.*adaround"),
        ("int8+mse+percentile", "both choose activations' ranges"),
        ("float+bias", "float has none"),
        ("int9+bias", "must be a preset of xnnpack"),
    ],
)
def test_wrong_methods(precision: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ew.compile(network(), (images(1)[0],), "xnnpack", quantize=precision, calibration=images(2), quiet=True)


def test_weights_of_transposed_convolutions_have_a_scale_for_each_output() -> None:
    """Their output channels are the second dimension."""
    torch.manual_seed(0)
    model, data = nn.ConvTranspose2d(6, 4, 2, stride=2).eval(), [(torch.randn(1, 6, 5, 5),) for _ in range(6)]
    for target in ("xnnpack", "ethos-u55-128"):
        result = ew.compile(model, data[0], target, quantize="int8+mse-weights", calibration=data, quiet=True)
        assert result.report.coverage["macs"] == 1.0 and (result.report.sqnr or 0) > 25
