"""One folder for each release of ExecuTorch: its wheel, and the torch it was built for, without their dependencies.

``FOLDER/1.0.1/executorch`` and ``FOLDER/torch-2.9.1/torch`` precede the packages of this interpreter on the path of the
process that runs programs there. The folders are made once; a file ``complete`` says that one is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from tests.interop.stock_releases.cuda_stubs import write_stubs

# Releases, and the torch that each was built for: the two share no stable binary interface.
TORCH = {
    "1.0.0": "2.9.1",
    "1.0.1": "2.9.1",
    "1.1.0": "2.10.0",
    "1.2.0": "2.11.0",
    "1.3.1": "2.12.1",
    "1.4.0": "2.13.0",
    "1.4.1": "2.13.0",
    "1.5.0": "2.13.0",
    "1.5.1": "2.13.0",
}
# What their exporters quantize with; needed to make golden files only.
TORCHAO = {"1.0.0": "0.14.0", "1.0.1": "0.14.0", "1.1.0": "0.15.0", "1.2.0": "0.17.0", "1.3.1": "0.17.0"}
OLDEST, NEWEST = "1.0.0", "1.5.1"
VARIABLE = "EDGEWRIGHT_EXECUTORCH_RELEASES"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def default_folder() -> Path | None:
    """The folder that ``EDGEWRIGHT_EXECUTORCH_RELEASES`` names."""
    return Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None


def paths(folder: Path, release: str) -> list[Path]:
    """What precedes this interpreter's packages, for a release; makes what is missing."""
    if release == version("executorch"):
        return []
    return [make(folder, release), *_torch(folder, TORCH[release])]


def is_made(folder: Path | None, release: str) -> bool:
    """Whether a release is installed: running it downloads nothing."""
    if release == version("executorch"):
        return True
    return folder is not None and (folder / release / "complete").exists()


def exporter_paths(folder: Path, release: str) -> list[Path]:
    """``paths``, and the quantization library that the release's exporter was made for."""
    if release not in TORCHAO:
        return paths(folder, release)
    name = f"torchao-{TORCHAO[release]}"
    if not (folder / name / "complete").exists():
        _install(folder / name, f"torchao=={TORCHAO[release]}")
        (folder / name / "complete").touch()
    return [*paths(folder, release), folder / name]


def make(folder: Path, release: str) -> Path:
    """The folder of a release's wheel."""
    made = folder / release
    if not (made / "complete").exists():
        _install(made, f"executorch=={release}")
        # The wheels have no such file, and Python would join the package with the installed one.
        (made / "executorch" / "__init__.py").touch()
        (made / "complete").touch()
    return made


def _torch(folder: Path, wanted: str) -> list[Path]:
    """The folder of a torch; none if it is this interpreter's."""
    if version("torch").partition("+")[0] == wanted:
        return []
    made = folder / f"torch-{wanted}"
    if not (made / "complete").exists():
        try:
            index = os.environ.get("TORCH_INDEX", CPU_INDEX)
            _install(made, f"torch=={wanted}", "--index-url", index, "--retries", "0")
        except subprocess.CalledProcessError:  # other indexes have the CUDA build only, which loads CUDA's libraries
            _install(made, f"torch=={wanted}")
        write_stubs(made / "torch" / "lib")
        (made / "complete").touch()
    return [made]


def _install(target: Path, *arguments: str) -> None:
    shutil.rmtree(target, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), *arguments]
    subprocess.run(command, check=True)
