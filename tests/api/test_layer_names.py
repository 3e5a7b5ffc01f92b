"""Names of the model's modules wherever a person looks at a file: profiles, sizes, reports, for every backend."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from edgewright.engine.profile import Profile
from edgewright.formats.layer_table import read_layers
from edgewright.program.config import ExecutorchBackendConfig
from edgewright.runtime import Runtime
from tests.support.layered_models import MEANINGLESS, compile_for, make, modules_in
from tests.support.stock import stock

TARGETS = [
    ("xnnpack", None), ("xnnpack", "int8"), ("ethos-u85-256", "int8"), ("imxrt700", "int8"),
    ("e9955", "int8"), ("sm8650", "int8"),
]  # fmt: skip
CASES = [(model, *target) for model in ("mobile", "transformer") for target in TARGETS]
cases = pytest.mark.parametrize(
    ("model", "target", "quantize"), CASES, ids=[f"{m}-{t}-{q or 'float'}" for m, t, q in CASES]
)
sample = pytest.mark.sample("mobile-xnnpack-int8", "transformer-xnnpack-float", "mobile-imxrt700-int8")


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
    around = ("input", "output", "mean", "quantize", "dequantize")  # outside of any module
    assert not [p for p in parts if not modules_in(p.layer, network) and not p.layer.startswith(around)]
    some = {"mobile": ["features.1.conv.0.0", "classifier"], "transformer": ["layers.0.qkv", "layers.1.mlp.2", "head"]}
    assert {p.layer for p in parts}.issuperset(some[model])
    for row in profile.rows():
        assert modules_in(row.layer, network) or row.layer.startswith(around), row


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
