"""The default tier: compositions of fixed seeds, and every case that ever failed.

A failure names its unit and seed: ``python -m tests.compose shrink UNIT SEED`` gives the smallest one of its kind,
whose text belongs into ``cases/`` with the fix. New seeds are searched by ``python -m tests.compose --seconds N``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgewright.quantize.methods import METHODS
from tests.compose import campaign, outcome
from tests.compose.__main__ import main as command_line
from tests.compose.coverage import all_kernels, all_lowerings
from tests.compose.dialects import DIALECTS, generate
from tests.compose.draw import FAMILY
from tests.compose.names import Names
from tests.compose.replay import replay
from tests.compose.report import UNREACHED
from tests.compose.spec import Spec, load
from tests.engine.graphs import cpus

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))
FAMILIES = {"core": (0, 1, 2, 3), "varying": (4,), "tosa": (0,), "tflite": (0,), "qnn": (0,), "enn": (0,)}

MODELS = [("xnnpack", None, 1), ("xnnpack", "fp16", 2), ("xnnpack", "int8", 3), ("xnnpack", "dynamic", 4),
          ("xnnpack", "dynamic-w4", 5), ("ethos-u55-128", "int8", 2), ("imxrt700", "int8", 4), ("e9955", "int8", 5),
          ("sm8650", "int8", 3)]  # fmt: skip


@pytest.mark.parametrize(
    ("dialect", "family"),
    [(name, n) for name, numbers in FAMILIES.items() for n in numbers],
)
@pytest.mark.parametrize("half", [0, 1])
def test_native_is_the_reference(dialect: str, family: int, half: int) -> None:
    """Integers bit for bit, real numbers within the engine's bound, and nothing written beside arrays."""
    failures, drawn = [], 0
    count = FAMILY // 2
    start = family * FAMILY + half * count
    for seed in range(start, start + count):
        cpu = cpus()[seed % len(cpus())]
        spec = generate(dialect, seed)
        drawn += bool(spec.outputs)
        found = outcome.check(spec, cpu, quick=seed % 8 != 0) if spec.outputs else None
        if found is not None:
            failures.append(f"{dialect}:{cpu} {seed}: {found.kind}: {found.detail}")
    assert not failures, "\n".join(failures)
    assert drawn >= count - 2  # now and then nothing fits


_MORE_OBJECTS = {"x86-64-v3": 8000, "x86-64-v4": 8100, "cortex-m4": 8200, "cortex-m7": 8300, "cortex-m33": 8400,
                 "cortex-m55": 8500, "cortex-m85": 8600}  # fmt: skip
OBJECTS = [
    ("x86-64-v3", range(7000, 7010)),
    *(pytest.param(target, range(n, n + 40), marks=pytest.mark.slow) for target, n in _MORE_OBJECTS.items()),
]


@pytest.mark.parametrize(("target", "seeds"), OBJECTS)
def test_object_files(target: str, seeds: range) -> None:
    """Object files without a runtime, called here between guard pages or booted on boards, are the reference."""
    from tests.compose.object_check import check_object, missing_tool

    if missing_tool(target) or (target == "x86-64-v4" and "avx512" not in cpus()):
        pytest.skip("needs a tool or an instruction set")
    found = {seed: check_object(generate("core", seed), target) for seed in seeds if generate("core", seed).outputs}
    assert {seed: f for seed, f in found.items() if isinstance(f, outcome.Failure)} == {}
    assert sum(isinstance(f, str) for f in found.values()) <= len(seeds) // 5  # the others have no object file


def test_one_name_one_kernel() -> None:
    """Machine code is cached by kernels' names, for graphs of all dialects together."""
    names = Names()
    assert [found for seed in range(12) for name in DIALECTS for found in names.add(name, seed, cpus()[-1])] == []


@pytest.mark.parametrize(("target", "precision", "seed"), MODELS)
def test_models(target: str, precision: str | None, seed: int) -> None:
    """Native == reference == stock's runtime, for two calls in a row, and near torch."""
    from tests.compose.model_check import check_model
    from tests.compose.model_draws import generate_model

    found = check_model(generate_model(seed, target, precision))
    assert found.failure is None
    assert not found.skipped


def test_methods_and_training_are_drawn() -> None:
    from tests.compose.model_draws import generate_model

    options = [generate_model(seed, "sm8650", "a16w8").options for seed in range(150)]
    assert {name for o in options for name in o.get("methods", ())} == set(METHODS)
    assert any(o.get("train") for o in options)
    assert all(not {"methods", "train"} & {*generate_model(seed, "xnnpack", None).options} for seed in range(8))


def test_a_method_that_spoils_the_model_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file computes what the quantized graph does, and neither is the model."""
    from edgewright.quantize import bias_correction
    from edgewright.quantize.layers import set_bias
    from tests.compose.model_check import check_model

    step = {"op": "linear", "in": [0], "channels": 4, "seed": 0}
    options = {"target": "xnnpack", "quantize": "int8", "methods": ["bias"]}
    spec = Spec("model", 0, [{"type": "f32", "shape": [1, 8]}], [step], [1], options)
    assert check_model(spec).failure is None

    def spoil(samples: Any) -> None:
        set_bias(samples.layer, samples.bias + 1)

    monkeypatch.setattr(bias_correction, "correct_bias", spoil)
    found = check_model(spec).failure
    assert found is not None and found.kind == "methods lose accuracy"


def test_all_dialects_are_drawn() -> None:
    assert set(FAMILIES) == set(DIALECTS)


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_cases(path: Path) -> None:
    assert replay(load(path)) == ""


def test_reasons_for_what_is_never_reached_name_paths_that_exist() -> None:
    paths = {*(f"lowering {n}" for n in all_lowerings()), *(f"kernel {n}" for n in all_kernels())}
    assert set(UNREACHED) <= paths


def test_a_seed_draws_the_same_graph_again() -> None:
    for dialect in DIALECTS:
        assert generate(dialect, 5).text() == generate(dialect, 5).text()


def test_search_of_no_units_names_them() -> None:
    with pytest.raises(SystemExit, match=r"--units: must be a part of a unit's name: core:avx512.*; got nope"):
        command_line(["--seconds", "1", "--units", "nope"])


def test_search_without_the_emulator_says_what_installs_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(campaign, "FOLDER", tmp_path)
    with pytest.raises(SystemExit, match=r"core:neon: Arm's Python under qemu is missing; tests/support/aarch64.sh"):
        command_line(["--seconds", "1", "--units", "core:neon"])
