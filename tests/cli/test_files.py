"""Commands on files: ``size``, ``diff``, ``strip``, ``bundle``, ``profile``, ``bench``, ``completion``."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from edgewright.cli import COMMANDS
from edgewright.formats import read_program
from edgewright.runtime import Runtime
from tests.cli.cli import GOLDEN, Cli, recorded
from tests.support import golden
from tests.support.programs import require

LINEAR, CONV = GOLDEN / "linear_fp32_portable.pte", GOLDEN / "conv_relu_fp32_xnnpack.pte"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with a manifest, source lines and a delegate."""
    from edgewright.cli import main

    path = tmp_path_factory.mktemp("built") / "net.pte"
    spec = "tests.api.models:net"
    assert main(["compile", spec, "--backend", "xnnpack", "-o", str(path), "--emit-stacktrace", "--quiet"]) == 0
    return path


@pytest.mark.parametrize("path", [LINEAR, CONV, GOLDEN / "mutable_buffer.pte"], ids=lambda p: p.stem)
def test_the_parts_are_the_whole(cli: Cli, path: Path) -> None:
    facts = json.loads(cli("size", path, "--json").out)
    assert sum(facts["parts"].values()) == facts["bytes"] == path.stat().st_size
    assert all(count >= 0 for count in facts["parts"].values())


def test_size(cli: Cli) -> None:
    result = cli("size", LINEAR, "--top", "1")
    assert result.code == 0
    assert "1 more" in result.out
    assert "memory to run" in result.out
    assert cli("size", GOLDEN / "mlp_portable_weights.ptd").code == 2


def test_diff(cli: Cli, tmp_path: Path) -> None:
    same = tmp_path / "same.pte"
    shutil.copy(LINEAR, same)
    assert "the files are identical" in cli("diff", LINEAR, same, "--exit-code").out
    assert cli("diff", LINEAR, CONV).code == 0
    result = cli("diff", LINEAR, CONV, "--exit-code", "--json")
    assert result.code == 9
    told = {(c["where"], c["what"]) for c in json.loads(result.out)["changes"]}
    assert ("forward", "delegate XnnpackBackend") in told
    assert ("forward", "inputs") in told
    assert "once" in cli("diff", LINEAR, CONV).out


def test_diff_sees_weights(cli: Cli, tmp_path: Path) -> None:
    data = bytearray(LINEAR.read_bytes())
    data[-1] ^= 1  # of the last constant
    (tmp_path / "other.pte").write_bytes(data)
    result = cli("diff", LINEAR, tmp_path / "other.pte", "--exit-code")
    assert result.code == 9
    assert "different data of the same size" in result.out


def test_strip(cli: Cli, built: Path, tmp_path: Path) -> None:
    path = tmp_path / "small.pte"
    result = cli("strip", built, "-o", path, "--json")
    facts = json.loads(result.out)
    assert facts["removed"] == ["edgewright.manifest", "edgewright.layers", "source lines of forward"]
    assert facts["after"] == path.stat().st_size < facts["before"] == built.stat().st_size
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    before, after = (Runtime.get().load_program(p).load_method("forward").execute([x])[0] for p in (built, path))
    assert np.array_equal(before, after)
    assert "removed: nothing" in cli("strip", path, "-o", tmp_path / "again.pte").out
    assert cli("strip", built, "-o", tmp_path / "m.txt").code == 2


@pytest.mark.parametrize("kept", ["manifest", "layers"])
def test_strip_may_keep_parts(cli: Cli, built: Path, tmp_path: Path, kept: str) -> None:
    option = {"manifest": "--keep-manifest", "layers": "--keep-layer-names"}[kept]
    assert cli("strip", built, "-o", tmp_path / "m.pte", option).code == 0
    keys = [item.key for item in read_program(tmp_path / "m.pte").named_data or ()]
    assert [key for key in keys if key.startswith("edgewright.")] == [f"edgewright.{kept}"]


@pytest.mark.parametrize("name", sorted(p.stem for p in GOLDEN.glob("*.pte") if "handmade" not in p.stem))
def test_stripped_files_give_what_they_gave(cli: Cli, tmp_path: Path, name: str) -> None:
    path = tmp_path / "m.pte"
    assert cli("strip", GOLDEN / f"{name}.pte", "-o", path, "--quiet").code == 0
    first, second = (read_program(p) for p in (golden.path(name), path))
    assert [p.name for p in first.execution_plan] == [p.name for p in second.execution_plan]
    for one, two in zip(first.execution_plan, second.execution_plan, strict=True):
        for a, b in zip(one.delegates, two.delegates, strict=True):
            assert bytes(first.blob(a)) == bytes(second.blob(b))
    before, after = (Runtime.get().load_program(p, golden.data(name)) for p in (golden.path(name), path))
    for case in golden.cases(name) if name in golden.RECORDED else ():
        found = [program.load_method(case.method).execute(case.inputs) for program in (before, after)]
        for one, two in zip(*found, strict=True):
            np.testing.assert_array_equal(one, two)


def test_bundle_and_verify(cli: Cli, tmp_path: Path) -> None:
    inputs, outputs = recorded("linear_fp32_portable")
    np.savez(tmp_path / "x.npz", in0=inputs[0])
    np.savez(tmp_path / "y.npz", out0=outputs[0])
    np.savez(tmp_path / "bad.npz", out0=outputs[0] + 1)
    np.savez(tmp_path / "odd.npz", out0=np.zeros(7, np.float32))
    x, path = tmp_path / "x.npz", tmp_path / "m.bpte"
    assert json.loads(cli("bundle", LINEAR, "--inputs", x, "--inputs", x, "-o", path, "--json").out)["cases"] == 2
    assert cli("verify", path).code == 0
    assert cli("bundle", LINEAR, "--inputs", x, "--expected", tmp_path / "y.npz", "-o", path).code == 0
    assert cli("verify", path).code == 0
    assert cli("bundle", LINEAR, "--inputs", x, "--expected", tmp_path / "bad.npz", "-o", path).code == 0
    assert cli("verify", path).code == 9
    assert cli("bundle", LINEAR, "--inputs", x, "--expected", tmp_path / "odd.npz", "-o", path).code == 7
    assert cli("bundle", LINEAR, "--inputs", x, "-o", tmp_path / "m.pte").code == 2
    assert cli("bundle", LINEAR, "--inputs", x, "--inputs", x, "--expected", tmp_path / "y.npz", "-o", path).code == 2


def test_profile(cli: Cli, tmp_path: Path) -> None:
    result = cli(
        "profile", LINEAR, "--repeat", "3", "--etdump", tmp_path / "p.etdp", "--chrome-trace", tmp_path / "t.json"
    )
    assert result.code == 0
    assert "median of 3" in result.out
    assert cli("verify", tmp_path / "p.etdp", "--quiet").code == 0
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    facts = json.loads(cli("profile", LINEAR, "--repeat", "2", "--json").out)
    assert facts["runs"] == 2
    assert sum(row["share"] for row in facts["instructions"]) == pytest.approx(1.0)
    assert cli("profile", LINEAR, "--repeat", "0").code == 2


def test_bench(cli: Cli) -> None:
    (facts,) = json.loads(cli("bench", LINEAR, "--seconds", "0.05", "--json").out)
    assert facts["runs"] >= 3
    assert 0 < facts["fastest"] <= facts["median"] <= facts["p90"]
    assert "Edgewright" in cli("bench", LINEAR, "--seconds", "0.01").out
    assert cli("bench", LINEAR, "--seconds", "0").code == 2


def complete(script: str, *words: str) -> list[str]:
    bash = require("bash", "it runs the completion script")
    line = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _edgewright; echo ${{COMPREPLY[@]}}"
    done = subprocess.run([bash, "-c", f"{script}\n{line}"], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_bash_completes(cli: Cli) -> None:
    script = cli("completion", "bash").out
    assert complete(script, "edgewright", "comp") == [c for c in COMMANDS if c.startswith("comp")]
    assert complete(script, "edgewright", "bench", "--sec") == ["--seconds"]
    assert complete(script, "edgewright", "compile", "m:f", "--target", "imx") == ["imxrt700"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells(cli: Cli, shell: str) -> None:
    out = cli("completion", shell).out
    assert all(command in out for command in COMMANDS)
    assert "ethos-u55-128" in out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_ends_with_examples(cli: Cli, command: str) -> None:
    _, found, examples = cli(command, "--help").out.partition("examples:")
    assert found
    assert f"edgewright {command}" in examples


def test_run_and_verify_as_json(cli: Cli) -> None:
    facts = json.loads(cli("run", CONV, "--json", "--quiet").out)
    assert facts["coverage"] == "XnnpackBackend (XNNPACK (any Arm or x86 CPU)): 1 of 1 instruction"
    assert facts["outputs"][0]["name"] == "out0"
    assert json.loads(cli("verify", LINEAR, "--json").out)["runs_here"] == ["forward"]
    bundle = json.loads(cli("verify", GOLDEN / "linear_relu.bpte", "--json").out)
    assert bundle["passed"] is True
    assert bundle["cases"][0]["compared"] >= 1
    assert json.loads(cli("verify", GOLDEN / "mlp_portable_weights.ptd", "--json").out)["format"] == "ptd"


def test_bench_says_that_it_measures_an_emulator(cli: Cli, tmp_path: Path) -> None:
    import edgewright as ew
    from tests.api.models import calls, net

    for target, emulated in (("ethos-u55-128", True), ("xnnpack", False)):
        path = tmp_path / f"{target}.pte"
        ew.compile(net(), calls(1)[0], target, quantize="int8", calibration=calls(4), check=False).save(path)
        shown = cli("bench", path, "--seconds", "0.01").out
        assert ("Edgewright, emulator" in shown) == emulated
        assert ("ethos-u55-128 simulated: an emulator's times, not the device's" in shown) == emulated
        (facts,) = json.loads(cli("bench", path, "--seconds", "0.01", "--json").out)
        assert facts["simulates"] == (["ethos-u55-128 simulated"] if emulated else [])
