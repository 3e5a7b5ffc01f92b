"""Mistakes of a first hour: each comes with what to write instead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.export import Dim

import edgewright as ew
from edgewright.api.compile import CompileSession, Settings
from edgewright.api.data import Call, load_calls
from edgewright.api.image_data import ImageOptions
from edgewright.api.named_inputs import in_order
from edgewright.api.progress import Stages
from edgewright.api.recipe import Recipe
from edgewright.backends.targets import find_target
from edgewright.backends.xnnpack import XnnpackPartitioner
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


class Difference(torch.nn.Module):
    def forward(self, pair: dict[str, torch.Tensor]) -> torch.Tensor:
        return pair["a"] - pair["b"]


def test_inputs_in_a_dict_that_is_an_argument() -> None:
    pair = {"a": torch.full((1, 4), 5.0), "b": torch.full((1, 4), 2.0)}
    result = ew.compile(Difference(), (pair,), quiet=True, evaluate=0)
    for call in (lambda: result.run(pair), lambda: result.run((pair,)), lambda: result.run(*pair.values())):
        assert call().tolist() == [[3.0] * 4]
    with pytest.raises(InputError, match=r"must be passed by position: .*; got pair"):
        result.run(pair=pair)


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


def test_every_program_of_a_session_needs_all_dynamic_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(Recipe(), dynamic_shapes=({0: Dim("n", min=2, max=8)},))
    session = CompileSession(torch.nn.Linear(4, 2), torch.ones(3, 4), None, settings, Stages(quiet=True))
    eager = CompileSession.eager

    def failing(self: CompileSession, x: torch.Tensor) -> Any:
        if len(x) == 8:
            raise RuntimeError("too many")
        return eager(self, x)

    monkeypatch.setattr(CompileSession, "eager", failing)
    for other in (session, session.with_settings(settings)):
        with pytest.raises(UsageError, match=r"allow the largest shapes \[8, 4\], .*: too many"):
            other.build(find_target("xnnpack"))


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
    assert ImageOptions(127, 128) == ImageOptions((127.0,), (128.0,))
    assert ImageOptions(np.float32(127), torch.tensor([128.0])) == ImageOptions(127, 128)


@pytest.mark.parametrize("mean", [None, "127", ("red", "green", "blue"), (1.0, 2.0), [None]])
def test_means_that_are_no_numbers(mean: Any) -> None:
    with pytest.raises(UsageError, match="mean: must be one number, or one for each of red, green and blue"):
        ImageOptions(mean, 128)


def test_errors_name_the_data_that_they_are_about() -> None:
    bad = [torch.full((1, 4), float("nan"))]
    options: dict[str, Any] = {"quantize": "int8", "calibration": [torch.rand(1, 4) for _ in range(4)], "quiet": True}
    with pytest.raises(InputError, match="evaluate input 0: must hold numbers; got NaN"):
        ew.compile(torch.nn.Linear(4, 2), ROW, evaluate=bad, **options)
    with pytest.raises(InputError, match="example input: must hold numbers; got NaN"):
        ew.compile(torch.nn.Linear(4, 2), bad[0], quiet=True)


@pytest.mark.parametrize(
    ("preset", "target", "remedy"),
    [
        ("fp16", "sm8550", "half precision is the target's option, or model.half()"),
        ("w8a8", "xnnpack", "Did you mean int8?"),
        ("w4a16", "sm8550", "Did you mean a16w4?"),
        ("float32", "xnnpack", "Did you mean float?"),
    ],
)
def test_presets_by_names_of_other_tools(preset: str, target: str, remedy: str) -> None:
    with pytest.raises(UsageError) as raised:
        ew.compile(torch.nn.Linear(4, 2), ROW, target, quantize=preset, calibration=[ROW], quiet=True)
    assert remedy in raised.value.remedy


def test_targets_in_one_text() -> None:
    with pytest.raises(UsageError, match=r"Several targets are a list: \['xnnpack', 'sm8550'\] \(--target xnnpack"):
        ew.compile(torch.nn.Linear(4, 2), ROW, "xnnpack, sm8550")


def test_a_dynamic_batch_from_an_example_of_one() -> None:
    shapes = {"input": {0: Dim("n", min=1, max=8)}}
    with pytest.raises(EdgewrightError, match=r"a size of 1 in a dimension .*\n.*such as a batch of 2") as raised:
        ew.compile(torch.nn.Conv2d(3, 2, 1), torch.ones(1, 3, 4, 4), dynamic_shapes={**shapes}, quiet=True)
    assert "n = 1" in str(raised.value)


def test_dynamic_shapes_on_a_chip_that_has_none(caplog: pytest.LogCaptureFixture) -> None:
    """The reason is the shapes, and not that their layers stay in floating point."""
    data, shapes = [torch.rand(2, 4) for _ in range(4)], {"input": {0: Dim("n", min=1, max=8)}}
    result = ew.compile(torch.nn.Linear(4, 2), (data[0],), "ethos-u55-128", quantize="int8", calibration=data,
                        dynamic_shapes=shapes, quiet=True)  # fmt: skip
    (warning,) = (r.getMessage() for r in caplog.records if "nothing of" in r.getMessage())
    assert warning.endswith(
        "which needs sizes that are known in advance: leave out dynamic_shapes, or compile per size"
    )
    assert "linear: shapes must be static" in result.summary
    assert "leave out dynamic_shapes" in result.report.advice and "--quantize" not in result.report.advice


def test_partitioners_are_instances() -> None:
    exported = ew.export(torch.nn.Linear(4, 2), (ROW,))
    with pytest.raises(UsageError, match=r"Pass an instance of the class: XnnpackPartitioner\(\.\.\.\)"):
        ew.to_edge_transform_and_lower(exported, partitioner=XnnpackPartitioner)  # type: ignore[arg-type]


def test_a_dict_for_a_method(scaled: Any) -> None:
    with pytest.raises(InputError, match=r"execute\(list\(inputs\.values\(\)\)\), in the order of"):
        scaled.method().execute({"x": ROW, "scale": ROW})
