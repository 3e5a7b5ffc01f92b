"""Layers of 16 bits in a network of 8: a conversion at each border, and all of it in one delegate, which Qualcomm's
compiler accepts and its emulator runs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import edgewright as ew
from edgewright.backends.qualcomm import ModuleQConfig, QnnQuantizer, QuantDtype, get_submodule_name_predicate
from tests.backends.qualcomm.lowered import lower, ratio

X = (torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(0)),)


class Net(nn.Module):
    """A residual, a concatenation and a mean: operators with several inputs, and with results of an input's scale."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.c, self.d = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.fc = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x).relu()
        x = self.c((x + self.b(x)).relu()).relu()
        x = torch.cat([x, self.d(nn.functional.max_pool2d(x, 3, 1, 1))], 1)[:, 8:24]
        return self.fc(x.mean((2, 3)))


def converted(*raised: str, default: QuantDtype = QuantDtype.use_8a8w) -> nn.Module:
    quantizer = QnnQuantizer("SM8650")
    quantizer.set_default_quant_config(default, is_conv_per_channel=True, is_linear_per_channel=True)
    wide = ModuleQConfig(QuantDtype.use_16a8w, is_conv_per_channel=True, is_linear_per_channel=True)
    quantizer.set_submodule_qconfig_list([(get_submodule_name_predicate(name), wide) for name in raised])
    prepared = prepare_pt2e(torch.export.export(Net().eval(), X).module(), quantizer)
    prepared(*X)
    return convert_pt2e(prepared)


@pytest.mark.parametrize("raised", ["a", "b", "c", "d", "fc", "bc"])
def test_raised_layers_stay_in_one_delegate(raised: str) -> None:
    model = converted(*(["fc"] if raised == "fc" else raised))
    lowered = lower(model, X, fp16=False)
    assert lowered.report.coverage() == {"operators": 1, "macs": 1, "bytes": 1}
    assert lowered.report.groups == 1
    assert "requantize" in {v.operator for v in lowered.report.delegated}
    actual = lowered(*X)
    assert ratio(model(*X), actual) > 30
    assert ratio(Net().eval()(*X), actual) > 25


def test_readers_of_one_width_share_a_conversion() -> None:
    """The 16-bit result of ``a`` is read by a convolution and by a sum, both of 8 bits."""
    report = lower(converted("a"), X, fp16=False).report
    assert [v.operator for v in report.verdicts].count("requantize") == 1


def test_networks_of_one_width_have_no_conversions() -> None:
    for default in (QuantDtype.use_8a8w, QuantDtype.use_16a8w):
        report = lower(converted(default=default), X, fp16=False).report
        assert "requantize" not in {v.operator for v in report.verdicts}


def test_a_recipe_that_raises_a_module_keeps_it_delegated() -> None:
    options = {"target": "sm8650", "quantize": "int8", "calibration": [X], "quiet": True, "simulate": True}
    raised = ew.compile(Net().eval(), X, recipe={"modules": {"b": "higher"}}, **options)  # type: ignore[arg-type]
    assert raised.report.coverage["macs"] == 1
    assert raised.program.partition_reports["forward"].groups == 1
