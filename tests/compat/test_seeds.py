"""The code of ExecuTorch's pages runs under ``edgewright compat``, byte for byte, after what they leave undefined."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from edgewright.errors import MissingError
from edgewright.formats.pte_reader import read_program
from edgewright.runtime import Runtime
from tests.backends.samsung.standin_sdk import build_sdk
from tests.compat import torchvision
from tests.compat.seeds import PAGES, blocks
from tests.support.stock import stock

PREAMBLES = Path(__file__).parent / "preambles"
ROOT = Path(__file__).parents[2]


def run(
    page: str, folder: Path, *arguments: str, parts: Sequence[int] | None = None, more: str = "", code: int = 0,
    options: Sequence[str] = (), **environment: str,
) -> str:  # fmt: skip
    """Run a page's blocks (or some, ``parts``) as one script; what it printed. ``more`` looks at what they made."""
    preamble = (PREAMBLES / f"{page}.py").read_text()
    found = blocks(page)
    chosen = found if parts is None else [found[i] for i in parts]
    assert all(block in PAGES[page] for block in chosen)
    print(f"--- preamble of {page}\n{preamble}")
    script = folder / "page.py"
    script.write_text("\n".join([preamble, *chosen, more]))
    done = subprocess.run(
        [sys.executable, "-m", "edgewright", "compat", *options, str(script), *arguments], cwd=folder, timeout=600,
        text=True, capture_output=True, check=False, env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def delegates(path: Path) -> list[str]:
    (plan,) = read_program(path).execution_plan
    return [d.id for d in plan.delegates]


def test_every_page_has_a_preamble_that_defines_nothing_the_page_does() -> None:
    assert {path.stem for path in PREAMBLES.glob("*.py")} >= set(PAGES)
    for page in PAGES:
        preamble = (PREAMBLES / f"{page}.py").read_text()
        assert "executorch" not in preamble
        assert not defined(preamble) & {name for block in blocks(page) for name in defined(block)}


def defined(source: str) -> set[str]:
    """Names that a script gives a value, a function or a class, outside of functions and classes."""
    found = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return found


@pytest.mark.slow
def test_xnnpack(tmp_path: Path) -> None:
    run("xnnpack", tmp_path)
    path = tmp_path / "mv2_xnnpack.pte"
    assert delegates(path) == ["XnnpackBackend"]
    torch.manual_seed(0)
    model = torchvision.mobilenet_v2(weights=torchvision.MobileNet_V2_Weights.DEFAULT).eval()
    x = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        wanted = model(x).numpy()
    bound = 1e-4 * np.abs(wanted).max()
    (ours,) = Runtime.get().load_program(path).load_method("forward").execute([x.numpy()])
    assert np.abs(ours - wanted).max() <= bound
    (theirs,) = stock().run(path.read_bytes(), "forward", [x.numpy()])
    assert np.abs(theirs - wanted).max() <= bound


@pytest.mark.slow
def test_ethos_u(tmp_path: Path) -> None:
    run("ethos_u", tmp_path)
    program = read_program(tmp_path / "mv2_arm_ethos_u55.pte")
    (plan,) = program.execution_plan
    assert [d.id for d in plan.delegates] == ["EthosUBackend"]
    assert {o.key for o in plan.operators or ()} == {
        "quantized_decomposed::quantize_per_tensor.out",
        "quantized_decomposed::dequantize_per_tensor.out",
    }


def test_nxp(tmp_path: Path) -> None:
    told = run("nxp", tmp_path, more="print(sum('quantize' in str(n.target) for n in m.graph.nodes))")
    assert int(told) >= 8


@pytest.mark.slow
def test_samsung_without_its_compiler(tmp_path: Path) -> None:
    told = run("samsung", tmp_path, code=MissingError.exit_code, EXYNOS_AI_LITECORE_ROOT="")
    assert "page.py:24: et_program = to_edge_transform_and_lower(" in told
    assert "Exynos AI LiteCore: is not installed" in told
    assert not (tmp_path / "mv2_xnnpack.pte").exists()  # the name that the page has


@pytest.mark.slow
def test_samsung_for_this_machine_only(tmp_path: Path) -> None:
    run("samsung", tmp_path, options=["--simulate-only"], EXYNOS_AI_LITECORE_ROOT="")
    assert delegates(tmp_path / "mv2_xnnpack.pte") == ["EnnBackend"]
    method = Runtime.get().load_program(tmp_path / "mv2_xnnpack.pte").load_method("forward")
    assert method.execute([np.ones((1, 3, 224, 224), np.float32)])[0].shape == (1, 10)


@pytest.mark.slow
def test_samsung_with_a_stand_in_for_its_compiler(tmp_path: Path) -> None:
    sdk = build_sdk(tmp_path / "sdk")
    run("samsung", tmp_path, EXYNOS_AI_LITECORE_ROOT=str(sdk))
    assert delegates(tmp_path / "mv2_xnnpack.pte") == ["EnnBackend"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ptq", pytest.param("qat", marks=pytest.mark.slow), "none"])
def test_qualcomm(kind: str, tmp_path: Path) -> None:
    """The page's second step is optional, and left out for floating point."""
    told = run("qualcomm", tmp_path, kind, parts=[0, 2, 3] if kind == "none" else None)
    assert told.endswith("Model successfully exported to custom_model_qnn.pte\n")
    assert delegates(tmp_path / "custom_model_qnn.pte") == ["QnnBackend"]
