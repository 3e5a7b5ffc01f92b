"""The HTML report of compile results: the model's graph with reasons, errors by layer, targets side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgewright as ew
from edgewright.api import compare
from edgewright.api.compile_report import CompileReport
from edgewright.api.html_report import build, file_report, model_graph
from edgewright.api.model_report import target_of
from edgewright.api.quantization import QuantizationPipeline
from edgewright.api.result import CompileResults
from edgewright.cli import main
from edgewright.errors import UsageError
from edgewright.lowering.partition.report import OpDetail, PartitionReport, Verdict, merge
from edgewright.report.collect import Options, collect
from edgewright.report.export import model_explorer
from edgewright.report.model import Node
from edgewright.runtime.example_inputs import ones
from tests.api.models import calls, wide
from tests.report.programs import text_of


def data_of(page: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(page.split('id="data">')[1].split("</script>")[0])
    return content


def test_all_targets_are_on_one_page(compiled: CompileResults, tmp_path: Path) -> None:
    page = compiled.report.save_html(tmp_path / "r.html", profile=False).read_text(encoding="utf-8")
    plain = text_of(page)
    for result in compiled.values():
        assert f"{result.report.sqnr:.1f} dB" in plain
    assert "Vela's estimate" in plain and "Cycles on the device" in plain and "traffic of the NPU by layer" in plain
    assert "scratch (SRAM)" in plain and "constants (off-chip flash)" in plain and "Layers side by side" in plain
    assert "runs on this machine only" in plain and "Accuracy and file size" in plain
    assert "The times have different sources" in plain
    assert f'href="{tmp_path}/r.html"' in compiled._repr_html_()


def test_the_graph_of_the_model_has_edges_shapes_and_source(compiled: CompileResults) -> None:
    report = compiled["xnnpack"].report.methods["forward"]
    nodes = model_graph(report, several=False).nodes
    by_module = {n.module: n for n in nodes if n.operator == "conv2d"}
    assert set(by_module) == {"stem", "body.0"}
    body = by_module["body.0"]
    assert nodes.index(by_module["stem"]) in body.inputs
    assert body.outputs[0].startswith("int8[1, 8, 8, 8]") and body.weights >= 8 * 8 * 9 and body.macs == 8 * 64 * 72
    assert "tests/api/models.py" in body.source.replace("\\", "/")
    assert all(max(n.inputs, default=-1) < i for i, n in enumerate(nodes))


def test_conversions_stand_in_the_module_around_them() -> None:
    """Quantization inserts them, without a module; at the ends of the model they stay outside."""
    rows = [
        ("quantize", "", ()), ("linear", "block.attn", (0,)), ("dequantize", "", (1,)), ("softmax", "block.attn", (2,)),
        ("quantize", "", (3,)), ("linear", "block.out", (4,)), ("dequantize", "", (5,)), ("mean", "", (5,)),
    ]  # fmt: skip
    verdicts = [Verdict(op, f"n{i}", module, detail=OpDetail(inputs)) for i, (op, module, inputs) in enumerate(rows)]
    nodes = model_graph(PartitionReport("forward", "npu", verdicts), several=False).nodes
    assert [n.module for n in nodes] == ["", "block.attn", "block.attn", "block.attn", "block", "block.out", "", ""]


def test_rules_that_rejected_an_operator_are_shown(tmp_path: Path) -> None:
    result = ew.compile(wide(), calls(1)[0], "xnnpack", check=False)
    page = result.report.save_html(tmp_path / "r.html").read_text(encoding="utf-8")
    (rejected,) = [v for v in result.report.methods["forward"].rejected if v.module == "odd"]
    assert rejected.rejections[0] in text_of(page)
    graph = data_of(page)["0.0"]
    shown = [graph["texts"][r] for node in graph["nodes"] for r in node.get("r", ())]
    assert rejected.rejections[0] in shown
    assert "Time by step" in page


def test_the_report_is_of_a_result_of_compile(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must be of a result"):
        CompileReport("xnnpack", "xnnpack").save_html(tmp_path / "r.html")


def test_json_has_no_field_of_the_page(compiled: CompileResults) -> None:
    plain = compiled["xnnpack"].report.to_dict()
    assert not {"program", "html"} & set(plain)
    assert "detail" not in plain["methods"]["forward"]["operators"][0]


def test_edges_survive_a_second_backend() -> None:
    details = [OpDetail(), OpDetail((0,)), OpDetail((1,)), OpDetail((2, 0))]
    placed = ["", "npu", "", "npu"]
    first = PartitionReport("forward", "npu", [
        Verdict("op", f"n{i}", "", backend, 0 if backend else -1, detail=detail)
        for i, (backend, detail) in enumerate(zip(placed, details, strict=True))
    ])  # fmt: skip
    second = PartitionReport("forward", "cpu2", [
        Verdict("op", "n0", "", "cpu2", 0), Verdict("op", "n2", ""), Verdict("cast", "new", "", detail=OpDetail((1,))),
    ])  # fmt: skip
    merged = merge(first, second)
    names = [v.node for v in merged.verdicts]
    edges = {v.node: [names[i] for i in v.detail.inputs] for v in merged.verdicts}
    assert edges == {"n0": [], "n1": ["n0"], "n2": ["n1"], "n3": ["n2", "n0"], "new": ["n2"]}
    order = [node.name for node in model_graph(merged, several=False).nodes]
    assert order == ["n0", "n1", "n2", "n3", "new"]


def test_the_scratch_of_an_npu_counts_as_ram(compiled: CompileResults) -> None:
    program = compiled["ethos-u55-128"].report.program
    alone = collect(program.buffer, "m", Options(), twin=program.twin).memory
    assert alone.scratch > 0 and alone.ram_used == alone.planned + alone.scratch
    limited = collect(program.buffer, "m", Options(ram=alone.planned), twin=program.twin)
    assert {f.label: f.status for f in limited.facts}["RAM"] == "bad"


def test_files_name_their_device_and_simulations_are_not_its_time(compiled: CompileResults) -> None:
    for name in ("xnnpack", "ethos-u55-128", "sm8550"):
        program = compiled[name].report.program
        file = collect(program.buffer, "m", Options(inputs=ones, repeat=1), twin=program.twin)
        found = target_of(file)
        assert file.target == name and found is not None and found.name == name
        labels = {f.label for f in file.facts}
        assert ("time here" in labels, "simulation here" in labels) == (name == "xnnpack", name != "xnnpack")
        assert file.measures.here_ms and bool(file.layers.simulated) == (name != "xnnpack")
        if name == "sm8550":  # its estimate is a bound, and no time
            assert file.measures.milliseconds is None and "analytic bound" in file.measures.time_basis


def test_products_of_the_model_have_the_times_and_cycles_of_the_file(compiled: CompileResults) -> None:
    for name in ("xnnpack", "ethos-u55-128"):
        report = file_report(compiled[name].report, Options(inputs=ones, repeat=1))
        products = [n for n in report.graphs[0].nodes if n.macs]
        assert len(products) >= 3 and all(n.ms is not None for n in products)  # short ones round to 0
        assert sum(n.ms or 0 for n in products) > 0
        assert all(n.cycles for n in products) == (name != "xnnpack")
        assert {"time", "macs"} <= set(model_explorer(report))


def test_failures_are_named(compiled: CompileResults) -> None:
    report = build([compiled["xnnpack"].report], {"e9955": UsageError("e9955", "cannot")}, profile=False)
    assert report.failures == {"e9955": "usage: e9955: cannot"}


@pytest.fixture
def calibration(tmp_path: Path) -> Path:
    np.savez(tmp_path / "calib.npz", x=np.stack([c.numpy() for c in calls(8)]))
    return tmp_path / "calib.npz"


def test_with_its_model_a_file_has_errors_by_layer(tmp_path: Path, calibration: Path) -> None:
    common = ["--quantize", "int8", "-q"]
    spec, folder = "tests.api.models:net", tmp_path / "out"
    target = folder / "net.xnnpack.pte"
    assert main(["compile", spec, "--target", "xnnpack", "--calibrate", str(calibration), "--html",
                 str(folder / "c.html"), "-o", str(folder), *common]) == 0  # fmt: skip
    assert "Overview" in (folder / "c.html").read_text(encoding="utf-8")
    assert main(["report", str(target), "--model", spec, "--inputs", str(calibration), "-o", str(tmp_path / "r.html"),
                 *common]) == 0  # fmt: skip
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    plain = text_of(page)
    assert "this file against the model" in plain and "Error by layer" in plain
    graph = data_of(page)["0.0"]
    errors = [node["e"] for node in graph["nodes"] if "e" in node]
    assert all("e" in node for node in graph["nodes"] if "c" in node)  # also products that an activation follows
    histograms = [h[0] for node in graph["nodes"] for h in node.get("h", ())]
    assert errors and min(errors) > 10
    assert {"weights of the float model", "activations of the float model"} <= set(histograms)
    assert any(
        text.startswith("weight: 8 scales") for text in (q for node in graph["nodes"] for q in node.get("q", ()))
    )


def test_the_data_of_compile_gives_the_file_of_compile(tmp_path: Path) -> None:
    """With the same data, the same inputs are held out: the model compiles to this very file."""
    np.savez(tmp_path / "calib.npz", x=np.stack([c.numpy() for c in calls(24)]))
    common = ["--quantize", "int8", "-q"]
    spec, data, target = "tests.api.models:net", str(tmp_path / "calib.npz"), str(tmp_path / "net.pte")
    assert main(["compile", spec, "--target", "xnnpack", "--calibrate", data, "-o", target, *common]) == 0
    assert main(["report", target, "--model", spec, "--inputs", data, "-o", str(tmp_path / "r.html"), *common]) == 0
    plain = text_of((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert "gives another file" not in plain and "self-check" in plain
    assert "on 6 held-out inputs" in plain and "on xnnpack, on 4 held-out inputs" in plain


def test_targets_that_quantize_alike_share_the_work(
    tmp_path: Path, calibration: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    observed, layers = [], []
    calibrate, measure_call = QuantizationPipeline.calibrate, compare._measure_call

    def count(self: Any, target: Any, prepared: Any) -> None:
        observed.append(target.name)
        calibrate(self, target, prepared)

    def count_call(*args: Any) -> None:
        layers.append(args)
        measure_call(*args)

    monkeypatch.setattr(QuantizationPipeline, "calibrate", count)
    monkeypatch.setattr(compare, "_measure_call", count_call)
    monkeypatch.setattr(compare, "_recommend", lambda *_: None)
    spec, common = "tests.api.models:net", ["--quantize", "int8", "-q"]
    names = ("ethos-u55-128", "ethos-u55-256")
    targets = [option for name in names for option in ("--target", name)]
    data = str(calibration)
    assert main(["compile", spec, *targets, "--calibrate", data, "-o", f"{tmp_path}/", *common]) == 0
    observed.clear()
    files = [str(tmp_path / f"net.{name}.pte") for name in names]
    assert main(["report", *files, "--model", spec, "--inputs", data, "--no-run", "-o", str(tmp_path / "r.html"),
                 *common]) == 0  # fmt: skip
    assert observed == ["ethos-u55-128"]  # once, to compile and to measure the layers of both
    assert len(layers) == 2  # the inputs held out
    graphs = data_of((tmp_path / "r.html").read_text(encoding="utf-8"))
    errors = [[node.get("e") for node in graphs[f"{file}.0"]["nodes"]] for file in (0, 1)]
    assert errors[0] == errors[1] and any(errors[0])


def test_another_model_is_said_to_be_another(tmp_path: Path, calibration: Path) -> None:
    ew.compile(torch.nn.Conv2d(3, 4, 1), calls(1)[0], "xnnpack").save(tmp_path / "m.pte")
    code = main(
        ["report", str(tmp_path / "m.pte"), "--model", "tests.api.models:net", "-q", "-o", str(tmp_path / "r.html")]
    )
    assert code == 0
    plain = text_of((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert "gives another file than this one" in plain


def test_a_quantized_file_is_not_described_by_the_float_model(
    tmp_path: Path, calibration: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without a precision, the model is compiled in floating point, of which Ethos-U takes nothing."""
    spec, target, data = "tests.api.models:net", "ethos-u55-128", str(calibration)
    program = str(tmp_path / "m.pte")
    assert main(["compile", spec, "--target", target, "--quantize", "int8", "--calibrate", data, "-o", program]) == 0
    capfd.readouterr()
    assert main(["report", program, "--model", spec, "--inputs", data, "-o", str(tmp_path / "r.html")]) == 0
    plain = text_of((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert "this file against the model" in plain and "left to the CPU" not in plain
    assert "need the precision that the file was compiled in" in plain
    assert "--quantize int8" in capfd.readouterr().out


@pytest.mark.parametrize("target", ["sm8550", "imxrt700", "e9955"])
def test_a_file_for_simulation_only_is_compared(target: str, tmp_path: Path, calibration: Path) -> None:
    spec, data, program = "tests.api.models:net", str(calibration), str(tmp_path / "m.pte")
    common = ["--quantize", "int8", "-q"]
    assert (
        main(["compile", spec, "--target", target, "--simulate-only", "--calibrate", data, "-o", program, *common]) == 0
    )
    assert main(["report", program, "--model", spec, "--inputs", data, "-o", str(tmp_path / "r.html"), *common]) == 0
    plain = text_of((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert "is not a target" not in plain and f"dB on {target}, on" in plain


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "r.txt"], "must end in .html"),
        (["-o", "r.html", "--quantize", "int8"], "needs a --model"),
        (["-o", "r.html", "--repeat", "0"], "must be 1 or more"),
    ],
)
def test_mistakes_are_named(options: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "m.pte", *options]) == 2
    assert message in capfd.readouterr().err


def test_nodes_have_defaults() -> None:
    assert Node("a", "b").placement == "cpu"
