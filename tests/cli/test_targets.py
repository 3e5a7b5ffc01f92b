"""``edgewright compile --target``, ``explain``, ``compare``, ``targets`` and ``doctor``."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewright.cli import doctor
from edgewright.cli.doctor import satisfies
from tests.api.models import calls
from tests.cli.cli import Cli, Outcome

NET, WIDE = "tests.api.models:net", "tests.api.models:wide"
INT8 = ("--quantize", "int8", "--calibrate", "tests.api.models:stream")
TWO = ("--target", "xnnpack", "--target", "ethos-u55-128")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    np.savez(tmp_path / "calib.npz", in0=np.concatenate([c.numpy() for c in calls()]))
    return tmp_path / "calib.npz"


def test_several_targets(cli: Cli, tmp_path: Path, data: Path) -> None:
    out = tmp_path / "out"
    result = cli("compile", NET, *TWO, "--quantize", "int8", "--calibrate", data, "-o", out, "--bundle",
                 "--report", tmp_path / "r.json")  # fmt: skip
    assert (result.code, result.err) == (0, "")
    assert "net, 6 calibration inputs, 2 held out" in result.out
    assert "SQNR: on 2 held-out inputs" in result.out
    assert sorted(p.name for p in out.glob("*.pte")) == ["net.ethos-u55-128.pte", "net.xnnpack.pte"]
    for target in ("xnnpack", "ethos-u55-128"):
        assert cli("verify", out / f"net.{target}.bpte", "--quiet").code == 0
        assert cli("run", out / f"net.{target}.pte", "--quiet").code == 0
    facts = json.loads((tmp_path / "r.json").read_text())
    assert facts["targets"]["xnnpack"]["file"] == str(out / "net.xnnpack.pte")


def test_one_target_to_a_file_as_json(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "m.pte"
    result = cli("compile", NET, "--target", "xnnpack", "-o", path, "--json")
    facts = json.loads(result.out)["targets"]["xnnpack"]
    assert facts["file"] == str(path)
    assert facts["bytes"] == path.stat().st_size
    assert facts["sqnr"] > 100


def test_a_metric_is_shown_for_the_model_and_each_target(cli: Cli, tmp_path: Path) -> None:
    metric = "tests.api.models:mean_of_first"
    two = ("--target", "xnnpack", "--target", "ethos-u55-128")
    result = cli("compile", NET, *two, *INT8, "--metric", metric, "-o", tmp_path)
    assert result.code == 0
    original = float(re.findall(r"mean_of_first of the original: (\S+)", result.out)[0])
    shown = re.findall(r"^(xnnpack|ethos-u55-128) .* (\S+)$", result.out, re.MULTILINE)
    assert [name for name, _ in shown] == ["xnnpack", "ethos-u55-128"]
    assert all(float(value) == pytest.approx(original, abs=0.01) for _, value in shown)
    assert "SQNR" not in result.out


def fails(cli: Cli, tmp_path: Path, *options: object) -> Outcome:
    path = tmp_path / "m.pte"
    result = cli("compile", NET, "--target", "xnnpack", *INT8, "-o", path, *options)
    assert not path.exists()
    return result


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (("--min-sqnr", "90"), 14, "must have an SQNR of at least 90 dB"),
        (("--min-sqnr", "1", "--evaluate", "0"), 14, "got nothing: not measured: there are no inputs to measure on"),
        (("--metric", "tests.api.models:mean_of_first", "--min-metric", "9"), 14, "must be at least 9"),
        (("--max-memory", "10"), 5, "must need at most 10 B"),
        (("--metric", "tests.api.models:NET"), 2, "has no 'NET'"),
        (("--backend", "xnnpack"), 2, "a target names its backend"),
        (("--emit", "tflite"), 2, "goes with --backend"),
        (("--mean", "1"), 2, "goes with --std"),
        (("--samples", "0"), 2, "must be 1 or more"),
        (("--evaluate", "-1"), 2, "must be 0 or more"),
        (("--report", "absent/r.json"), 3, "absent/r.json: cannot be written: No such file or directory"),
        (("--quantize", "int3"), 2, "must be a preset of xnnpack"),
    ],
)
def test_conditions_have_codes_of_their_own(cli: Cli, tmp_path: Path, options: Any, code: int, told: str) -> None:
    result = fails(cli, tmp_path, *options)
    assert result.code == code
    assert told in result.err


@pytest.mark.parametrize(
    ("place", "reason"), [("a_file", "Not a directory"), ("a_file/out", "Not a directory"), ("d.pte", "Is a directory")]
)
def test_where_nothing_can_be_written_no_model_is_loaded(cli: Cli, tmp_path: Path, place: str, reason: str) -> None:
    (tmp_path / "a_file").write_text("mine")
    (tmp_path / "d.pte").mkdir()
    result = cli("compile", "no_such_module:net", "--target", "xnnpack", "-o", tmp_path / place)
    assert (result.code, result.out) == (3, "")
    assert f"{place}: cannot be written: {reason}" in result.err


SPOILED = ("tests.api.models:spoiled", "--target", "xnnpack", *INT8)


def test_a_poor_result_is_red_and_strict_makes_it_an_error(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.pte"
    assert cli("compile", *SPOILED, "-o", path, "--strict").code == 14
    assert not path.exists()
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = cli("compile", *SPOILED, "-o", path)
    assert shown.code == 0 and path.exists()
    assert "\x1b[31mxnnpack: poor: SQNR " in shown.out
    command = re.search("`(edgewright compare [^`]*)` finds the layers", shown.out)
    assert command is not None
    found = cli(*shlex.split(command[1])[1:])  # complete: it runs as it is printed
    assert found.code == 0, found.err
    after = re.search(r"then: (edgewright compile .*)", found.out)
    assert after is not None and shlex.join(INT8[2:]) in after[1]
    right = cli("compile", NET, "--target", "xnnpack", *INT8, "-o", path, "--strict")
    assert right.code == 0 and "poor:" not in right.out


def test_what_results_are_measured_on(cli: Cli, tmp_path: Path) -> None:
    common = ("compile", NET, "--target", "xnnpack", *INT8, "-o", tmp_path / "m.pte")
    one = cli(*common, "--samples", "1", "--evaluate", "0", "--json")
    assert json.loads(one.out)["targets"]["xnnpack"]["sqnr"] is None
    other = cli(*common, "--evaluate", "tests.api.models:stream")
    assert "8 calibration inputs" in other.out and "SQNR: on 8 inputs" in other.out
    assert (
        "SQNR: on the example input alone" in cli("compile", NET, "--target", "xnnpack", "-o", tmp_path / "f.pte").out
    )


def test_a_quantized_model_beside_its_original(cli: Cli, tmp_path: Path) -> None:
    common = ("compile", "tests.api.models:quantized", "--target", "xnnpack", "-o", tmp_path / "m.pte")
    alone = cli(*common, "--calibrate", INT8[-1])
    assert alone.code == 0 and "not compared with a float model: it is quantized already" in alone.out
    strict = cli(*common, "--strict")
    assert strict.code == 14 and "it is quantized already, and there is no original" in strict.err
    beside = cli(*common, "--calibrate", INT8[-1], "--original", NET, "--strict", "--json")
    assert json.loads(beside.out)["targets"]["xnnpack"]["sqnr"] > 20


def test_a_wrong_file_is_not_written(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to compile check the same; the exit code is the check's own."""
    from edgewright.backends.xnnpack import XnnpackPartitioner
    from tests.api.test_check import flip_weights

    right = XnnpackPartitioner.lower

    def wrong(self: Any, group: Any) -> Any:
        for op in group.ops:
            if op.origin is not None and op.origin.module == "stem" and op.args.get("weight") is not None:
                flip_weights(op)
        return right(self, group)

    monkeypatch.setattr(XnnpackPartitioner, "lower", wrong)
    path = tmp_path / "m.pte"
    for how in (("--backend", "xnnpack"), ("--target", "xnnpack", *INT8)):
        result = cli("compile", NET, *how, "-o", path)
        assert result.code == 15 and "layer 'stem' (conv2d + relu)" in result.err
        assert not path.exists()
        assert cli("compile", NET, *how, "-o", path, "--no-check").code == 0
        path.unlink()


def test_too_little_delegated(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "m.pte"
    result = cli("compile", NET, "--target", "ethos-u55-128", "--require-delegated", "50%", "-o", path)
    assert result.code == 12
    assert "got 0.0%" in result.err
    assert not path.exists()


def test_a_target_that_fails_does_not_stop_the_others(cli: Cli, tmp_path: Path) -> None:
    result = cli(
        "compile", NET, "--target", "imxrt700", "--target", "xnnpack", *INT8, "-o", tmp_path, "--no-simulation"
    )
    assert result.code == 6
    assert "imxrt700: load: eiq_neutron_sdk" in result.err
    assert [p.name for p in tmp_path.iterdir()] == ["net.xnnpack.pte"]


@pytest.mark.parametrize(
    "option",
    ["--quantize=int8", "--recipe=r.toml", "--min-sqnr=3", "--evaluate=3", "--json", "--strict", "--original=a:b"],
)
def test_what_needs_a_target(cli: Cli, option: str) -> None:
    result = cli("compile", NET, "-o", "m.pte", option)
    assert result.code == 2
    assert "needs a --target" in result.err


def test_explain_opens_what_is_left(cli: Cli) -> None:
    result = cli("explain", WIDE, "--target", "xnnpack")
    assert result.code == 0
    lines = result.out.splitlines()
    assert any(line.endswith("odd  0 of 1") for line in lines)
    assert any("cumsum 'cumsum': xnnpack has no row for cumsum" in line for line in lines)
    assert "stem" not in result.out
    assert "stem  1 of 1" in cli("explain", WIDE, "--target", "xnnpack", "--all").out


def test_explain_as_json_and_without_calibration(cli: Cli) -> None:
    result = cli("explain", NET, "--target", "ethos-u55-128", "--quantize", "int8", "--json")
    (facts,) = json.loads(result.out)
    assert facts["coverage"]["macs"] == 1.0
    assert {m["module"] for m in facts["methods"]["forward"]["modules"]} == {"stem", "body", "fc"}


def test_explain_says_that_integers_are_wanted(cli: Cli) -> None:
    assert "try --quantize int8" in cli("explain", NET, "--target", "ethos-u55-128").out


def test_compare_and_raise(cli: Cli, tmp_path: Path) -> None:
    recipe, path = tmp_path / "r.toml", tmp_path / "m.pte"
    result = cli("compare", NET, "--target", "ethos-u55-128", *INT8, "--write-recipe", recipe, "--top", "2")
    assert (result.code, result.err) == (0, "")
    assert "more (--top" in result.out
    assert "to 16 bits: " in result.out
    assert '"higher"' in recipe.read_text()
    options = ("--target", "ethos-u55-128", "--calibrate", INT8[-1], "-o", path, "--json")
    plain = json.loads(cli("compile", NET, "--quantize", "int8", *options).out)["targets"]["ethos-u55-128"]
    raised = json.loads(cli("compile", NET, "--recipe", recipe, *options).out)["targets"]["ethos-u55-128"]
    assert raised["sqnr"] > plain["sqnr"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((*TWO, "--quantize", "int8"), "must be a single device"),
        (("--target", "xnnpack"), "no quantization error"),
        (("--quantize", "int8"), "must name a device"),
        (("--target", "xnnpack", *INT8, "--evaluate", "0"), "1 or more"),
    ],
)
def test_compare_wants_one_target_and_integers(cli: Cli, options: tuple[str, ...], told: str) -> None:
    result = cli("compare", NET, *options)
    assert result.code == 2
    assert told in result.err


# ------------------------------------------------------------------------------------------------ targets, doctor


def test_targets(cli: Cli) -> None:
    facts = json.loads(cli("targets", "--json").out)
    names = [f["target"] for f in facts]
    assert {"xnnpack", "ethos-u85-2048", "sm8750", "imxrt700"} <= set(names)
    assert len(names) == len(set(names))
    neutron = next(f for f in facts if f["target"] == "imxrt700")
    assert (neutron["files"], neutron["missing"]) == ("simulated", ["NXP's converter"])
    assert next(f["files"] for f in facts if f["target"] == "xnnpack") == "device"
    assert "a16w8" in cli("targets", "ethos-u55-32", "--presets").out
    assert cli("targets", "cortex-m5").out.endswith("(`edgewright compile --emit object`): cortex-m55\n")
    assert cli("targets", "tpu").code == 2


def test_doctor(cli: Cli) -> None:
    result = cli("doctor", "--json")
    facts = json.loads(result.out)
    assert (result.code, facts["ok"]) == (0, True)
    found = {f["what"]: f for f in facts["findings"]}
    assert found["torch"]["state"] == found["Vela"]["state"] == "ok"
    assert found["NXP's converter"]["fix"].startswith("pip install")
    assert "state" in cli("doctor").out


def test_doctor_looks_for_simulators_and_the_cross_compiler(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("FVP_Corstone_SSE-300_Ethos-U55", "FVP_Corstone_SSE-320", "arm-none-eabi-g++", "nsys")
    monkeypatch.setenv("PATH", str(tmp_path))
    for state in ("not installed", "ok"):
        found = {f["what"]: f for f in json.loads(cli("doctor", "--json").out)["findings"]}
        assert {name: found[name]["state"] for name in names} == dict.fromkeys(names, state)
        assert all(found[name]["fix"] or state == "ok" for name in names)
        for name in names:
            (tmp_path / name).write_text("#!/bin/sh\n")
            (tmp_path / name).chmod(0o755)


def test_doctor_fails_for_a_target_that_cannot_be_made(cli: Cli) -> None:
    assert cli("doctor", "--target", "ethos-u55-128", "--quiet").code == 0
    result = cli("doctor", "--target", "imxrt700")
    assert result.code == 6
    assert "1 to fix: NXP's converter" in result.out


def test_doctor_tells_wrong_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "supported_range", lambda package: ">=99" if package == "torchao" else "")
    found = {f.what: f for f in doctor.diagnose()}
    assert found["torchao"].state == "wrong version"
    assert found["torchao"].fix == "pip install 'torchao>=99'"
    assert found["torch"].state == "ok"


@pytest.mark.parametrize(
    ("found", "wanted", "right"),
    [("1.2.3", ">=1.2,<2", True), ("2.0", "<2", False), ("1.10", ">1.9", True), ("1.5.1", "==1.5.1", True),
     ("1.5.2", "==1.5.1", False), ("3rc1", ">=3", True), ("", ">=1", True), ("1", "~=2", True)],
)  # fmt: skip
def test_ranges(found: str, wanted: str, right: bool) -> None:
    assert satisfies(found, wanted) is right


@pytest.mark.parametrize(
    ("words", "first", "count"), [("snapdragon", "sc8380xp", 11), ("8 gen 3", "sm8650", 1), ("exynos 2600", "e9965", 1)]
)
def test_targets_by_product(cli: Cli, words: str, first: str, count: int) -> None:
    listed = [t["target"] for t in json.loads(cli("targets", words, "--json").out)]
    assert (listed[0], len(listed)) == (first, count)


def test_targets_are_sorted(cli: Cli) -> None:
    listed = [t["target"] for t in json.loads(cli("targets", "--json").out)]
    ethos = [name for name in listed if name.startswith("ethos-u85")]
    assert ethos == [f"ethos-u85-{n}" for n in (128, 256, 512, 1024, 2048)]
    snapdragons = [name for name in listed if name.startswith("sm8")]
    assert snapdragons == sorted(snapdragons)
    assert cli("targets", "sm8540").err.endswith(
        "Did you mean sm8550 or sm8350 or sm8450? `edgewright targets` lists them all.\n"
    )
