"""A prepared model computes what the float model does, whatever follows a layer; if it does not, it is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d
from torchao.quantization.pt2e import quantize_pt2e as torchao
from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

import edgewright as ew
from edgewright.backends.xnnpack.quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from edgewright.errors import AccuracyError
from edgewright.quantize import pt2e
from edgewright.quantize.equivalence import float_copy, require_same_results
from edgewright.quantize.histogram import FiniteHistogramObserver

TARGETS = ("xnnpack", "ethos-u85-256", "imxrt700", "e9955", "sm8650")


def settle(model: nn.Module) -> nn.Module:
    """Give every batch norm statistics and factors that differ by channel."""
    torch.manual_seed(0)
    with torch.no_grad():
        for norm in model.modules():
            if isinstance(norm, nn.modules.batchnorm._BatchNorm) and norm.running_var is not None:
                assert norm.running_mean is not None
                norm.running_mean.normal_()
                norm.running_var.uniform_(0.5, 3)
                if norm.affine:
                    norm.weight.uniform_(0.5, 2)
                    norm.bias.normal_()
    return model.eval()


def doubled(layer: nn.Module, norm: Callable[..., nn.Module], channels: int = 8) -> nn.Module:
    return settle(nn.Sequential(layer, norm(channels), norm(channels), nn.ReLU()))


class Apart(nn.Module):
    """A weight, or a bias, that something beside its layer reads."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self.part = part
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        held = getattr(self.conv, self.part)
        result: torch.Tensor = self.norm(self.conv(x)) * held.mean()
        return result


class SharedBias(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1)
        self.second.bias = self.first.bias
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.norm(conv2d(x, self.first.weight, self.first.bias))
        return conv2d(torch.relu(first), self.second.weight, self.first.bias)


class NoStatistics(nn.Module):
    """Normalized by the batch's own statistics, in inference too."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, track_running_stats=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.relu(self.norm(self.conv(x)))
        return result


IMAGE, ROW, LINE, VOLUME = (2, 3, 8, 8), (4, 6), (2, 3, 16), (1, 3, 4, 6, 6)
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "conv2d": (lambda: doubled(nn.Conv2d(3, 8, 3), nn.BatchNorm2d), IMAGE),
    "conv2d-no-bias": (lambda: doubled(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d), IMAGE),
    "depthwise": (lambda: doubled(nn.Conv2d(3, 6, 3, groups=3), nn.BatchNorm2d, 6), IMAGE),
    "conv1d": (lambda: doubled(nn.Conv1d(3, 8, 3), nn.BatchNorm1d), LINE),
    "conv3d": (lambda: doubled(nn.Conv3d(3, 8, 2), nn.BatchNorm3d), VOLUME),
    "transposed": (lambda: doubled(nn.ConvTranspose2d(3, 8, 2, 2), nn.BatchNorm2d), IMAGE),
    "linear": (lambda: doubled(nn.Linear(6, 8), nn.BatchNorm1d), ROW),
    "same-padding": (lambda: doubled(nn.Conv2d(3, 8, 3, padding="same"), nn.BatchNorm2d), IMAGE),
    "three": (lambda: settle(nn.Sequential(nn.Conv2d(3, 8, 1), *(nn.BatchNorm2d(8) for _ in range(3)))), IMAGE),
    "weight-read-twice": (lambda: settle(Apart("weight")), IMAGE),
    "bias-read-twice": (lambda: settle(Apart("bias")), IMAGE),
    "shared-bias": (lambda: settle(SharedBias()), IMAGE),
    "no-statistics": (lambda: settle(NoStatistics()), IMAGE),
}


def quantizer() -> XNNPACKQuantizer:
    return XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))


@pytest.mark.sample(3)
@pytest.mark.parametrize("decomposed", [False, True], ids=["whole", "decomposed"])
@pytest.mark.parametrize("name", MODELS)
def test_prepared_models_compute_what_the_float_ones_do(name: str, decomposed: bool) -> None:
    make, shape = MODELS[name]
    model, x = make(), torch.randn(shape) * 2 + 1
    program = torch.export.export(model, (x,))
    program = program.run_decompositions() if decomposed else program
    prepared = prepare_pt2e(program.module(), quantizer())  # torchao's own, as scripts call it
    torch.testing.assert_close(prepared(x), model(x), rtol=1e-4, atol=1e-4)


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", TARGETS)
def test_two_norms_behind_a_layer_are_quantized_on_every_target(target: str) -> None:
    model = settle(
        nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1), nn.BatchNorm2d(4)
        )
    )
    data = [(torch.randn(1, 3, 8, 8),) for _ in range(4)]
    result = ew.compile(model, data[0], target=target, quantize="int8", calibration=data, quiet=True)
    assert result.report.sqnr is not None and result.report.sqnr > 25
    names = [str(node.target) for node in result.exported.graph.nodes]
    assert not any("batch_norm" in name for name in names)  # both are part of the layer


class Dropping(XNNPACKQuantizer):
    """Loses a node on the way, as a preparation with an error would."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.set_global(get_symmetric_quantization_config(is_per_channel=True))

    def transform_for_annotation(self, model: Any) -> Any:
        made = super().transform_for_annotation(model)
        node = next(n for n in made.graph.nodes if n.name == self.name)
        node.replace_all_uses_with(node.args[0])
        made.graph.erase_node(node)
        made.recompile()
        return made


class Branches(nn.Module):
    """Two branches, state, and a result that integers are."""

    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3)
        self.left = nn.Sequential(nn.Conv2d(4, 4, 1), nn.Sigmoid())
        self.right = nn.Sequential(nn.Conv2d(4, 4, 1), nn.Tanh())
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.seen.add_(1)
        x = self.stem(x)
        y = self.left(x) + self.right(x) + self.seen
        return y, y.argmax(1)


@pytest.mark.parametrize(("node", "module"), [("sigmoid", "left.1"), ("tanh", "right.1")])
def test_a_preparation_that_changes_the_model_is_refused_by_the_name_of_the_module(node: str, module: str) -> None:
    torch.manual_seed(0)
    model, x = Branches(), torch.randn(1, 3, 8, 8)
    with pytest.raises(AccuracyError, match=rf"module '{module}': must compute the same .* relative difference of"):
        pt2e.prepare_pt2e(torch.export.export(model, (x,)).module(), Dropping(node), (x,))
    assert float(model.seen) == 0


@pytest.mark.parametrize("way", ["compile", "nxp", "samsung", "qualcomm"])
def test_every_way_to_quantize_compares_the_prepared_model(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgewright.backends.nxp.quantizer import NeutronQuantizer, calibrate_and_quantize
    from edgewright.backends.qualcomm import export_utils as qualcomm
    from edgewright.backends.samsung.export_utils import quantize_module

    model, data = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sigmoid()).eval(), [(torch.randn(1, 3, 8, 8),)]
    prepare = torchao.prepare_pt2e

    def lossy(module: Any, quantizer: Any) -> Any:
        made = prepare(module, quantizer)
        next(node for node in made.graph.nodes if node.name == "sigmoid").target = torch.ops.aten.tanh.default
        made.recompile()
        return made

    monkeypatch.setattr(torchao, "prepare_pt2e", lossy)
    ways: dict[str, Callable[[], Any]] = {
        "compile": lambda: ew.compile(model, data[0], quantize="int8", calibration=data, quiet=True),
        "nxp": lambda: calibrate_and_quantize(torch.export.export(model, data[0]), data, NeutronQuantizer()),
        "samsung": lambda: quantize_module(model, data[0], data, "A8W8"),
        "qualcomm": lambda: qualcomm._calibrate(model, qualcomm.make_quantizer(), data),
    }
    with pytest.raises(AccuracyError, match="module '1'"):
        ways[way]()


def test_the_comparison_leaves_observers_and_state_alone() -> None:
    model, x = Branches(), torch.randn(1, 3, 8, 8)
    module = torch.export.export(model, (x,)).module()
    prepared = pt2e.prepare_pt2e(module, quantizer(), (x,))
    observers = [m for m in prepared.modules() if isinstance(m, FiniteHistogramObserver)]
    assert len(observers) > 3 and all(float(o.min_val) == float("inf") for o in observers)
    assert float(model.seen) == 0
    prepared(x)
    assert all(float(o.min_val) < float("inf") for o in observers)


class Draws(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)


class Amplifies(nn.Module):
    """A last bit more or less decides the result."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(1e6 * self.norm(self.conv(x)))


@pytest.mark.parametrize("model", [Draws(), Amplifies()], ids=["draws", "amplifies"])
def test_rounding_and_random_numbers_are_no_difference(model: nn.Module) -> None:
    x = torch.randn(1, 3, 8, 8)
    program = torch.export.export(settle(model), (x,))
    pt2e.prepare_pt2e(program.module(), quantizer(), (x,))


def test_copies_keep_their_meaning_while_the_module_is_prepared() -> None:
    model, x = doubled(nn.Conv2d(3, 8, 3), nn.BatchNorm2d), torch.randn(1, 3, 8, 8)
    module = torch.export.export(model, (x,)).module()
    original = float_copy(module)
    prepared = pt2e.prepare_pt2e(module, quantizer())
    assert torch.equal(original(x), model(x))
    require_same_results(original, prepared, (x,))


class Others(XNNPACKQuantizer):
    """A quantizer of somebody else's, that changes nothing."""

    def transform_for_annotation(self, model: Any) -> Any:
        return model


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", MODELS)
def test_torchao_folds_only_where_that_changes_nothing_whoever_quantizes(name: str) -> None:
    make, shape = MODELS[name]
    model, x = make(), torch.randn(shape) * 2 + 1
    prepared = prepare_pt2e(torch.export.export(model, (x,)).module(), Others())
    torch.testing.assert_close(prepared(x), model(x), rtol=1e-4, atol=1e-4)


def test_a_model_in_training_mode_is_told_to_be_exported_for_inference() -> None:
    model = settle(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()))
    data = [(torch.randn(4, 3, 8, 8),)]
    program = torch.export.export(model.train(), data[0])
    with pytest.raises(AccuracyError, match=r"module '1': (.|\n)*training mode.*export model.eval\(\)"):
        ew.compile(program, target="xnnpack", quantize="int8", calibration=data, quiet=True)


class SameName(torch.nn.Module):
    """An input that has a buffer's name. ``write``: how the buffer is written."""

    state: torch.Tensor

    def __init__(self, write: Callable[[torch.Tensor, torch.Tensor], object]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.write = torch.nn.Linear(4, 4), write
        self.register_buffer("state", torch.ones(1, 4))

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.linear(x) + state * self.state
        self.write(self.state, x)
        return result


@pytest.mark.parametrize(
    "write",
    [lambda buffer, x: None, lambda buffer, x: buffer.copy_(x), lambda buffer, x: buffer[:, :2].copy_(x[:, :2])],
    ids=["constant", "state", "state written through a view"],
)
def test_an_input_may_have_a_buffers_name(write: Callable[[torch.Tensor, torch.Tensor], object]) -> None:
    calls = [(torch.rand(1, 4), torch.rand(1, 4)) for _ in range(8)]
    model = SameName(write).eval()
    result = ew.compile(model, calls[0], "xnnpack", quantize="int8", calibration=calls, evaluate=0, quiet=True)
    with torch.no_grad():
        for call in calls:
            torch.testing.assert_close(result.run(*call), model(*call), atol=0.05, rtol=0)
