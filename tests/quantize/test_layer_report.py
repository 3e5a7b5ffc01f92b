"""Reports say which layers are quantized: a layer that stays in floating point is not hidden by "100 % taken"."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import edgewright as ew
from edgewright.lowering.partition.report import PartitionReport, Verdict

DATA = [(torch.randn(1, 2, 4, 6, 6, generator=torch.Generator().manual_seed(0)),)]


def volumes(padding: str = "valid", stride: int = 1) -> nn.Module:
    torch.manual_seed(0)
    size = {1: 128, 4: 4}[stride] if padding == "valid" else 576
    convolution = nn.Conv3d(2, 4, 3, padding=padding if padding == "same" else 0, stride=stride)
    return nn.Sequential(convolution, nn.ReLU(), nn.Flatten(), nn.Linear(size, 3)).eval()


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", ["xnnpack", "e9955", "imxrt700"])
def test_a_convolution_of_volumes_that_stays_in_floating_point_is_told(target: str) -> None:
    result = ew.compile(volumes(), DATA[0], target=target, quantize="int8", calibration=DATA, quiet=True)
    (report,) = result.report.methods.values()
    assert [layer.quantized for layer in report.layers] == [False, True]
    assert "1 of 2 layers quantized; not quantized: 'conv3d' in 0 — " in result.summary
    told = result.report.to_dict()["methods"]["forward"]["layers"]
    assert [(layer["node"], layer["module"], layer["quantized"]) for layer in told] == [
        ("conv3d", "0", False), ("linear", "3", True)
    ]  # fmt: skip
    assert told[0]["reason"]


def test_the_reason_is_what_the_backend_has() -> None:
    result = ew.compile(volumes(), DATA[0], target="xnnpack", quantize="int8", calibration=DATA, quiet=True)
    assert "xnnpack has no row for conv3d in integers" in result.summary
    recipe = {"quantize": "int8", "modules": {"3": "float"}}
    result = ew.compile(volumes(), DATA[0], target="xnnpack", recipe=recipe, calibration=DATA, quiet=True)
    assert "'linear' in 3 — left in floating point by the configuration" in result.summary


def test_equal_reasons_are_given_once() -> None:
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(6))).eval()
    data = [(torch.randn(2, 8, generator=torch.Generator().manual_seed(0)),)]
    recipe = {"quantize": "int8", "modules": dict.fromkeys("12345", "float")}
    result = ew.compile(model, data[0], target="xnnpack", recipe=recipe, calibration=data, quiet=True)
    named = "'linear_1' in 1, 'linear_2' in 2, 'linear_3' in 3 and 2 more"
    assert f"not quantized: {named} — left in floating point by the configuration" in result.summary
    assert result.summary.count("left in floating point") == 1


def test_a_small_npu_says_what_is_needed() -> None:
    model = volumes(stride=4)
    result = ew.compile(model, DATA[0], target="ethos-u55-128", quantize="int8", calibration=DATA, quiet=True)
    rule = "strides of 3-D convolutions must be at most 3 in height and width on U55 and U65"
    assert f"'conv3d' in 0 — {rule}; got" in result.summary


@pytest.mark.sample(2)
@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("target", ["sm8650", "ethos-u85-256", "ethos-u55-128"])
def test_devices_that_have_it_quantize_it(target: str, padding: str) -> None:
    result = ew.compile(volumes(padding), DATA[0], target=target, quantize="int8", calibration=DATA, quiet=True)
    assert "2 of 2 layers quantized" in result.summary


def test_float_models_say_nothing_of_it() -> None:
    result = ew.compile(volumes(), DATA[0], target="xnnpack", quiet=True)
    assert "layers quantized" not in result.summary


def test_operators_that_one_layer_became_are_one_layer() -> None:
    parts = [Verdict("conv2d", "conv3d", "a", "x", 0, macs=8, precision=p) for p in ("fp32", "static_quant")]
    report = PartitionReport("forward", "x", [*parts, Verdict("linear", "fc", "b", "x", 0, macs=4, precision="fp32")])
    assert [(layer.node, layer.quantized) for layer in report.layers] == [("conv3d", False), ("fc", False)]
    assert "0 of 2 layers quantized" in report.precision
    report.unquantized = {"fc": "because"}
    assert report.precision.endswith("'conv3d' in a — computed in floating point; 'fc' in b — because")
