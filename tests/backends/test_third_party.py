"""A backend is a folder or an installed package: four rows give partitioner, quantizer, page and tests, every
command knows it, and its dialect is compiled."""

from __future__ import annotations

import json
import logging
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
from edgewright.backends import discover, find_partitioner, find_quantizer, forget_backends, load_backend
from edgewright.backends.registry import find_dialect, installed_backends
from edgewright.cli import doctor
from edgewright.cli.demo import default_targets
from edgewright.compat.finder import installed
from edgewright.compat.table import table
from edgewright.engine import make_plan
from edgewright.errors import FormatError, MissingDataError, UsageError
from edgewright.formats.twin_reader import read_twin
from edgewright.formats.twin_writer import write_twin
from edgewright.ir.graph import Graph
from edgewright.quantize.recipes import symmetric_config
from edgewright.runtime import Runtime
from tests.cli.cli import Cli
from tests.support.rows import check_row

PAGE = (Path(__file__).parents[2] / "docs" / "adding-a-backend.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
INFO, OPS, DIALECT, DELEGATE, USE = BLOCKS
ENTRY_POINTS = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)


def write_package(folder: Path, info: str = INFO) -> None:
    folder.mkdir()
    (folder / "__init__.py").write_text(info)
    (folder / "ops.py").write_text(OPS)
    (folder / "dialect.py").write_text(DIALECT)
    (folder / "delegate.py").write_text(DELEGATE)


def install(path: Path, monkeypatch: pytest.MonkeyPatch, info: str = INFO) -> None:
    """Install the package with the entry point of the page, as pip does."""
    assert ENTRY_POINTS is not None
    write_package(path / "abacus_package", info)
    facts = path / "abacus-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: abacus\nVersion: 1.0\n")
    entry = ENTRY_POINTS[1].replace("project.entry-points.", "").replace('"', "")
    (facts / "entry_points.txt").write_text(entry)
    monkeypatch.syspath_prepend(str(path))


def forget(package: str) -> None:
    forget_backends()
    for name in [n for n in sys.modules if n == package or n.startswith(f"{package}.")]:
        del sys.modules[name]


@pytest.fixture(params=["folder", "entry point"])
def abacus(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The backend in a folder of backends, or in a package that was installed."""
    forget_backends()
    if request.param == "folder":
        write_package(tmp_path / "abacus")
        monkeypatch.setattr(edgewright.backends, "__path__", [*edgewright.backends.__path__, str(tmp_path)])
        package = "edgewright.backends.abacus"
    else:
        install(tmp_path, monkeypatch)
        package = "abacus_package"
    assert discover()["abacus"].package == package
    yield package
    forget(package)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(6, 6), torch.nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.one(x)) + x
        return torch.sigmoid(self.two(y))


class Rooted(Net):
    """A square root, which core has no operator for, between operators that it has."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.sqrt(torch.relu(self.one(x)))
        return torch.sigmoid(self.two(y))


class Spec(Net):
    """For the command line, which finds the example inputs here."""

    def example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.ones(3, 6),)


def run(exported: Any, x: torch.Tensor) -> tuple[Any, Any]:
    manager = to_edge_transform_and_lower(exported, partitioner=[find_partitioner("abacus")()])
    program = manager.to_executorch()
    method = Runtime.get().load_program(program.buffer, twin=program.twin).load_method("forward")
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
    assert "find_quantizer" in text and "Quantizes the operators below" in text
    docs.main([str(tmp_path / "pages")])
    assert "| `executorch.backends.abacus.BACKEND` |" in (tmp_path / "pages" / "names.md").read_text()
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
        "SqrtConfig": ("sqrt",),
    }


# ----------------------------------------------------------------------------------------------------------- dialect


def compiled(module: torch.nn.Module, x: torch.Tensor) -> Any:
    exported = torch.export.export(module.eval(), (x,))
    return to_edge_transform_and_lower(exported, partitioner=[find_partitioner("abacus")()]).to_executorch()


def twin_of(program: Any) -> Graph:
    (graph,) = read_twin(program.twin).values()
    return graph


def test_its_graphs_are_compiled(abacus: str) -> None:
    graph = twin_of(compiled(Rooted(), torch.randn(3, 6)))
    dialect = find_dialect("abacus")
    assert dialect is not None and type(dialect).__module__ == f"{abacus}.dialect"
    assert [op.kind for op in graph.ops] == ["abacus.LINEAR", "abacus.RELU", "abacus.SQRT", "abacus.LINEAR"]
    steps = make_plan(graph, threads=1, numerics=dialect.numerics).steps
    assert [step.label for step in steps if step.python is not None] == ["abacus.SQRT"]
    assert {"linear", "clamp"} <= {step.label for step in steps if step.python is None}


@pytest.mark.parametrize("engine", ["native", "reference"])
def test_its_numbers_are_those_of_its_references(abacus: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEWRIGHT_ENGINE", engine)
    torch.manual_seed(0)
    program, x = compiled(Rooted(), torch.randn(3, 6)), torch.randn(3, 6).numpy()
    method = Runtime.get().load_program(program.buffer, twin=program.twin).load_method("forward")
    dialect = find_dialect("abacus")
    assert dialect is not None
    (expected,) = dialect.execute(twin_of(program), [x])
    np.testing.assert_allclose(method.execute([x])[0], 1 / (1 + np.exp(-expected)), 1e-5, 1e-6)


def test_a_twin_that_is_wrong_is_rejected(abacus: str) -> None:
    program = compiled(Rooted(), torch.randn(3, 6))
    graph = twin_of(program)
    graph.ops[2].outputs[0].shape = (3, 7)  # type: ignore[union-attr]
    damaged = write_twin(dict.fromkeys(read_twin(program.twin), graph))
    rule = r"ops\[2\] abacus.SQRT.*results: must have the shapes \[\(3, 6\)\]; got \[\(3, 7\)\]"
    with pytest.raises(FormatError, match=rule):
        Runtime.get().load_program(program.buffer, twin=damaged).load_method("forward")


def test_without_its_twin_a_program_does_not_run_here(abacus: str) -> None:
    program = compiled(Net(), torch.randn(3, 6))
    with pytest.raises(MissingDataError, match=r"Abacus blob .* has no host twin.*machine does not read its cards"):
        Runtime.get().load_program(program.buffer).load_method("forward")


# --------------------------------------------------------------------------------------------------------- commands


def test_targets(abacus: str, cli: Cli) -> None:
    (found,) = json.loads(cli("targets", "abacus", "--json").out)
    assert found == {
        "target": "abacus", "backend": "abacus", "about": "Abacus", "files": "simulated", "missing": ["Bead tools"],
    }  # fmt: skip
    assert "abacus" in cli("completion", "bash").out


def test_doctor(abacus: str, cli: Cli) -> None:
    found = {f["what"]: f for f in json.loads(cli("doctor", "--json").out)["findings"]}
    assert (found["Bead tools"]["state"], found["Bead tools"]["fix"]) == ("not installed", "pip install bead-tools")
    required = cli("doctor", "--target", "abacus")
    assert required.code == 6 and "1 to fix: Bead tools" in required.out
    names = [name for name in found if name.startswith("backend ")]
    assert names == (["backend abacus"] if abacus == "abacus_package" else [])
    if names:
        assert (found["backend abacus"]["version"], found["backend abacus"]["state"]) == ("1.0", "ok")


def test_demo(abacus: str, cli: Cli) -> None:
    assert default_targets() == ["xnnpack", "ethos-u55-128", "sm8550", "e9955", "imxrt700", "abacus"]
    result = cli("demo", "--target", "abacus", "--images", "1", "--json")
    report = json.loads(result.out)["targets"]["abacus"]
    assert result.code == 0 and report["backend"] == "abacus" and report["metric"] == 1.0


def test_compile_run_and_disasm(abacus: str, cli: Cli, tmp_path: Path) -> None:
    model = tmp_path / "m.pte"
    done = cli("compile", "tests.backends.test_third_party:Spec", "--target", "abacus", "-o", str(model))
    assert done.code == 0, done.err
    (facts,) = json.loads(cli("disasm", str(model), "--json").out)
    assert (facts["backend"], facts["target"], facts["operators"]) == ("AbacusBackend", "abacus", 4)
    assert [line.split(" = ")[1].split("(")[0] for line in facts["text"].splitlines() if " = " in line] == [
        "abacus.LINEAR", "abacus.RELU", "abacus.ADD", "abacus.LINEAR",
    ]  # fmt: skip
    (method,) = json.loads(cli("inspect", str(model), "--json").out)["methods"]
    (delegate,) = method["delegates"]
    assert (delegate["description"], delegate["available"]) == ("AbacusBackend (Abacus)", True)
    assert cli("verify", str(model)).code == 0
    assert "AbacusBackend (Abacus)" in cli("run", str(model)).out


def test_names_of_executorch(abacus: str, cli: Cli, tmp_path: Path) -> None:
    with installed():
        from executorch.backends.abacus import BACKEND

        assert BACKEND is load_backend("abacus")
    assert table().absent["executorch.backends"].endswith("nxp, abacus")
    script = tmp_path / "script.py"
    script.write_text("from executorch.backends.abacus import BACKEND\n")
    assert f"+from {abacus}.ops import BACKEND" in cli("migrate", str(script)).out


def test_it_is_gone_without_its_folder() -> None:
    with pytest.raises(UsageError, match=r"backend 'abacus': must be one of .*xnnpack"):
        find_partitioner("abacus")
    assert "executorch.backends.abacus" not in table().names


# ---------------------------------------------------------------------------------------------------- broken packages


@pytest.mark.parametrize(
    ("info", "problem"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("INFO = 'abacus_package.ops'", "must be a BackendInfo; got str"),
        ("", "AttributeError: module 'abacus_package' has no attribute 'INFO'"),
    ],
)
def test_a_broken_package_is_reported_and_left_out(
    info: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    forget_backends()
    install(tmp_path, monkeypatch, info)
    try:
        with caplog.at_level(logging.WARNING, "edgewright.backends"):
            assert set(discover()) == {"ethos_u", "nxp", "qualcomm", "samsung", "xnnpack"}
            discover()
        (warning,) = [r.getMessage() for r in caplog.records if r.name == "edgewright.backends"]
        assert warning.startswith("entry point abacus = abacus_package:INFO cannot be used: ") and problem in warning
        (found,) = [f for f in doctor.diagnose() if f.what == "backend abacus"]
        assert found.state == "broken" and problem in found.purpose and found.fix
        (each,) = installed_backends()
        assert each.info is None
    finally:
        forget("abacus_package")


@pytest.mark.parametrize(
    ("reference", "rule"),
    [
        (".ops:TABLE", r"must refer to a name that abacus_package\.ops has; got \.ops:TABLE"),
        ("ops", r"must refer to a name; got ops\s+Write"),
        (".ops:BOTH", r"\.ops:BOTH must be a Backend; got tuple"),
    ],
)
def test_a_wrong_reference_is_named(reference: str, rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_backends()
    install(tmp_path, monkeypatch, INFO.replace(".ops:BACKEND", reference))
    try:
        with pytest.raises(UsageError, match=rf"backend 'abacus': {rule}"):
            load_backend("abacus")
    finally:
        forget("abacus_package")
