"""Weights that a model computes of others are computed before it is quantized, unless they are still to change."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e, prepare_qat_pt2e

import edgewright as ew
from edgewright.backends.xnnpack import XNNPACKQuantizer, get_symmetric_quantization_config
from edgewright.frontend.constant_folding import fold_weights
from tests.backends.quantized import stored
from tests.program.case import Call

X = torch.linspace(-2, 2, 32).reshape(4, 8)


class Stored(nn.Module):
    """A function of an input and of two parameters."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Parameter(torch.randn(8, 8)), nn.Parameter(torch.randn(8))
        self.register_buffer("seen", torch.ones(8))
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def _written(m: Any, x: Tensor) -> Tensor:
    scale = m.seen * 2
    m.seen.add_(1)
    return x * scale


def _changed_in_place(m: Any, x: Tensor) -> Tensor:
    scale = m.b + 1
    scale.mul_(2)
    return x * scale + scale[0]


def _changed_through_a_view(m: Any, x: Tensor) -> Tensor:
    scale = m.b * 3
    scale[2:4] = 0
    return x * scale


FOLDED = {
    "sum": lambda m, x: x * (1 + m.b),
    "chain": lambda m, x: x @ torch.tanh(m.a.exp() - m.b).T,
    "parts": lambda m, x: x[:, :4] * (m.b.chunk(2)[0] - m.b.chunk(2)[1]),
    "norm": lambda m, x: x + nn.functional.layer_norm(m.a, (8,))[:4],
    "another shape": lambda m, x: x @ (m.a.flatten() * 2).view(8, 8),
    "another shape of another": lambda m, x: x * (m.b + 1).unsqueeze(0).reshape_as(m.b),
    "number": lambda m, x: x + torch.full((8,), 0.5),
    "like": lambda m, x: x + torch.full_like(x, 0.5),
    "steps": lambda m, x: x[:, torch.arange(7, -1, -1)],
    "mask": lambda m, x: x.masked_fill(torch.ones(4, 8, dtype=torch.bool).triu(1), 0.0),
    "slice": lambda m, x: nn.functional.linear(x, m.a[:4], m.b[:4]),
}
LEFT = {
    "view": lambda m, x: x @ m.a.t() + m.b[None],
    "state": _written,
    "in place": _changed_in_place,
    "through a view": _changed_through_a_view,
    "random": lambda m, x: x + torch.rand_like(m.b) * 0,
    "infinite": lambda m, x: (x + m.b / 0).softmax(-1),
    "input": lambda m, x: x * (x.sum() + m.b),
    "returned": lambda m, x: (x, m.b + 1),
    "large": lambda m, x: (x.sum() * m.b.repeat(4096) + 1).sum(),
}


def module_of(function: Any) -> Any:
    return torch.export.export(Stored(function).eval(), (X,)).module()


@pytest.mark.parametrize("name", FOLDED)
def test_what_is_computed_of_weights_is_one(name: str) -> None:
    module, original = module_of(FOLDED[name]), module_of(FOLDED[name])
    folded = fold_weights(module)
    assert any(str(n.target).endswith("_folded") for n in folded.graph.find_nodes(op="get_attr"))
    read = [
        n for n in folded.graph.nodes if n.op == "call_function" and all(i.op == "get_attr" for i in n.all_input_nodes)
    ]
    assert {str(n.target) for n in read} <= {"aten.t.default", "aten.slice.Tensor", "aten.numpy_T.default"}
    for _ in range(2):
        assert torch.equal(folded(X), original(X))


@pytest.mark.parametrize("name", LEFT)
def test_what_changes_or_only_moves_is_left(name: str) -> None:
    module, original = module_of(LEFT[name]), module_of(LEFT[name])
    folded = fold_weights(module)
    assert str(folded.graph) == str(original.graph)
    for _ in range(2):
        torch.testing.assert_close(folded(X), original(X), rtol=0, atol=0, equal_nan=True)


def test_a_weight_norm_is_a_weight_to_the_quantizer_and_in_training_it_is_not() -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 4, 3))
    inputs = (torch.randn(1, 4, 8),)
    quantizers = [XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_qat=q)) for q in (False, True)]
    ready = prepare_pt2e(torch.export.export(layer.eval(), inputs).module(), quantizers[0])
    trained = prepare_qat_pt2e(torch.export.export(layer.train(), inputs).module(), quantizers[1])
    names = [{str(n.target).split(".")[1] for n in m.graph.nodes if n.op == "call_function"} for m in (ready, trained)]
    assert names[0] == {"conv1d"}
    assert names[1] > {"conv1d"}
    trained(*inputs).sum().backward()
    assert all(p.grad is not None for name, p in trained.named_parameters() if "parametrizations" in name)


@pytest.mark.parametrize("target", ["xnnpack", "ethos-u55-128"])
def test_a_layer_with_a_weight_norm_runs_in_integers(target: str) -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 4, 3)).eval()
    inputs = (torch.randn(1, 4, 8),)
    result = ew.compile(layer, inputs, target, quantize="int8", calibration=[inputs], quiet=True)
    assert result.report.coverage["macs"] == 1.0
    assert result.report.sqnr is not None and result.report.sqnr > 30
    if target == "xnnpack":  # the NPU has no other types
        assert [str(weight.dtype) for weight in stored(result.buffer)] == ["int8"]


def test_a_computed_tensor_in_several_shapes_is_stored_once() -> None:
    def function(m: Any, x: Tensor) -> Tensor:
        doubled = m.a * 2
        return x @ doubled.view(8, 8) + doubled.view(-1)[:8]

    module, original = fold_weights(module_of(function)), module_of(function)
    assert [n for n, _ in module.named_buffers() if "folded" in n] == ["mul_folded"]
    assert torch.equal(module(X), original(X))


class Standardized(nn.Conv2d):
    """Weights of mean 0 and variance 1, as networks without batch norms have them."""

    def forward(self, x: Tensor) -> Tensor:
        rows = self.weight.reshape(1, self.out_channels, -1)
        weight = nn.functional.batch_norm(rows, None, None, training=True, momentum=0.0, eps=1e-6)
        return nn.functional.conv2d(x, weight.reshape_as(self.weight), self.bias)


@pytest.mark.parametrize("target", ["xnnpack", "ethos-u55-128"])
def test_a_layer_with_standardized_weights_runs_in_integers(target: str) -> None:
    layer, inputs = Standardized(3, 8, 3).eval(), (torch.randn(1, 3, 8, 8),)
    result = ew.compile(layer, inputs, target, quantize="int8", calibration=[inputs], quiet=True)
    assert result.report.coverage["macs"] == 1.0
    assert result.report.sqnr is not None and result.report.sqnr > 30
    if target == "xnnpack":
        assert [str(weight.dtype) for weight in stored(result.buffer)] == ["int8"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.spectral_norm], ids=["weight", "spectral"])
def test_norms_that_are_hooks_are_exported(norm: Any, caplog: pytest.LogCaptureFixture) -> None:
    """They assign the weight before every call, which is no state: the program computes it, too."""
    layer, inputs = norm(nn.Conv1d(4, 4, 3)).eval(), (torch.randn(1, 4, 8),)
    wanted = layer(*inputs)
    result = ew.compile(layer, inputs, "xnnpack", quiet=True)
    torch.testing.assert_close(torch.as_tensor(result.run(*inputs)), wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(layer(*inputs), wanted, rtol=0, atol=0)
    assert not [r for r in caplog.records if "not preserved between calls" in r.getMessage()]


def test_nothing_to_fold_leaves_a_module_alone() -> None:
    module = torch.export.export(Call(torch.relu), (X,)).module()
    before = str(module.graph)
    assert str(fold_weights(module).graph) == before


class Positions(nn.Module):
    """A position embedding resized to the image, by an operator that no runtime has."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.patches = nn.Parameter(torch.randn(1, 8, 7, 7)), nn.Conv2d(3, 8, 4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.patches(x) + nn.functional.interpolate(self.table, size=(4, 4), mode="bicubic", antialias=True)


def test_operators_without_a_kernel_are_evaluated_where_they_read_no_input() -> None:
    model, x = Positions().eval(), (torch.randn(1, 3, 16, 16),)
    program = ew.to_edge_transform_and_lower(ew.export(model, x)).to_executorch()
    actual = ew.Runtime.get().load_program(program.buffer).load_method("forward").execute([x[0].numpy()])[0]
    torch.testing.assert_close(torch.as_tensor(actual), model(*x))
