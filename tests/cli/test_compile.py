"""``edgewright compile``: models named every way, every option, every way to fail."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from edgewright.cli.compile import parse_runtime
from edgewright.demo import MODEL, WEIGHTS
from edgewright.errors import UsageError
from edgewright.formats import read_program
from edgewright.formats.bpte import read_bundled
from edgewright.formats.executorch_releases import RUNTIMES, split_runtime
from edgewright.frontend.export import export
from edgewright.lowering.kernel_resolution import kernel_set
from edgewright.program import manifest
from edgewright.runtime import Runtime
from edgewright.runtime.verify_bundle import verify_bundle
from edgewright.units import size
from tests.cli.cli import Cli
from tests.cli.terminal import run_on_terminal
from tests.support.stock import stock

MODELS = """
import torch
from torch.export import Dim

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc = torch.nn.Linear(4, 3)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.fc(x)).relu()

class Attribute(Net):
    example_inputs = (torch.ones(2, 4),)

class Method(Net):
    def example_inputs(self):
        return (torch.ones(2, 4),)

class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.full((2,), 10.0))

    def forward(self, x):
        self.total.add_(x)
        return self.total + 0

class Branch(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x
        return -x

class Bad(Net):
    def example_inputs(self):
        raise KeyError("no data here")

built = Attribute()

def pair():
    return Net(), (torch.ones(2, 4),)

def listed():
    return Net(), [torch.ones(2, 4)]

def single():
    return Net(), torch.ones(2, 4)

def named():
    return Net(), {"x": torch.ones(2, 4)}

def dynamic():
    return Net(), (torch.ones(2, 4),), {"x": {0: Dim("n", max=16)}}

def exported():
    return torch.export.export(Net().eval(), (torch.ones(2, 4),))

def counter():
    return Counter(), (torch.tensor([1.0, 2.0]),)

def branch():
    return Branch(), (torch.ones(2),)

def bare():
    return Net()

def three():
    return 3

def failing():
    raise RuntimeError("the disk is full")

def needs(size):
    return Net()

class Names:
    net = staticmethod(pair)
"""


def line(code: str) -> str:
    """Where the models' source says ``code``."""
    number = 1 + next(i for i, text in enumerate(MODELS.splitlines()) if text.lstrip().startswith(code))
    return f"models.py:{number}"


X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "broken.py").write_text("import torch\nraise ValueError('not today')\n")
    (tmp_path / "needy.py").write_text("import not_a_module\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # the command puts the folder there
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    for name in ("models", "broken", "needy"):
        sys.modules.pop(name, None)


def expected(x: np.ndarray) -> np.ndarray:
    import models

    with torch.no_grad():
        return models.Net().eval()(torch.from_numpy(x)).numpy()


def outputs(path: str, *inputs: np.ndarray, data: str | None = None) -> list[np.ndarray]:
    return Runtime.get().load_program(path, data).load_method("forward").execute(list(inputs))


# -------------------------------------------------------------------------------------------------- naming a model

SPECS = [
    "models:Attribute", "models:Method", "models:built", "models:pair", "models:listed", "models:single",
    "models:named", "models:dynamic", "models:exported", "models:Names.net",
]  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize("spec", SPECS)
def test_every_form_of_spec(cli: Cli, folder: Path, spec: str) -> None:
    result = cli("compile", spec, "-o", "m.pte")
    assert (result.code, result.err) == (0, "")
    np.testing.assert_allclose(outputs("m.pte", X)[0], expected(X), rtol=1e-6)
    ours = stock().run((folder / "m.pte").read_bytes(), "forward", [X])
    np.testing.assert_allclose(ours[0], expected(X), rtol=1e-5)


def test_dynamic_shapes_are_kept(cli: Cli, folder: Path) -> None:
    assert cli("compile", "models:dynamic", "-o", "m.pte").code == 0
    for rows in (1, 7, 16):
        x = np.ones((rows, 4), np.float32)
        np.testing.assert_allclose(outputs("m.pte", x)[0], expected(x), rtol=1e-6)


def test_pt2(cli: Cli, folder: Path) -> None:
    sys.path.insert(0, str(folder))
    import models

    torch.export.save(models.exported(), "m.pt2")
    assert cli("compile", "m.pt2", "-o", "m.pte", "--bundle").code == 0
    np.testing.assert_allclose(outputs("m.pte", X)[0], expected(X), rtol=1e-6)
    assert all(r.passed and r.compared == 1 for r in verify_bundle("m.bpte", atol=1e-6))


# ------------------------------------------------------------------------------------------------------ the summary


def test_summary(cli: Cli, folder: Path) -> None:
    result = cli("compile", "models:pair", "-o", "m.pte")
    count = (folder / "m.pte").stat().st_size
    assert f"wrote m.pte ({size(count)})" in result.out
    plan = read_program("m.pte").execution_plan[0]
    calls = len(plan.chains[0].instructions)
    assert f"forward: {calls} instructions, {len(plan.operators or ())} kernels; planned memory" in result.out
    assert "delegates: none" in result.out
    for stage in ("import torch", "load", "export", "lower", "plan and emit", "write", "total"):
        assert re.search(rf"^{stage} +[\d.]+ [mµ]?s$", result.out, re.MULTILINE)
    assert re.search(r"^peak memory \d[\d.,]* [MG]iB$", result.out, re.MULTILINE)


def test_quiet(cli: Cli, folder: Path) -> None:
    result = cli("compile", "models:pair", "-o", "m.pte", "--quiet")
    assert (result.code, result.out, result.err) == (0, "", "")


def test_stages_on_a_terminal(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    code, text = run_on_terminal(monkeypatch, "compile", "models:pair", "-o", "m.pte")
    assert code == 0
    assert b"import torch" in text and b"export" in text and b"lower" in text
    assert "\x1b" not in capfd.readouterr().out


# -------------------------------------------------------------------------------------------------------- options


def test_the_same_model_gives_the_same_bytes(cli: Cli, folder: Path) -> None:
    for name in ("a.pte", "b.pte"):
        assert cli("compile", "models:pair", "-o", name).code == 0
    assert (folder / "a.pte").read_bytes() == (folder / "b.pte").read_bytes()


def test_every_runtime_can_be_chosen() -> None:
    for name in RUNTIMES:
        build, release = split_runtime(parse_runtime(name))
        assert kernel_set(name).name == f"{build}-{release}"


def test_a_runtime_that_is_not_known_is_an_error_with_the_nearest(cli: Cli, folder: Path) -> None:
    outcome = cli("compile", "models:pair", "-o", "m.pte", "--runtime", "android-1.3.1")
    assert outcome.code == UsageError.exit_code
    assert "Did you mean android-1.3?" in outcome.err


def test_manifest(cli: Cli, folder: Path) -> None:
    for runtime, recorded in (("android", "android-1.0"), ("android-1.5", "android-1.5")):
        cli("compile", "models:pair", "-o", "m.pte", "--runtime", runtime)
        found = manifest.read(read_program("m.pte"))
        assert found is not None and found["runtime"] == recorded
    cli("compile", "models:pair", "-o", "m.pte", "--no-manifest")
    assert manifest.read(read_program("m.pte")) is None


def test_stacktrace(cli: Cli, folder: Path) -> None:
    cli("compile", "models:pair", "-o", "m.pte")
    assert read_program("m.pte").execution_plan[0].chains[0].stacktrace is None
    cli("compile", "models:pair", "-o", "m.pte", "--emit-stacktrace")
    traces = read_program("m.pte").execution_plan[0].chains[0].stacktrace
    frames = [frame for trace in traces or () for frame in trace.items]
    assert any(f.filename.endswith("models.py") and "self.fc(x)" in f.context for f in frames)


@pytest.mark.parametrize(("options", "name"), [([], "m"), (["shared"], "shared")])
def test_external_constants(cli: Cli, folder: Path, options: list[str], name: str) -> None:
    result = cli("compile", "models:pair", "-o", "m.pte", "--external-constants", *options)
    assert result.code == 0
    assert f"wrote {name}.ptd" in result.out
    np.testing.assert_allclose(outputs("m.pte", X, data=f"{name}.ptd")[0], expected(X), rtol=1e-6)


def test_weights(cli: Cli, folder: Path) -> None:
    command = ("compile", "edgewright.demo.model:CifarNet", "-o", "m.pte", "--no-manifest")
    assert cli(*command, "--weights", WEIGHTS).code == 0
    assert (folder / "m.pte").read_bytes() == MODEL.read_bytes()


def test_bundle(cli: Cli, folder: Path) -> None:
    assert cli("compile", "models:dynamic", "-o", "m.pte", "--bundle").code == 0
    bundle = read_bundled("m.bpte")
    assert bytes(bundle.program) == (folder / "m.pte").read_bytes()
    np.testing.assert_allclose(bundle.suites["forward"][0].expected[0], expected(np.ones((2, 4), np.float32)))
    assert cli("verify", "m.bpte", "--atol", "1e-6").code == 0


def test_a_bundle_of_a_model_with_state(cli: Cli, folder: Path) -> None:
    """Running the model for the bundle must not reach the state that the program starts from."""
    assert cli("compile", "models:counter", "-o", "m.pte", "--bundle").code == 0
    assert read_bundled("m.bpte").suites["forward"][0].expected[0].tolist() == [11.0, 12.0]
    assert cli("verify", "m.bpte").code == 0


def test_max_memory(cli: Cli, folder: Path) -> None:
    assert cli("compile", "models:pair", "-o", "m.pte", "--max-memory", "1K").code == 0
    before = (folder / "m.pte").read_bytes()
    result = cli("compile", "models:pair", "-o", "m.pte", "--max-memory", "16", "--no-manifest")
    assert result.code == 5
    assert "method 'forward': must need at most 16 B (16 bytes) of memory; got" in result.err
    assert (folder / "m.pte").read_bytes() == before


# ------------------------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("spec", "code", "message"),
    [
        ("models", 2, "must be package.module:factory, or a .pt2 file"),
        ("models:", 2, "must be package.module:factory"),
        ("../models:pair", 2, "must be package.module:factory"),
        ("absent:pair", 2, "there is no module 'absent'"),
        ("models:absent", 2, "module 'models' has no 'absent'"),
        ("models.inner:pair", 2, "models.inner:pair: "),
        ("models:bare", 2, "needs example inputs; got Net"),
        ("models:three", 2, "must return an nn.Module with example_inputs"),
        ("models:needs", 2, "must be callable without arguments"),
        ("models:failing", 2, f'{line("raise RuntimeError")}: raise RuntimeError("the disk is full")'),
        ("models:Bad", 2, 'raise KeyError("no data here")'),
        ("broken:pair", 2, "raised ValueError: not today"),
        ("needy:pair", 2, "raised ModuleNotFoundError: No module named 'not_a_module'"),
        ("models:branch", 10, f"{line('if x.sum()')}: if x.sum() > 0: branches on the contents of a tensor"),
        ("absent.pt2", 3, "absent.pt2: cannot be opened"),
        ("bad.pt2", 4, "torch.export.load cannot read it"),
    ],
)
def test_failure(cli: Cli, folder: Path, spec: str, code: int, message: str) -> None:
    (folder / "bad.pt2").write_bytes(b"PK\x03\x04 not really")
    result = cli("compile", spec, "-o", "m.pte")
    assert (result.code, result.out) == (code, "")
    assert message in result.err
    assert "Traceback" not in result.err
    assert not (folder / "m.pte").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "m.bin"], "m.bin: must end in .pte"),
        (["-o", "m.pte", "--external-constants", "a/b"], "must be the name of a file"),
        (["-o", "m.pte", "--runtime", "toaster"], "--runtime: must be one of wheel, android"),
        (["-o", "m.pte", "--max-memory", "much"], "not a size"),
        ([], "-o: must name the output file"),
    ],
)
def test_wrong_options(cli: Cli, folder: Path, options: list[str], message: str) -> None:
    result = cli("compile", "models:pair", *options)
    assert result.code == 2
    assert message in result.err


def test_hostile_weights(cli: Cli, folder: Path) -> None:
    (folder / "w.safetensors").write_bytes(b"\xff" * 64)
    result = cli("compile", "models:pair", "-o", "m.pte", "--weights", "w.safetensors")
    assert result.code == 4
    assert "w.safetensors" in result.err


def test_where_it_cannot_be_written(cli: Cli, folder: Path) -> None:
    result = cli("compile", "no_such_module:pair", "-o", "absent/m.pte")
    said = "file: absent/m.pte: cannot be written: No such file or directory\n"
    assert (result.code, result.err) == (3, f"{said}  Make the folder first: mkdir -p 'absent'\n")


def test_an_operator_without_a_kernel(cli: Cli, folder: Path) -> None:
    (folder / "models.py").write_text(
        "import torch\n"
        "class Decompose(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return torch.linalg.eigvals(x)\n"
        "def pair():\n"
        "    return Decompose(), (torch.eye(3),)\n"
    )
    result = cli("compile", "models:pair", "-o", "m.pte")
    assert result.code == 11
    assert "models.py:4: return torch.linalg.eigvals(x)" in result.err


def test_without_torch(folder: Path) -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "from edgewright.cli import main\n"
        "sys.exit(main(['compile', 'models:pair', '-o', 'm.pte']))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 6
    assert "pip install 'edgewright[compile]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_public_names_without_torch() -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import edgewright\n"
        "try: edgewright.to_edge\n"
        "except edgewright.EdgewrightError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "to_edge: needs torch" in done.stdout
    assert "pip install 'edgewright[compile]'" in done.stdout


def test_the_public_export_is_ours() -> None:
    import edgewright

    assert edgewright.export is export
