"""``xnn_executor_runner`` and ``qnn_executor_runner``: the flags of tutorials work as they stand."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from edgewright.cli.runner import main
from edgewright.formats.etdump import read_etdump
from tests.cli.cli import GOLDEN, recorded

LINEAR = GOLDEN / "linear_fp32_portable.pte"


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["/usr/bin/qnn_executor_runner"])


@pytest.mark.parametrize("arguments", [[f"--model_path={LINEAR}"], ["--model_path", str(LINEAR)]])
def test_says_what_the_device_runner_says(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    said = [line.split("] ")[1] for line in lines]
    assert said[:3] == ["Method loaded.", "Inputs prepared.", "Model executed successfully."]
    assert f"Write etdump to etdump.etdp, Size = {(tmp_path / 'etdump.etdp').stat().st_size}" in said
    assert "edgewright:qnn_executor_runner]" in lines[0]


def test_lists_folders_and_profiles(tmp_path: Path) -> None:
    recorded("linear_fp32_portable")[0][0].tofile("x.raw")
    Path("list.txt").write_text("x.raw\ninput:=x.raw\n")
    flags = ["--input_list_path", "list.txt", "--output_folder_path=outputs", "--etdump_path", "p.etdp"]
    assert main([f"--model_path={LINEAR}", *flags, "--num_executions=2"]) == 0
    assert sorted(p.name for p in Path("outputs").iterdir()) == ["output_0_0.raw", "output_1_0.raw"]
    found = np.fromfile("outputs/output_1_0.raw", np.float32).reshape(2, 3)
    np.testing.assert_allclose(found, recorded("linear_fp32_portable")[1][0], rtol=1e-5, atol=1e-6)
    assert len(read_etdump("p.etdp").run_data or ()) == 4
    assert not (tmp_path / "etdump.etdp").exists()


def test_method_index_and_iteration(capsys: pytest.CaptureFixture[str]) -> None:
    model = f"--model_path={GOLDEN / 'multi_method.pte'}"
    assert main([model, "--iteration", "3"]) == 0  # method 0 is encode
    assert "3 inference(s)" in capsys.readouterr().out
    assert main([model, "--method_index", "8"]) == 2
    assert "must be 0..7 (encode, forward" in capsys.readouterr().err


@pytest.mark.parametrize(("flags", "code"), [(["--model_path=absent.pte"], 3), (["--modelpath=x"], 2), ([], 3)])
def test_failures(flags: list[str], code: int) -> None:
    assert main(flags) == code
    assert not Path("etdump.etdp").exists()


def test_external_data() -> None:
    weights = GOLDEN / "mlp_portable_weights.ptd"
    assert main([f"--model_path={GOLDEN / 'mlp_ptd_portable.pte'}", f"--data_path={weights}"]) == 0


def test_input_files_and_output_files() -> None:
    x, y = recorded("linear_fp32_portable")
    x[0].tofile("x.bin")
    flags = ["--inputs=x.bin", "--output_file", "out", "--print_output=none", "--warm_up=2", "--cpu_threads=1"]
    assert main([f"--model_path={LINEAR}", *flags]) == 0
    np.testing.assert_allclose(np.fromfile("out-0.bin", np.float32).reshape(2, 3), y[0], rtol=1e-5, atol=1e-6)


def test_what_is_printed_of_outputs(capsys: pytest.CaptureFixture[str]) -> None:
    printed = {}
    for flag in ("--print_output=none", "--print_output=summary", "--print_output=all", "--print_all_output"):
        assert main([f"--model_path={LINEAR}", flag]) == 0
        printed[flag] = capsys.readouterr().out
    assert "Output 0" not in printed["--print_output=none"] and "Output 0" in printed["--print_output=summary"]
    assert "[[" in printed["--print_output=all"] and "[[" not in printed["--print_output=summary"]
    assert "[[" in printed["--print_all_output"]


def test_methods_by_name_and_shapes_below_the_bound(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"--model_path={GOLDEN / 'multi_method.pte'}", "--method_name=forward"]) == 0
    model = f"--model_path={GOLDEN / 'mlp_dynshape_portable.pte'}"
    capsys.readouterr()
    assert main([model, "--input_shapes=3x32"]) == 0
    assert "float32[3, " in capsys.readouterr().out
    for text, rule in (("3x32,1", "an entry for each"), ("3x33", "must fit"), ("3by4", "sizes such as")):
        assert main([model, f"--input_shapes={text}"]) != 0
        assert rule in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--shared_buffer", "--server_mode=true", "--dump_intermediate_outputs"])
def test_what_only_a_phone_has(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"--model_path={LINEAR}", flag]) == 2
    assert "Leave it out" in capsys.readouterr().err
    assert main([f"--model_path={LINEAR}", f"{flag.partition('=')[0]}=false"]) == 0
