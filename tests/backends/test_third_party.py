"""A backend is a folder: three rows in one give partitioner, quantizer, page and tests, and nothing else changes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import edgewright.backends
from edgewright import docs, to_edge_transform_and_lower
from edgewright.backends import discover, find_partitioner, find_quantizer, forget_delegates, load_backend
from edgewright.errors import UsageError
from edgewright.quantize.recipes import symmetric_config
from edgewright.runtime import Runtime
from tests.support.rows import check_row

PAGE = (Path(__file__).parents[2] / "docs" / "adding-a-backend.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
OPS, DELEGATE, USE = BLOCKS


def write_package(folder: Path) -> None:
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "ops.py").write_text(OPS)
    (folder / "delegate.py").write_text(DELEGATE)


@pytest.fixture(params=["folder", "entry point"])
def abacus(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The backend in a folder of backends, or in a package that was installed."""
    forget_delegates()
    if request.param == "folder":
        write_package(tmp_path / "abacus")
        monkeypatch.setattr(edgewright.backends, "__path__", [*edgewright.backends.__path__, str(tmp_path)])
        package = "edgewright.backends.abacus"
    else:
        write_package(tmp_path / "abacus_package")
        facts = tmp_path / "abacus-1.0.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: abacus\nVersion: 1.0\n")
        (facts / "entry_points.txt").write_text("[edgewright.backends]\nabacus = abacus_package\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        package = "abacus_package"
    assert discover()["abacus"] == package
    yield package
    forget_delegates()
    for name in [n for n in sys.modules if n.split(".ops")[0].startswith(package)]:
        del sys.modules[name]


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(6, 6), torch.nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.one(x)) + x
        return torch.sigmoid(self.two(y))


def run(exported: Any, x: torch.Tensor) -> tuple[Any, Any]:
    manager = to_edge_transform_and_lower(exported, partitioner=[find_partitioner("abacus")()])
    program = manager.to_executorch()
    method = Runtime.get().load_program(program.buffer).load_method("forward")
    return manager.partition_reports["forward"], method.execute([x.numpy()])[0]


def test_the_page_shows_what_it_prints(abacus: str, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    exec(USE, {})
    assert capsys.readouterr().out in PAGE


def test_partitioner(abacus: str) -> None:
    x = torch.randn(3, 6)
    exported = torch.export.export(Net().eval(), (x,))
    report, result = run(exported, x)
    assert [v.operator for v in report.delegated] == ["linear", "relu", "add", "linear"]
    assert report.groups == 1
    assert [v.rejections for v in report.rejected] == [["abacus has no row for sigmoid"]]
    np.testing.assert_allclose(result, exported.module()(x).detach().numpy(), 1e-5, 1e-6)
    assert find_partitioner("abacus").__name__ == "AbacusPartitioner"


def test_quantizer(abacus: str) -> None:
    x = torch.randn(3, 6)
    captured = torch.export.export(Net().eval(), (x,)).module()
    prepared = prepare_pt2e(captured, find_quantizer("abacus")().set_global(symmetric_config(False, False, False)))
    for seed in range(4):
        torch.manual_seed(seed)
        prepared(torch.randn(3, 6))
    prepared(x)
    quantized = torch.export.export(convert_pt2e(prepared), (x,))
    report, result = run(quantized, x)
    assert {"linear", "relu", "add"} <= {v.operator for v in report.delegated}
    np.testing.assert_allclose(result, quantized.module()(x).detach().numpy(), atol=0.02)


def test_page(abacus: str, tmp_path: Path) -> None:
    text = docs.page("abacus")
    for shown in ("# Abacus", "Beads on wires.", "weight and bias must be constant", "`AddConfig`", "static_quant",
                  "element type must be float32", "AbacusPartitioner = find_partitioner('abacus')"):  # fmt: skip
        assert shown in text
    docs.main([str(tmp_path / "pages")])
    assert {p.name for p in (tmp_path / "pages" / "backends").iterdir()} == {f"{name}.md" for name in discover()}


@pytest.mark.sample(2)
@pytest.mark.parametrize("op", ["linear", "relu", "add"])
def test_rows(abacus: str, op: str) -> None:
    outcome = check_row("abacus", op)
    assert outcome.taken
    assert all(outcome.refused)


def test_configs(abacus: str) -> None:
    assert {n: c.operators for n, c in load_backend("abacus").configs().items()} == {
        "AddConfig": ("add",),
        "LinearConfig": ("linear",),
        "ReLUConfig": ("relu",),
    }


def test_it_is_gone_without_its_folder() -> None:
    with pytest.raises(UsageError, match=r"backend 'abacus': must be one of .*xnnpack"):
        find_partitioner("abacus")
