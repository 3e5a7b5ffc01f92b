"""The benchmark's protocol: an engine in its own process, asked through a pipe."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cli.cli import GOLDEN, recorded

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
