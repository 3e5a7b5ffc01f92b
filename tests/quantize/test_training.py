"""Models that were prepared for training: batch norms become part of their layers, or lowering refuses them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torchao.quantization.pt2e import move_exported_model_to_eval, qat_utils
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e

from edgewright import to_edge_transform_and_lower
from edgewright.backends import ethos_u, nxp, qualcomm, samsung, xnnpack
from edgewright.errors import UsageError
from edgewright.quantize import pt2e
from edgewright.quantize.evaluate import Sqnr
from edgewright.runtime import Runtime
from tests.quantize.test_preparation import settle


def _ethos_u(is_qat: bool) -> Any:
    spec = ethos_u.EthosUCompileSpec("ethos-u55-128")
    return ethos_u.EthosUQuantizer(spec).set_global(ethos_u.get_symmetric_quantization_config(is_qat=is_qat))


def _qualcomm(is_qat: bool) -> Any:
    made = qualcomm.QnnQuantizer()
    if is_qat:
        made.set_default_quant_config(is_qat=True)
    return made


def _samsung(is_qat: bool) -> Any:
    made = samsung.EnnQuantizer()
    made.setup_quant_params("A8W8", is_per_channel=True, is_qat=is_qat)
    return made


def _xnnpack(is_qat: bool) -> Any:
    config = xnnpack.get_symmetric_quantization_config(is_per_channel=True, is_qat=is_qat)
    return xnnpack.XNNPACKQuantizer().set_global(config)


QUANTIZERS: dict[str, Callable[[bool], Any]] = {
    "xnnpack": _xnnpack,
    "ethos_u": _ethos_u,
    "qualcomm": _qualcomm,
    "samsung": _samsung,
    "nxp": lambda is_qat: nxp.NeutronQuantizer(is_qat=is_qat),
}


def network() -> nn.Module:
    layers = (nn.Conv2d(3, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 1), nn.BatchNorm2d(8))
    return settle(nn.Sequential(*layers, nn.ReLU(), nn.AvgPool2d(3), nn.Flatten(), nn.Linear(8, 4)))


def batches() -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    return [torch.randn(4, 3, 8, 8, generator=draw) for _ in range(6)]


def decibels(expected: nn.Module, actual: Callable[[torch.Tensor], Any]) -> float:
    measure = Sqnr()
    with torch.no_grad():
        for x in batches():
            measure.add(expected(x).numpy(), actual(x).numpy())
    return measure.decibels


def quantized(
    prepare: Callable[..., Any], quantizer: Any, model: nn.Module, convert: Callable[[Any], Any] = convert_pt2e
) -> Any:
    """As scripts do it: exported, prepared, shown the data, converted."""
    prepared = prepare(torch.export.export(model, (batches()[0],)).module(), quantizer)
    for x in batches():
        prepared(x)
    return convert(prepared)


@pytest.mark.sample(1)
@pytest.mark.parametrize("backend", QUANTIZERS)
def test_a_config_that_is_not_for_training_gives_what_calibration_gives(backend: str) -> None:
    model = network()
    made = quantized(prepare_qat_pt2e, QUANTIZERS[backend](False), model)
    assert not [n for n in made.graph.nodes if "batch_norm" in str(n.target)]
    calibrated = quantized(prepare_pt2e, QUANTIZERS[backend](False), model)
    x = batches()[0]
    assert torch.equal(made(x), calibrated(x))
    assert decibels(model, made) > 30


@pytest.mark.slow
@pytest.mark.parametrize("backend", QUANTIZERS)
def test_batch_norms_are_trained_where_the_config_says_so(backend: str) -> None:
    model = network()
    module = torch.export.export(model, (batches()[0],)).module()
    prepared = prepare_qat_pt2e(module, QUANTIZERS[backend](True))
    norms = [n for n in prepared.graph.nodes if n.target is torch.ops.aten.batch_norm.default]
    assert [norm.args[5] for norm in norms] == [True, True]


class Left(nn.Module):
    """A layer that is not quantized, beside one that is."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.last(torch.relu(self.norm(self.first(x))))
        return result


def test_norms_of_layers_that_stay_in_floating_point_are_not_trained_either() -> None:
    model = settle(Left())
    made = quantized(prepare_qat_pt2e, _xnnpack(True).set_module_name("first", None), model)
    assert not [n for n in made.graph.nodes if "batch_norm" in str(n.target)]
    assert decibels(model, made) > 25


def half_trained() -> nn.Module:
    """Exported in training mode, with a norm that follows no layer."""
    return settle(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.BatchNorm2d(8))).train()


@pytest.mark.parametrize("decomposed", [False, True], ids=["whole", "decomposed"])
def test_lowering_refuses_norms_that_still_train(decomposed: bool) -> None:
    made = quantized(prepare_pt2e, _xnnpack(False), half_trained(), convert=pt2e.convert_pt2e)
    program = torch.export.export(made, (batches()[0],))
    program = program.run_decompositions() if decomposed else program
    with pytest.raises(UsageError, match=r"batch norm in module '2': .*training mode(.|\n)*is_qat=True") as caught:
        to_edge_transform_and_lower(program, partitioner=[xnnpack.XnnpackPartitioner()])
    assert "move_exported_model_to_eval" in str(caught.value)


def test_norms_that_were_moved_to_evaluation_are_lowered() -> None:
    made = quantized(prepare_pt2e, _xnnpack(False), half_trained(), convert=_convert_for_evaluation)
    program = torch.export.export(made, (batches()[0],))
    lowered = to_edge_transform_and_lower(program, partitioner=[xnnpack.XnnpackPartitioner()])
    method = Runtime.get().load_program(lowered.to_executorch().buffer).load_method("forward")
    found = method.execute([batches()[0]])[0]
    np.testing.assert_allclose(found, made(batches()[0]).detach(), atol=0.1)  # a step of 8 bits


def _convert_for_evaluation(prepared: Any) -> Any:
    move_exported_model_to_eval(prepared)
    return pt2e.convert_pt2e(prepared)


@pytest.mark.slow  # torchao searches for its patterns in several dozen ways
def test_norms_that_were_trained_are_folded_at_the_end() -> None:
    model = network()
    made = quantized(prepare_qat_pt2e, _xnnpack(True), model)
    assert not [n for n in made.graph.nodes if "batch_norm" in str(n.target)]
    to_edge_transform_and_lower(torch.export.export(made, (batches()[0],)), partitioner=[xnnpack.XnnpackPartitioner()])


def test_float_models_may_train_and_norms_without_statistics_are_for_inference() -> None:
    x = batches()[0]
    to_edge_transform_and_lower(torch.export.export(nn.BatchNorm2d(3).train(), (x,)))
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, track_running_stats=False)).eval()
    made = quantized(prepare_pt2e, _xnnpack(False), model, convert=pt2e.convert_pt2e)
    to_edge_transform_and_lower(torch.export.export(made, (x,)), partitioner=[xnnpack.XnnpackPartitioner()])


class SearchedError(Exception):
    """torchao exports a pattern."""


def _raise(*_: Any, **__: Any) -> None:
    raise SearchedError


def test_torchao_searches_for_convolutions_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patterns of the other kinds took most of the ten seconds of a conversion after training."""
    _xnnpack(True)
    monkeypatch.setattr(qat_utils, "_get_aten_graph_module_for_pattern", _raise)
    module: Any = torch.export.export(network(), (batches()[0],)).module()
    for layer in (nn.functional.conv1d, nn.functional.conv_transpose1d, nn.functional.conv_transpose2d):
        assert qat_utils._fold_conv_bn_qat_helper(module, layer, (), is_cuda=False) is module
    with pytest.raises(SearchedError):
        qat_utils._fold_conv_bn_qat_helper(module, nn.functional.conv2d, (), is_cuda=False)


@pytest.mark.slow
def test_the_shorter_search_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    converted = []
    _xnnpack(True)  # shortens the search
    for search in (qat_utils._fold_conv_bn_qat_helper.__wrapped__, qat_utils._fold_conv_bn_qat_helper):
        monkeypatch.setattr(qat_utils, "_fold_conv_bn_qat_helper", search)
        torch.manual_seed(0)
        prepared = prepare_qat_pt2e(torch.export.export(network(), (batches()[0],)).module(), _xnnpack(True))
        for x in batches():
            prepared(x)
        converted.append(convert_pt2e(prepared))
    complete, shorter = converted
    assert shorter.code == complete.code and "batch_norm" not in shorter.code
    assert all(torch.equal(a, b) for a, b in zip(*(m.state_dict().values() for m in converted), strict=True))
