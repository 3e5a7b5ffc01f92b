"""Names of the model's modules wherever a person looks at a file: profiles, sizes, reports, for every backend."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewright.cli import main
from edgewright.engine.profile import Profile
from edgewright.formats import read_program
from edgewright.formats.layer_table import read_layers
from edgewright.program.config import ExecutorchBackendConfig
from edgewright.report.collect import Options, collect
from edgewright.report.layer_sizes import NO_LAYER, UNDIVIDED, delegate_bytes
from edgewright.report.model import Report
from edgewright.report.page import page
from edgewright.runtime import Runtime
from edgewright.runtime.disassembly import DelegateContents
from edgewright.runtime.example_inputs import ones
from edgewright.runtime.twin_delegate import Twins
from tests.report.programs import text_of
from tests.support.layered_models import MEANINGLESS, compile_for, make, modules_in
from tests.support.stock import stock

TARGETS = [
    ("xnnpack", None), ("xnnpack", "int8"), ("ethos-u55-128", "int8"), ("ethos-u85-256", "int8"), ("imxrt700", "int8"),
    ("e9955", "int8"), ("sm8650", "int8"),
]  # fmt: skip
CASES = [(model, *target) for model in ("mobile", "transformer") for target in TARGETS]
cases = pytest.mark.parametrize(
    ("model", "target", "quantize"), CASES, ids=[f"{m}-{t}-{q or 'float'}" for m, t, q in CASES]
)
sample = pytest.mark.sample("mobile-xnnpack-int8", "transformer-xnnpack-float")
AROUND = ("input", "output", "mean", "quantize", "dequantize")  # what is outside of any module


@cache
def compiled(model: str, target: str, quantize: str | None) -> Any:
    # Without Qualcomm's libraries, whose emulator runs a graph as one step.
    options = {"simulate": True} if target == "sm8650" else {}
    return compile_for(model, target, quantize, **options)


def profiled(model: str, target: str, quantize: str | None) -> Profile:
    program = compiled(model, target, quantize).program
    method = Runtime.get().load_program(program.buffer, twin=program.twin).load_method()
    x = make(model)[1].numpy()
    profile = Profile()
    for _ in range(3):  # command streams are compiled at the second run
        profile.runs.clear()
        method.execute([x], profile=profile)
    return profile


@sample
@cases
def test_every_step_of_a_profile_names_its_layer(model: str, target: str, quantize: str | None) -> None:
    profile = profiled(model, target, quantize)
    parts = profile.part_rows()
    assert parts, "the steps are listed"
    assert not MEANINGLESS.search(str(profile))
    network = make(model)[0]
    assert not [p for p in parts if not modules_in(p.layer, network) and not p.layer.startswith(AROUND)]
    some = {"mobile": ["features.1.conv.0.0", "classifier"], "transformer": ["layers.0.qkv", "layers.1.mlp.2", "head"]}
    assert {p.layer for p in parts}.issuperset(some[model])
    for row in profile.rows():
        assert modules_in(row.layer, network) or row.layer.startswith(AROUND), row


@sample
@cases
def test_sizes_are_by_layer_and_add_up(
    model: str, target: str, quantize: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.pte"
    compiled(model, target, quantize).program.save(path)
    assert main(["size", str(path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert all(sum(d["layers"].values()) == d["bytes"] for d in facts["layers"])
    in_file = {name: count for name, count in facts["parts"].items() if name.startswith(("delegates", "data that"))}
    assert sum(d["bytes"] for d in facts["layers"]) == sum(in_file.values()), "every byte of delegates, once"
    network = make(model)[0]
    layers = {name: count for d in facts["layers"] for name, count in d["layers"].items() if name not in NO_LAYER}
    assert layers and all(modules_in(name, network) or name.startswith(AROUND) for name in layers)
    weights = sum(p.numel() for p in network.parameters())
    assert sum(layers.values()) > weights * 0.7, "at least a byte for each weight, compressed for Ethos-U"
    assert main(["size", str(path)]) == 0
    assert not MEANINGLESS.search(capsys.readouterr().out)


@cache
def macs_of(model: str) -> int:
    """Multiply-accumulates of the products of a model, by the partitioner's count."""
    (report,) = compiled(model, "xnnpack", None).report.methods.values()
    return sum(v.macs for v in report.verdicts)


@sample
@cases
def test_a_report_of_the_file_alone_has_names_macs_times_and_cycles(
    model: str, target: str, quantize: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "m.pte"
    result = compiled(model, target, quantize)
    result.program.save(path)
    report = collect(path, "m.pte", Options(inputs=ones, repeat=1))
    assert not report.notes
    nodes, network = report.graphs[0].nodes, make(model)[0]
    inside = [n for n in nodes if n.placement != "cpu"]
    assert not [n for n in inside if MEANINGLESS.search(f"{n.name} {n.module}")]
    layers = [n.module.partition(f" {n.module.split(' ')[1][0]}")[2].removeprefix(".") for n in inside]
    assert all(not layer or modules_in(layer, network) for layer in layers) and len(set(layers)) > 5
    passes = target.startswith("ethos-u55")  # which compute more: sums as convolutions, products as many
    assert passes or sum(n.macs for n in inside) == macs_of(model)
    timed = [n for n in inside if n.ms is not None]
    assert len(timed) > 5 and sum(n.ms or 0 for n in timed) <= sum(s.ms for s in report.layers.steps) * 1.01
    if passes:
        (estimate,) = [e for r in result.report.methods.values() for e in r.estimates]
        assert sum(n.cycles or 0 for n in inside) == sum(layer["cycles"] for layer in estimate["layers"])
        assert sum(d.cycles for d in report.layers.device) == sum(n.cycles or 0 for n in inside)
    owners = {w.owner for w in report.memory.weights}
    assert {"mobile": "features.1.conv.0.0", "transformer": "layers.0.qkv"}[model] in owners
    text = text_of(page(Report("m.pte", [report])))
    assert not re.search(r"\b(value_\d|v\d+\b|constant_\d|lowered_module|executorch_call)", text)


def test_what_a_vendor_compiled_is_not_divided() -> None:
    """A blob whose format is not known is one row: its bytes are in the file, its layers are not."""
    program = read_program(compiled("mobile", "imxrt700", "int8").program.buffer)
    (delegate,) = program.execution_plan[0].delegates
    contents = DelegateContents("NeutronBackend", b"microcode", {}, {}, Twins({}, None, 1 << 20), False)
    (entry,) = delegate_bytes(program, lambda d: contents)
    assert entry.layers == {UNDIVIDED: len(program.blob(delegate))} and entry.total == len(program.blob(delegate))


def test_a_file_with_names_runs_in_the_stock_runtime() -> None:
    for model in ("mobile", "transformer"):
        file = compiled(model, "xnnpack", "int8").program.buffer
        x = make(model)[1].numpy()
        assert read_layers(Runtime.get().load_program(file).program)["forward"].delegates[0].origins
        ours = Runtime.get().load_program(file).load_method().execute([x])
        np.testing.assert_allclose(stock().run(file, "forward", [x])[0], ours[0], atol=0.05)


def test_the_same_model_gives_the_same_bytes() -> None:
    first, second = (compile_for("transformer", "xnnpack", None).program.buffer for _ in range(2))
    assert first == second


def test_names_can_be_left_out() -> None:
    config = ExecutorchBackendConfig(layer_names=False)
    for target in ("xnnpack", "ethos-u85-256"):
        result = compile_for("mobile", target, "int8", config=config)
        assert not read_layers(Runtime.get().load_program(result.program.buffer).program)
        for data in (result.program.buffer, result.program.twin or b""):
            assert b"features" not in data and b"classifier" not in data
