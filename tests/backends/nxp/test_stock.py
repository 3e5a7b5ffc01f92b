"""Our delegates and stock's, for the same models and the same stand-in of NXP's converter: the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from edgewright import read_program
from edgewright.backends.nxp import sdk
from tests.backends.nxp.lowered import Lowered
from tests.backends.nxp.stock_models import MODELS

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stock")
    paths = os.pathsep.join((str(HERE / "standin"), str(ROOT)))
    subprocess.run(
        [sys.executable, str(HERE / "stock_flow.py"), str(folder)], check=True, capture_output=True, timeout=600,
        env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    return folder


@pytest.fixture
def _standin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(HERE / "standin"))
    yield
    for name in [n for n in sys.modules if n.startswith(sdk.PACKAGE)]:
        del sys.modules[name]


@pytest.mark.slow
@pytest.mark.usefixtures("_standin")
@pytest.mark.parametrize("name", MODELS)
def test_blobs_and_compile_specs_are_stocks(name: str, stock: Path) -> None:
    kind, shapes, options = MODELS[name]
    torch.manual_seed(0)
    inputs = tuple(torch.randn(s) for s in shapes)
    program = read_program(Lowered(kind(), inputs, simulate_only=False, **options).buffer)
    (delegate,) = [d for plan in program.execution_plan for d in plan.delegates]
    assert delegate.id == "NeutronBackend"
    assert bytes(program.blob(delegate)) == (stock / f"{name}.bin").read_bytes()
    specs = "\n".join(f"{s.key}={bytes(s.value).decode()}" for s in delegate.compile_specs or ())
    assert specs == (stock / f"{name}.txt").read_text()
