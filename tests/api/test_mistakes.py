"""Mistakes of a first hour: each comes with what to write instead."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.export import Dim

import edgewright as ew
from edgewright.api.data import Call, load_calls
from edgewright.api.image_data import ImageOptions
from edgewright.api.named_inputs import in_order
from edgewright.errors import EdgewrightError, InputError, UsageError

ROW = torch.ones(1, 4)


class Scaled(torch.nn.Module):
    def forward(self, x: torch.Tensor, scale: torch.Tensor, bias: float = 0.0) -> torch.Tensor:
        return x * scale + bias


@pytest.fixture(scope="module")
def scaled() -> Any:
    return ew.compile(Scaled(), {"x": ROW, "scale": torch.full((1, 4), 3.0), "bias": 1.0}, quiet=True, evaluate=0)


@pytest.mark.parametrize("positional", [True, False])
def test_inputs_by_name_or_all_in_one(positional: bool, scaled: Any) -> None:
    if positional:
        scaled = ew.compile(Scaled(), (ROW, torch.full((1, 4), 3.0), 1.0), quiet=True, evaluate=0)
    x, scale = torch.full((1, 4), 2.0), torch.full((1, 4), 5.0)
    expected = [[11.0] * 4]
    for call in (
        lambda: scaled.run(x, scale, 1.0),
        lambda: scaled.run((x, scale, 1.0)),
        lambda: scaled.run(scale=scale, x=x),  # not in forward's order; the number was fixed at export
        lambda: scaled.run(x, scale=scale),
        lambda: scaled.run({"scale": scale, "x": x}),
        lambda: scaled.run_real(scale=scale, x=x),
    ):
        assert call().tolist() == expected


def test_inputs_by_name_of_a_quantized_program() -> None:
    data = [{"x": torch.rand(1, 4), "scale": torch.rand(1, 4)} for _ in range(4)]
    result = ew.compile(Scaled(), data[0], quantize="int8", calibration=data, integer_io=True, quiet=True)
    by_name = result.run_real(scale=data[1]["scale"], x=data[1]["x"])
    assert torch.equal(torch.as_tensor(by_name), torch.as_tensor(result.run_real(data[1]["x"], data[1]["scale"])))
    assert torch.allclose(torch.as_tensor(by_name), data[1]["x"] * data[1]["scale"], atol=0.05)


@pytest.mark.parametrize(
    ("inputs", "named", "message"),
    [
        ((), {"x": ROW, "scaled": ROW}, r"one of x, scale, bias; got scaled\n  Did you mean scale\?"),
        ((), {"x": ROW}, r"input 'scale': is missing\n  Pass scale=, of float32\[1, 4\]\."),
        ((ROW,), {"x": ROW, "scale": ROW}, "must be passed once; got x by position and by name"),
    ],
)
def test_names_that_are_wrong(inputs: Any, named: Any, message: str, scaled: Any) -> None:
    with pytest.raises(InputError, match=message):
        in_order(scaled.exported, inputs, named)


@pytest.mark.parametrize(
    ("model", "inputs", "options", "message"),
    [
        (torch.nn.Linear(4, 2).state_dict(), ROW, {}, r"model\.load_state_dict\(weights\)"),
        (torch.nn.Linear(4, 2), ROW, {"device": "xnnpack"}, r"got device\n  Did you mean target\?"),
        (torch.nn.Linear(4, 2), None, {"example_inputs": ROW}, r"Did you mean inputs\?"),
        (torch.nn.Linear(4, 2), ROW, {"precision": "int8"}, r"Did you mean quantize\?"),
        (torch.nn.Linear(4, 2), ROW, {"runtime": "android-2.0"}, r"alone or with a release from 1\.0 .*\n.*android-1"),
        (torch.nn.Linear(4, 2), ROW.byte(), {}, r"Input 0 is uint8, and the model's weights are float32: pass x\.to"),
        (torch.nn.Linear(4, 2), ROW.double(), {}, r"Input 0 is float64, .*: pass x\.to\(torch\.float32\)\.$"),
        (torch.nn.Conv1d(4, 2, 1).half(), ROW[..., None], {}, r"Input 0 is float32, .* are float16: pass x\.to"),
        (torch.nn.Embedding(4, 2), ROW, {}, r"Pass numbers of rows, such as token ids, as integers: ids\.long\(\)\."),
    ],
)
def test_what_was_meant(model: Any, inputs: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(EdgewrightError, match=message) as raised:
        ew.compile(model, inputs, quiet=True, **options)
    assert "calibration" not in str(raised.value).partition("got")[0].replace("options calibration", "")


class Reshaped(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0], -1, 2).sum(1)


def test_sizes_that_the_model_itself_cannot_have() -> None:
    example = torch.ones(2, 4)
    with pytest.raises(UsageError, match=r"smallest shapes \[0, 4\].*\n.*Dim\('n', min=1, max=64\)") as raised:
        ew.compile(Reshaped(), (example,), dynamic_shapes={"x": {0: Dim("n", max=8)}}, quiet=True)
    assert raised.value.subject == "dynamic_shapes"
    result = ew.compile(Reshaped(), (example,), dynamic_shapes={"x": {0: Dim("n", min=1, max=8)}}, quiet=True)
    assert set(result.report.shapes) == {"smallest", "middle", "largest"}


def test_datasets_have_no_iterator_of_their_own() -> None:
    example = Call((torch.zeros(1, 4),))
    rows = torch.arange(12.0).reshape(3, 4)
    calls = load_calls(torch.utils.data.TensorDataset(rows), example)
    assert torch.equal(torch.cat([call.args[0] for call in calls]), rows)
    with pytest.raises(InputError, match=r"must have 1 input; got 2\n.*for x, label in loader"):
        load_calls(torch.utils.data.TensorDataset(rows, rows), example)


def test_mean_and_std_of_pixels_from_0_to_1() -> None:
    """As torchvision has them; inputs would be 255 times too large, and ranges of activations with them."""
    with pytest.raises(UsageError, match=r"0\.229 0\.224 0\.225\n.*--mean 123\.675 116\.28 103\.53 --std 58\.395"):
        ImageOptions((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    ImageOptions((0.0,), (1.0,))  # of a model that was trained on pixels from 0 to 255


def test_errors_name_the_data_that_they_are_about() -> None:
    bad = [torch.full((1, 4), float("nan"))]
    options: dict[str, Any] = {"quantize": "int8", "calibration": [torch.rand(1, 4) for _ in range(4)], "quiet": True}
    with pytest.raises(InputError, match="evaluate input 0: must hold numbers; got NaN"):
        ew.compile(torch.nn.Linear(4, 2), ROW, evaluate=bad, **options)
    with pytest.raises(InputError, match="example input: must hold numbers; got NaN"):
        ew.compile(torch.nn.Linear(4, 2), bad[0], quiet=True)
