"""Infinity and NaN: in calibration a warning or an error that names the module, in figures a count."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torchao.quantization.pt2e import quantize_pt2e as torchao

import edgewright as ew
from edgewright.api.accuracy import accuracy
from edgewright.api.compare import compare
from edgewright.api.compile import CompileSession, Settings
from edgewright.api.progress import Stages
from edgewright.api.recipe import Recipe
from edgewright.backends.targets import find_target
from edgewright.backends.xnnpack.quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from edgewright.errors import AccuracyError
from edgewright.quantize.attention_masks import MaskedObserver
from edgewright.quantize.evaluate import Sqnr

INF, NAN = math.inf, math.nan
DATA = [(torch.rand(2, 4, generator=torch.Generator().manual_seed(n)) + 0.5,) for n in range(8)]


class Part(nn.Module):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


class Model(nn.Module):
    """A layer, and beside it a function that is not finite everywhere."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.part = nn.Linear(4, 4), Part(function)

    def forward(self, x: Any) -> Any:
        return self.part(x) + self.layer(x)


def with_element(value: float, call: int = 2) -> list[Any]:
    data = [(x.clone(),) for (x,) in DATA]
    data[call][0][0, 1] = value
    return data


def compiled(model: nn.Module, data: list[Any], target: str) -> Any:
    return ew.compile(model.eval(), data[0], target, quantize="int8", calibration=data, evaluate=DATA[:2], quiet=True)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "log": lambda x: x.relu().log(),  # -inf
    "reciprocal": lambda x: 1 / x.relu(),  # inf
    "div": lambda x: x.relu() / x.relu(),  # NaN
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("target", ["xnnpack", "e9955"])
def test_a_range_is_that_of_finite_elements_and_others_are_reported(
    name: str, target: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "edgewright"):
        result = compiled(Model(FUNCTIONS[name]), with_element(-0.5), target)
    told = [r.getMessage() for r in caplog.records if "infinite or NaN" in r.getMessage()]
    assert told and all("elements during calibration" in text and "clamp it" in text for text in told)
    assert any("in module 'part'" in text and "was infinite or NaN in 1 of 64" in text for text in told), told
    assert result.report.sqnr > 25  # as where all of it is finite


def test_an_input_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "edgewright"):
        compiled(Model(torch.sigmoid), with_element(INF), "e9955")
    assert "input 'x' was infinite or NaN in 1 of 64 elements" in caplog.text


@pytest.mark.parametrize("target", ["xnnpack", "e9955", "sm8650"])
def test_a_value_that_is_never_finite_has_no_range(target: str) -> None:
    with pytest.raises(AccuracyError, match=r"in module 'part': must be finite to be quantized; got infinity or NaN"):
        compiled(Model(lambda x: (x * 1000).exp()), DATA, target)


@pytest.mark.parametrize("infinite", [False, True])
@pytest.mark.parametrize("target", ["xnnpack", "ethos-u55-128"])
def test_borders_of_a_maximum_are_not_reported(target: str, infinite: bool, caplog: pytest.LogCaptureFixture) -> None:
    """... as networks of TensorFlow pad; what is infinite beside them is."""

    def maximum(x: Any) -> Any:
        return nn.functional.max_pool2d(nn.functional.pad(x.relu(), (0, 1, 0, 1), value=-INF), 2)

    data = [(torch.randn(1, 4, 5, 5, generator=torch.Generator().manual_seed(n)),) for n in range(4)]
    if infinite:
        data[1][0][0, 0, 2, 2] = INF
    model = nn.Sequential(nn.Conv2d(4, 4, 1), Part(maximum))
    options: Any = {"quantize": "int8", "calibration": data, "evaluate": data[2:], "quiet": True}
    with caplog.at_level(logging.WARNING):
        result = ew.compile(model.eval(), data[0], target, **options)
    assert any("infinite or NaN" in r.getMessage() and "relu" in r.getMessage() for r in caplog.records) is infinite
    assert result.report.sqnr > 20


def test_a_weight_that_is_not_finite_is_named() -> None:
    model = Model(torch.sigmoid)
    model.layer.weight.data[1, 2] = INF
    with pytest.raises(AccuracyError, match=r"constant '.*weight.*': must be finite to be quantized"):
        compiled(model, DATA, "xnnpack")


def test_models_that_torchao_converts_warn_too(caplog: pytest.LogCaptureFixture) -> None:
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config())
    data = with_element(-0.5)
    model = torch.export.export(Model(FUNCTIONS["log"]).eval(), data[0]).module()
    prepared = torchao.prepare_pt2e(model, quantizer)
    for call in data:
        prepared(*call)
    with caplog.at_level(logging.WARNING, "edgewright"):
        torchao.convert_pt2e(prepared)
    assert "a value was infinite or NaN in 1 of 64 elements" in caplog.text
    endless = torchao.prepare_pt2e(
        torch.export.export(Model(lambda x: (x * 1000).exp()).eval(), data[0]).module(), quantizer
    )
    endless(*DATA[0])
    with pytest.raises(AccuracyError, match="a value: must be finite to be quantized"):
        torchao.convert_pt2e(endless)


class Ranged(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        stored = torch.ops.quantized_decomposed.quantize_per_tensor(x, INF, 0, -128, 127, torch.int8)
        return torch.ops.quantized_decomposed.dequantize_per_tensor(stored, INF, 0, -128, 127, torch.int8).relu()


def test_a_scale_that_is_not_finite_is_not_lowered() -> None:
    """However it was made: observers of one's own, or a model that was quantized elsewhere."""
    with pytest.raises(AccuracyError, match=r"quantize_per_tensor.* of 'x': the scale must be finite; got inf"):
        ew.compile(Ranged(), DATA[0], "xnnpack", quiet=True)


def observed(x: torch.Tensor, **given: Any) -> MaskedObserver:
    observer = MaskedObserver(dtype=torch.int8, quant_min=-128, quant_max=127, **given)
    assert observer(x) is x
    return observer


def test_masks_are_no_infinity_and_nan_is_no_mask() -> None:
    mask = observed(torch.tensor([0.0, -INF]), scores=False)
    assert mask.left_out == 0 and mask.calculate_qparams()[0].isfinite().all()
    scores = observed(torch.tensor([1.0, 2.0, -INF, NAN, INF]))
    assert (scores.left_out, scores.seen, scores.masked) == (2, 2, True)
    assert not observed(torch.tensor([1.0, NAN])).masked
    with pytest.raises(AccuracyError, match="must be finite"):
        observed(torch.tensor([NAN])).calculate_qparams()


# ---------------------------------------------------------------------------------------------------------- figures


@pytest.mark.parametrize(
    ("expected", "actual", "apart"),
    [
        ([1, 2], [1, 2], 0),
        ([1, INF], [1, INF], 0),
        ([1, NAN], [1, NAN], 0),
        ([1, INF], [1, 5], 1),
        ([1, -INF], [1, INF], 1),
        ([1, NAN], [1, INF], 1),
        ([1, NAN, NAN], [1, 0, 0], 2),
        ([1, 2], [1, NAN], 1),
        ([1, 2], [1, INF], 1),
    ],
)
def test_elements_that_are_finite_on_one_side_only_are_counted(expected: Any, actual: Any, apart: int) -> None:
    measure = Sqnr()
    measure.add(np.array(expected, np.float32), np.array(actual, np.float32))
    assert (measure.mismatched, measure.elements) == (apart, len(expected))
    lost = any(math.isfinite(e) and not math.isfinite(a) for e, a in zip(expected, actual, strict=True))
    assert measure.decibels == (-200 if lost else 200)


def test_nothing_that_is_finite_is_no_agreement() -> None:
    for actual, decibels in ((INF, 200.0), (5.0, -200.0), (NAN, -200.0)):
        measure = Sqnr()
        measure.add(np.array([INF]), np.array([actual]))
        assert measure.decibels == decibels


def test_accuracy_counts_them_over_all_outputs_and_calls() -> None:
    call = ([np.array([1, INF, NAN]), np.array([2.0])], [np.array([1, 3, NAN]), np.array([INF])])
    found = accuracy([None, None], [call, call])
    assert found.nonfinite == (4, 8) and found.sqnr == -200


def test_a_report_says_that_the_file_is_finite_where_the_original_is_not(caplog: pytest.LogCaptureFixture) -> None:
    data = with_element(-0.5)
    with caplog.at_level(logging.WARNING, "edgewright"):
        result = ew.compile(
            Model(FUNCTIONS["log"]).eval(), data[0], "xnnpack", quantize="int8", calibration=data, evaluate=data,
            quiet=True,
        )  # fmt: skip
    told = "1 of 64 output elements are infinite or NaN in the original or in the file, and not the same in both"
    assert told in result.summary and told in caplog.text
    assert result.report.to_dict()["nonfinite"] == (1, 64)
    clean = compiled(Model(torch.sigmoid), DATA, "xnnpack")
    assert clean.report.nonfinite[0] == 0 and "infinite" not in clean.summary


def test_comparing_layers_says_so_too(caplog: pytest.LogCaptureFixture) -> None:
    data = with_element(-0.5)
    settings = Settings(Recipe("int8"), evaluate=data)
    bench = CompileSession(Model(FUNCTIONS["log"]).eval(), data[0], data, settings, Stages(quiet=True))
    with caplog.at_level(logging.WARNING, "edgewright"):
        compare(bench, find_target("xnnpack"))
    for what in ("quantized model", "file"):
        assert f"1 of 64 output elements are infinite or NaN in the original or in the {what}" in caplog.text
