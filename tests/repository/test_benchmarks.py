"""The benchmark's protocol: an engine in its own process, asked through a pipe."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgewright.llm.checkpoint import open_checkpoint
from edgewright.llm.compile import compile_checkpoint
from edgewright.llm.vocabulary import Vocabulary, read_vocabulary
from edgewright.runtime import Runtime
from tests.cli.cli import GOLDEN, recorded
from tests.llm.tiny_model import tiny_model_bytes
from tests.support.language_models import RecordedModel, gguf_of

SERVE = Path(__file__).parents[2] / "benchmarks" / "peers" / "serve.py"


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_an_engine_answers_with_times(tmp_path: Path) -> None:
    (x,), (expected,) = recorded("linear_fp32_portable")
    np.save(tmp_path / "x.npy", x)
    command = [sys.executable, SERVE, "edgewright", GOLDEN / "linear_fp32_portable.pte", tmp_path / "x.npy", "1"]
    done = subprocess.run(
        list(map(str, command)), input="3\n1 2\n", capture_output=True, text=True, timeout=600, check=True
    )
    facts, *answers = map(json.loads, done.stdout.splitlines())
    assert np.allclose(facts["logits"], expected.reshape(-1), rtol=1e-5)
    assert [len(answer["times"]) for answer in answers] == [3, 1]
    assert all(answer["peak_mb"] > 1 and answer["cpu"] >= 0 for answer in answers)


def test_an_engine_that_is_not_there_ends(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(1, np.float32))
    command = [sys.executable, str(SERVE), "litert", "missing.tflite", str(tmp_path / "x.npy"), "1"]
    done = subprocess.run(command, input="1\n", capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode and not done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is Linux's ru_maxrss")
@pytest.mark.slow
def test_the_first_result_of_a_process(tmp_path: Path) -> None:
    model = GOLDEN / "linear_fp32_xnnpack.pte"
    command = [sys.executable, str(SERVE.parents[1] / "first_result.py"), str(model), "--rounds", "1"]
    command += ["--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert not done.returncode, done.stderr
    assert "compiling kernels" in done.stdout and "edgewright to first result" in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_a_language_model_answers_with_seconds(tmp_path: Path) -> None:
    path = tmp_path / "tiny.pte"
    path.write_bytes(tiny_model_bytes())
    command = [sys.executable, str(SERVE.with_name("serve_llm.py")), "edgewright", str(path), "1", "96"]
    requests = [{"prompt": 32}, {"generate": 4, "depth": 20}]
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=600, check=True)
    facts, *answers = map(json.loads, done.stdout.splitlines())
    assert facts["load_ms"] > 0 and facts["first_ms"] > 0 and len(answers) == 2
    assert all(answer["seconds"] > 0 and answer["resident_mb"] > 1 for answer in answers)


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_models_of_random_weights(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They compile, their 4-bit integers are those of the file, and a copy in Q4_0 is the same model."""
    monkeypatch.syspath_prepend(str(SERVE.parents[1]))
    models = importlib.import_module("llm_models")
    monkeypatch.setitem(models.SHAPES, "tiny", (family, 64, 64, 2, 4, 2, 96, 1e4))
    source, copy = tmp_path / "m.gguf", tmp_path / "copy.gguf"
    models.write_random("tiny", source)
    report = compile_checkpoint(source, tmp_path / "m.pte", vocabulary=Vocabulary())
    linear = report.parts["linear layers"]
    assert linear.carried_groups == linear.groups and linear.relative_error < 0.004  # scales are positive
    models.write_q4_0(source, copy)
    compile_checkpoint(copy, tmp_path / "copy.pte", vocabulary=Vocabulary())
    call = [np.array([[3, 1, 60]]), np.array([0])]
    first, second = (
        Runtime.get().load_program(tmp_path / f"{name}.pte").load_method("forward").execute(call)[0]
        for name in ("m", "copy")
    )
    assert np.isfinite(first).all() and np.linalg.norm(first - second) < 0.2 * np.linalg.norm(first)


@pytest.mark.parametrize("family", ["smollm2", "qwen2"])
def test_a_file_as_a_folder(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SERVE.parents[1]))
    models = importlib.import_module("llm_models")
    (tmp_path / "m.gguf").write_bytes(gguf_of(RecordedModel(family)))
    models.write_folder(tmp_path / "m.gguf", tmp_path / "folder")
    first, second = (open_checkpoint(tmp_path / name) for name in ("m.gguf", "folder"))
    assert first.config == second.config and set(first.tensors) == set(second.tensors)
    for name in first.tensors:
        np.testing.assert_array_equal(first.load(name), second.load(name))
    assert read_vocabulary(first).tokenizer == read_vocabulary(second).tokenizer
