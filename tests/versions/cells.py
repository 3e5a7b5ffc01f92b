"""One cell of the matrix: a fresh environment of one Python and one torch, the wheel in it, its demo and a part of the
tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

from tests.compose.campaign import ROOT, commit
from tests.interop.stock_releases.cuda_stubs import write_stubs
from tests.interop.stock_releases.environments import CPU_INDEX

PYTHON = ("3.10", "3.11", "3.12", "3.13", "3.14")
TORCH = ("2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")  # the last of each minor release
# What depends on torch or on Python, from the model to each backend's program. Tests that compare with ExecuTorch are
# left out: its wheel admits a single torch.
PART = (
    "tests/api/test_compile.py",
    "tests/backends/ethos_u/test_end_to_end.py",
    "tests/backends/nxp/test_example.py",
    "tests/backends/qualcomm/test_flow.py",
    "tests/backends/samsung/test_flow.py",
    "tests/backends/xnnpack/test_quantizer.py",
    "tests/frontend/test_export.py",
    "tests/frontend/test_prepare.py",
    "tests/quantize/test_preparation.py",
)
LEFT_OUT = (
    "tests/backends/nxp/test_example.py::test_with_and_without_the_sdk",  # the stand-in for the SDK needs LiteRT
    "tests/backends/xnnpack/test_quantizer.py::test_models_in_several_precisions_run",
)
# What a release of torch cannot export itself; later ones do.
TORCH_LIMITS = {
    "2.11.0": (
        # a copy of a view of a channels-last tensor, in a quantized model that is exported again
        "tests/backends/nxp/test_example.py::test_operators_left_out_channels_last_and_reports",
        # heads that are split and merged, of dynamic length
        "tests/frontend/test_prepare.py::test_metadata_is_what_the_operator_gives[dynamic_views]",
    ),
    "2.12.1": ("tests/frontend/test_prepare.py::test_metadata_is_what_the_operator_gives[dynamic_views]",),
}
EXTRAS = "compile,ethos-u,qualcomm"
# Packages that have no wheel for some Python, and what needs them: the tests of the backend, and those of every target.
_BACKENDS = {"onnxruntime-qnn": "tests/backends/qualcomm/", "ethos-u-vela": "tests/backends/ethos_u/"}
_EVERY_TARGET = "tests/api/test_compile.py"
TOOLS = ("hypothesis", "pytest")
PASSED, FAILED, ABSENT = "passed", "failed", "not published"
_CUDA = ("nvidia-", "cuda-", "triton")
_NOT_PUBLISHED = "No matching distribution found for torch=="
_SECONDS = 3600  # a step that takes longer hangs


@dataclass(frozen=True)
class Outcome:
    """What became of a cell; ``detail`` names the failed tests, or ends with what the failed step printed."""

    python: str
    torch: str
    outcome: str
    tests: int = 0
    skipped: int = 0
    detail: str = ""
    packages: str = ""
    commit: str = ""


class StepError(Exception):
    """A step of a cell failed, with the end of what it printed."""


def find_interpreter(release: str, given: dict[str, Path]) -> Path | None:
    """A Python of a minor release: the one given, one of pyenv's, or the one on the path."""
    if release in given:
        return given[release]
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    if found := sorted(root.glob(f"versions/{release}.*/bin/python")):
        return found[-1]
    on_path = shutil.which(f"python{release}")  # pyenv's is a script, which needs a version to be chosen
    return None if on_path is None else Path(on_path)


def build_wheel(folder: Path) -> Path:
    """The wheel of the sources as they are."""
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT])
    return next(folder.glob("*.whl"))


def run_cell(interpreter: Path, release: str, torch: str, wheel: Path, work: Path) -> Outcome:
    """Make the environment in ``work``, run everything, and remove it."""
    cell = _Cell(work / f"python{release}-torch{torch}")
    packages = ""
    try:
        cell.make(interpreter, torch)
        packages = cell.install(wheel)
        cell.demo()
        tests, skipped, failed = cell.tests(choose(packages), TORCH_LIMITS.get(torch, ()))
    except StepError as error:
        kind = ABSENT if _NOT_PUBLISHED in str(error) else FAILED
        return Outcome(release, torch, kind, detail=str(error)[-600:], packages=packages, commit=commit())
    finally:
        shutil.rmtree(cell.folder, ignore_errors=True)
    return Outcome(
        release, torch, FAILED if failed else PASSED, tests, skipped, "; ".join(failed)[:2000], packages, commit()
    )


def choose(packages: str) -> list[str]:
    """The tests for an environment with these packages."""
    missing = tuple(tests for name, tests in _BACKENDS.items() if f"{name}==" not in packages)
    return [name for name in PART if not name.startswith((*missing, _EVERY_TARGET) if missing else ())]


class _Cell:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        scripts = folder / "environment" / ("Scripts" if sys.platform == "win32" else "bin")
        self.python, self.command = scripts / "python", scripts / "edgewright"

    def make(self, interpreter: Path, torch: str) -> None:
        """A virtual environment with torch: the CPU build, or one without CUDA's packages."""
        shutil.rmtree(self.folder, ignore_errors=True)
        _run([interpreter, "-m", "venv", "--without-pip", self.folder / "environment"])
        try:
            index = os.environ.get("TORCH_INDEX", CPU_INDEX)
            self._pip("install", "--no-deps", f"torch=={torch}", "--index-url", index, "--retries", "0")
        except StepError:
            self._pip("install", "--no-deps", f"torch=={torch}")
        code = "import sysconfig; print(sysconfig.get_path('purelib'))"
        packages = Path(_run([self.python, "-c", code]).strip())
        (metadata,) = packages.glob("torch-*.dist-info/METADATA")
        lines = metadata.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if not line.startswith(tuple(f"Requires-Dist: {name}" for name in _CUDA))]
        metadata.write_text("".join(kept), encoding="utf-8")
        if sys.platform == "linux":
            write_stubs(packages / "torch" / "lib")

    def install(self, wheel: Path) -> str:
        """The wheel and what it requires; the versions of what matters."""
        self._pip("install", f"{wheel}[{EXTRAS}]", *TOOLS)
        listed = self._pip("freeze").splitlines()
        names = ("torch==", "torchao==", "numpy==", "llvmlite==", "onnxruntime-qnn==", "ethos-u-vela==")
        version = _run([self.python, "--version"]).strip()
        return ", ".join([version, *(line for line in listed if line.lower().startswith(names))])

    def demo(self) -> None:
        _run([self.command, "demo"], cwd=self.folder, env=self._environment())

    def tests(self, chosen: list[str], limits: tuple[str, ...] = ()) -> tuple[int, int, list[str]]:
        """The number of tests that ran, of those that were skipped, and the names of those that failed."""
        sources = self.folder / "sources"  # away from the package's: the wheel is what is tested
        for name in ("examples", "tests"):
            shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", sources)
        report = self.folder / "tests.xml"
        command = [self.python, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}"]
        try:
            left_out = [f"--deselect={name}" for name in (*LEFT_OUT, *limits)]
            _run([*command, *left_out, *chosen], cwd=sources, env=self._environment())
        except StepError:
            if not report.exists():
                raise
        return _counts(report)

    def _pip(self, *arguments: object) -> str:
        """This interpreter's pip, for the environment: one pip installs for all of them."""
        quiet = ["--quiet", "--no-compile"] if arguments[0] == "install" else []
        return _run([sys.executable, "-m", "pip", "--python", self.python, arguments[0], *quiet, *arguments[1:]])

    def _environment(self) -> dict[str, str]:
        return {**_environment(), "EDGEWRIGHT_CACHE": str(self.folder / "cache")}


def _counts(report: Path) -> tuple[int, int, list[str]]:
    cases = list(ElementTree.parse(report).iter("testcase"))
    skipped = sum(case.find("skipped") is not None for case in cases)
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    return len(cases) - skipped, skipped, failed


def _environment() -> dict[str, str]:
    """This process's, without what leads to other packages: pip would find the sources installed."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "EDGEWRIGHT"))}


def _run(command: list[object], cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    words, env = [str(word) for word in command], env or _environment()
    try:
        done = subprocess.run(words, cwd=cwd, env=env, stdout=-1, stderr=-2, text=True, check=False, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StepError(f"{' '.join(words)[:200]}: {error}") from error
    if done.returncode:
        raise StepError(f"{' '.join(words)[:200]} ended with {done.returncode}: {done.stdout}")
    return str(done.stdout)
