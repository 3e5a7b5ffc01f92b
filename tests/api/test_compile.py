"""``edgewright.compile``: one call, every target, and results that hold what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgewright as ew
from edgewright.api.data import Call
from edgewright.api.result import CompileResults
from edgewright.api.shape_samples import calls_at_bounds
from edgewright.errors import CoverageError, InputError, MissingError, UsageError
from edgewright.formats import read_program
from edgewright.program import manifest
from edgewright.quantize.evaluate import Sqnr, sqnr
from edgewright.runtime.method_io import to_array
from tests.api.conftest import TARGETS
from tests.api.models import calls, mean_of_first, net


def test_every_target_is_compiled_and_close_to_the_model(compiled: CompileResults) -> None:
    assert tuple(compiled) == TARGETS
    x = calls(1)[0]
    with torch.no_grad():
        expected = net()(x).numpy()
    for name, result in compiled.items():
        report = result.report
        assert report.coverage["macs"] == 1.0, name
        assert report.precision == "int8"
        assert report.bytes == len(result.buffer)
        assert report.sqnr is not None and 20 < report.sqnr < 60, name
        assert Sqnr_of(expected, result.run(x)) > 15, name


def Sqnr_of(expected: Any, actual: Any) -> float:  # noqa: N802
    return sqnr([([expected], [np.asarray(actual)])])


def test_manifests_name_devices(compiled: CompileResults) -> None:
    for name, result in compiled.items():
        content = manifest.read(read_program(result.buffer))
        assert content is not None
        (target,) = (target for target in content["targets"] if target != "portable")
        device, _, remark = target.partition(" (")
        assert (device, remark.startswith("simulation only")) == (name, bool(result.report.simulated))


def test_targets_of_one_backend_share_calibration(compiled: CompileResults) -> None:
    assert "calibrate" in compiled["ethos-u55-128"].report.stages
    assert "calibrate" not in compiled["ethos-u55-256"].report.stages
    assert compiled["ethos-u55-128"].exported is compiled["ethos-u55-256"].exported
    assert compiled["ethos-u55-128"].buffer != compiled["ethos-u55-256"].buffer


def test_what_no_device_runs_says_so(compiled: CompileResults, tmp_path: Path) -> None:
    report = compiled["imxrt700"].report
    assert "eiq_neutron_sdk is not installed" in report.simulated
    assert "runs on this machine only" in compiled["imxrt700"].summary
    assert [r.report.target for r in compiled.values() if r.report.simulated] == ["imxrt700"]
    files = {path.name for path in compiled.save(tmp_path, "net")}
    assert "net.imxrt700.simulated.pte" in files
    assert "net.sm8550.pte" in files


def test_models_in_bfloat16_are_compared_too() -> None:
    model, x = torch.nn.Linear(4, 3).bfloat16(), torch.ones(2, 4, dtype=torch.bfloat16)
    result = ew.compile(model, x, target="xnnpack")
    assert result.run(x).dtype == torch.bfloat16
    assert result.report.sqnr is not None and result.report.sqnr > 40
    measured = [to_array("y", torch.tensor(v, dtype=torch.bfloat16)) for v in ([1.0, 2.0], [1.0, 3.0])]
    assert sqnr([(measured[:1], measured[1:])]) == pytest.approx(10 * np.log10(5))


def test_a_file_for_the_device_or_none(compiled: CompileResults) -> None:
    with pytest.raises(MissingError, match="eiq_neutron_sdk"):
        ew.compile(net(), calls(1)[0], "imxrt700", quantize="int8", calibration=calls(2), simulate=False)


def test_saved_files_run_as_the_result_does(compiled: CompileResults, tmp_path: Path) -> None:
    x = calls(1)[0]
    for path in compiled.save(tmp_path):
        target = path.name.split(".")[1]
        method = ew.Runtime.get().load_program(path).load_method("forward")
        assert torch.equal(method.execute([x])[0], compiled[target].run(x)), target
        assert compiled[target].report.file == str(path)


def test_reports_are_json_and_html(compiled: CompileResults) -> None:
    content = json.loads(compiled.report.to_json())
    assert list(content["targets"]) == list(TARGETS)
    assert content["targets"]["ethos-u55-128"]["estimate_basis"] == "Vela's estimate"
    assert content["targets"]["xnnpack"]["host_ms"] > 0
    one = json.loads(compiled["xnnpack"].report.to_json())
    assert one["methods"]["forward"]["operators"][0]["backend"] == "xnnpack"
    page = compiled._repr_html_()
    assert all(name in page for name in TARGETS)
    assert "by Vela&#x27;s estimate" in page
    alone = compiled["xnnpack"]._repr_html_()
    assert "<table" in alone and "time: xnnpack measured on this machine" in alone


def test_the_summary_is_a_table(compiled: CompileResults) -> None:
    lines = compiled.summary.splitlines()
    assert lines[0].split()[:3] == ["device", "precision", "delegated"]
    assert [line.split()[0] for line in lines[2:]] == list(TARGETS)


def test_one_target_without_quantization() -> None:
    result = ew.compile(net(), (calls(1)[0],), "xnnpack")
    assert result.report.precision == "float"
    assert result.report.sqnr is not None and result.report.sqnr > 100
    assert result.report.samples == 1


def test_inputs_by_name_and_a_metric() -> None:
    result = ew.compile(net(), {"x": calls(1)[0]}, "xnnpack", metric=mean_of_first)
    with torch.no_grad():
        expected = mean_of_first(net())
    assert result.report.metric == pytest.approx(expected, rel=1e-3)


def test_a_module_keeps_its_weights() -> None:
    model = net()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    ew.compile(model, calls(1)[0], "xnnpack", quantize="int8", calibration=calls(2))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_failures_of_one_target_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    results = ew.compile(net(), calls(1)[0], ["xnnpack", "imxrt700"], simulate=False)
    assert list(results) == ["xnnpack"]
    with pytest.raises(MissingError):
        results["imxrt700"]
    assert json.loads(results.report.to_json())["failed"]["imxrt700"]["exit_code"] == 6
    assert "eiq_neutron_sdk" in results.summary


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"target": "ethos-u55"}, "Did you mean ethos-u55-32"),
        ({"target": "tpu"}, "edgewright targets"),
        ({"target": []}, "at least one"),
        ({"target": "xnnpack", "quantize": "int8"}, "needs calibration data"),
        ({"target": "xnnpack", "quantize": "int3", "calibration": calls(1)}, "int8, dynamic"),
        ({"target": "xnnpack", "speed": 9}, "takes the options"),
        ({"target": "xnnpack", "quantise": "int8"}, "Did you mean quantize"),
        ({"target": "sm8540"}, "Did you mean sm8550"),
        ({"target": 3}, "must be a name or a backend.s compile spec; got int"),
        ({"target": "xnnpack", "quantize": "int4", "calibration": calls(1)}, "With 4-bit weights: dynamic-w4"),
        ({"target": "imxrt700", "quantize": "dynamic"}, "scales of activations in advance: int8, with --calibrate"),
        ({"target": "imxrt700", "quantize": "int4", "calibration": calls(1)}, "has no preset with 4-bit weights"),
        ({"target": "xnnpack", "integer_io": True}, "is for quantized models"),
        ({"target": "xnnpack", "quantize": "int8", "calibration": calls(1), "recipe": {"modules": {"bdy": "float"}}},
         "Did you mean body"),
    ],
)  # fmt: skip
def test_what_does_not_exist_is_named(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        ew.compile(net(), calls(1)[0], **options)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"samples": [1]}, "samples: must be an integer, 1 or more.*; got list\n.* calibration="),
        ({"samples": 0}, "samples: must be an integer, 1 or more"),
        ({"metric": 5}, "metric: must be a function"),
        ({"simulate": "no"}, "simulate: must be True, False or None"),
        ({"check": 1}, "check: must be True or False"),
        ({"integer_io": 8}, "integer_io: must be True"),
        ({"config": {}}, "config: must be of the class ExecutorchBackendConfig; got dict"),
        ({"images": "folder"}, "images: must be of the class ImageOptions; got folder"),
        ({"runtime": 1.3}, "runtime: must be "),
        ({"evaluate": 0.5}, "evaluate: must be a file"),
    ],
)
def test_options_of_a_wrong_type(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        ew.compile(net(), calls(1)[0], "xnnpack", **options)


def test_calibration_inputs_are_tensors() -> None:
    with pytest.raises(InputError, match=r"calibration input 0: must be a tensor.*; got int"):
        ew.compile(net(), calls(1)[0], "xnnpack", quantize="int8", calibration=[5])


def test_a_name_is_no_model() -> None:
    with pytest.raises(UsageError, match="Create or load the model first"):
        ew.compile("bert-base-uncased", calls(1)[0])


def test_a_dynamic_preset_needs_no_data() -> None:
    result = ew.compile(torch.nn.Linear(8, 4), torch.ones(2, 8), "xnnpack", quantize="dynamic")
    assert result.report.coverage["macs"] == 1.0


def test_wrong_data_is_an_error_with_the_remedy() -> None:
    loader = [(x, torch.tensor(1)) for x in calls(2)]
    with pytest.raises(InputError, match="without labels"):
        ew.compile(net(), calls(1)[0], "xnnpack", quantize="int8", calibration=loader)


def test_sqnr() -> None:
    measure = Sqnr()
    measure.add(np.array([3.0, 4.0]), np.array([3.0, 4.5]))
    assert measure.decibels == pytest.approx(20.0)
    measure.add(np.zeros(2), np.array([1.0, np.nan]))
    assert measure.decibels == -200
    assert CoverageError.exit_code != MissingError.exit_code


def test_programs_and_results_in_notebooks_are_escaped(compiled: CompileResults) -> None:
    program = ew.Runtime.get().load_program(compiled["xnnpack"].buffer)
    assert "float32[1, 3, 8, 8]" in program._repr_html_()
    program.program.execution_plan[0].name = "<script>"
    assert "<script>" not in program._repr_html_()


class Counting(torch.nn.Module):
    """Changes its state at every call."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(1)
        y: torch.Tensor = self.fc(x) + self.seen
        return y


def test_state_is_where_it_was_for_every_target() -> None:
    """Calibrating and comparing run the model; what they leave in its state must not get into files."""
    model, data = Counting().eval(), [torch.rand(2, 4) for _ in range(3)]
    results = ew.compile(model, data[0], ["xnnpack", "imxrt700"], quantize="int8", calibration=data)
    assert model.seen.item() == 0
    for result in results.values():
        assert (result.report.sqnr or 0) > 25
        first = result.method().execute([data[0]])[0]
        assert torch.equal(result.method().execute([data[0]])[0], first)
        with torch.no_grad():
            assert (first - model.fc(data[0]) - 1).abs().max() < 0.1


def test_dynamic_shapes_are_checked_at_their_ends() -> None:
    rows = torch.export.Dim("rows", min=2, max=32)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    result = ew.compile(net, torch.rand(5, 4), "xnnpack", dynamic_shapes=({0: rows},))
    assert list(result.report.shapes) == ["smallest", "middle", "largest"]
    assert all(decibels > 100 for decibels in result.report.shapes.values())
    assert "at the largest" in result.summary
    for count in (2, 32):
        assert result.run(torch.rand(count, 4)).shape == (count, 3)


def test_shapes_without_an_end_are_left_out() -> None:
    rows = torch.export.Dim("rows", min=2)
    exported = torch.export.export(torch.nn.ReLU(), (torch.rand(5, 4),), dynamic_shapes=({0: rows},))
    assert calls_at_bounds(exported, Call((torch.rand(5, 4),))) == {}


def test_several_inputs_and_outputs() -> None:
    class Two(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"sum": a + b, "product": a * b}

    data = [(torch.rand(2, 4), torch.rand(2, 4)) for _ in range(4)]
    result = ew.compile(Two(), data[0], "ethos-u55-128", quantize="int8", calibration=data)
    total, product = result.run(*data[0])
    assert (total - data[0][0] - data[0][1]).abs().max() < 0.05
    assert (product - data[0][0] * data[0][1]).abs().max() < 0.05


@pytest.mark.parametrize("again", [False, True])
def test_dynamic_shapes_outlive_quantization(again: bool) -> None:
    """An exported program is exported again when it is quantized, and keeps its dimensions and their ends."""
    rows = torch.export.Dim("rows", min=2, max=32)
    net, data = torch.nn.Linear(4, 3).eval(), [torch.rand(5, 4) for _ in range(32)]
    options: dict[str, Any] = {"quantize": "int8", "calibration": data}
    if again:
        exported = torch.export.export(net, (data[0],), dynamic_shapes=({0: rows},))
        result = ew.compile(exported, None, "xnnpack", **options)
    else:
        result = ew.compile(net, data[0], "xnnpack", dynamic_shapes=({0: rows},), **options)
    assert result.run(torch.rand(31, 4)).shape == (31, 3)
    assert list(result.report.shapes) == ["smallest", "middle", "largest"]
    assert all(decibels > 25 for decibels in result.report.shapes.values())


def test_the_callers_model_stays_in_its_mode() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Dropout(), torch.nn.BatchNorm1d(4)).train()
    model[2].eval()  # a frozen norm
    ew.compile(model, torch.rand(2, 8), "xnnpack")
    assert [m.training for m in model.modules()] == [True, True, True, False]


def test_the_summary_says_what_stays_on_the_cpu_and_why() -> None:
    class Running(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.cumsum(-1).relu()

    summary = ew.compile(Running(), torch.rand(2, 8), "xnnpack").summary
    for text in ("planned memory", "SQNR", "operators delegated to xnnpack", "on the CPU: cumsum: "):
        assert text in summary


def test_the_bytes_of_a_large_program_are_not_held_beside_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither compiling nor running makes them: it is written in pieces, and mapped from a file."""
    from edgewright.program import edge

    small = ew.compile(net(), calls(1)[0], quantize="int8", calibration=calls(4), quiet=True)
    monkeypatch.setattr(edge, "_LARGE", 0)
    large = ew.compile(net(), calls(1)[0], quantize="int8", calibration=calls(4), quiet=True)
    assert np.array_equal(large.run(calls(1)[0]), small.run(calls(1)[0]))
    assert large.report.sqnr == small.report.sqnr and large.report.bytes == small.report.bytes
    assert large.program._buffer is None and large.buffer == small.buffer
