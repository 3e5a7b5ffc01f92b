"""The packages and tools that Edgewright uses: purpose of each, and how to install it."""

from __future__ import annotations

import mmap
import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path

from edgewright.errors import MissingError

OK, MISSING, WRONG, OPTIONAL = "ok", "missing", "wrong version", "not installed"
WRONG_FOLDER = "wrong folder"  # the folder that a variable names lacks the expected files
UNSET = "not set"


@dataclass(frozen=True)
class Need:
    """A package that a feature needs. ``extra``: the extra of Edgewright that installs it; "" if always installed.
    ``simulates``: without the package, files that run on this machine can still be compiled."""

    title: str
    package: str
    module: str
    purpose: str
    fix: str
    extra: str = ""
    simulates: bool = False


def _extra(title: str, package: str, module: str, purpose: str, extra: str) -> Need:
    return Need(title, package, module, purpose, f"pip install 'edgewright[{extra}]'", extra)


NUMPY = Need("numpy", "numpy", "numpy", "everything", "pip install --upgrade edgewright")
LLVMLITE = Need("llvmlite", "llvmlite", "llvmlite", "machine code for this CPU", "pip install --upgrade edgewright")
FLATBUFFERS = Need("flatbuffers", "flatbuffers", "flatbuffers", "reading and writing files",
                   "pip install --upgrade edgewright")  # fmt: skip
TORCH = _extra("torch", "torch", "torch", "compiling", "compile")
TORCHAO = _extra("torchao", "torchao", "torchao", "quantizing", "compile")
VELA = _extra("Vela", "ethos-u-vela", "ethosu", "programs for Ethos-U", "ethos-u")
TOSA = _extra("TOSA tools", "tosa-tools", "tosa_serializer", "programs for Ethos-U", "ethos-u")
QNN = _extra(
    "QNN", "onnxruntime-qnn", "onnxruntime_qnn", "programs for Qualcomm, and an emulator of its HTP", "qualcomm"
)
NEUTRON = Need(
    "NXP's converter", "eiq-neutron-sdk", "eiq_neutron_sdk", "programs for NXP's chips",
    "pip install --index-url https://eiq.nxp.com/repository eiq-neutron-sdk", simulates=True,
)  # fmt: skip
LITECORE = Need(
    "Samsung's AI LiteCore", "", "", "programs for Exynos chips",
    "get it at soc-developer.semiconductor.samsung.com (free account), set EXYNOS_AI_LITECORE_ROOT to its folder",
    simulates=True,
)  # fmt: skip
PILLOW = Need("Pillow", "pillow", "PIL", "calibrating with a folder of images", "pip install pillow")

BASE = (NUMPY, LLVMLITE, FLATBUFFERS)
NEEDS: dict[str, tuple[Need, ...]] = {
    "xnnpack": (TORCH,),
    "ethos_u": (TORCH, VELA, TOSA),
    "qualcomm": (TORCH, QNN),
    "samsung": (TORCH, LITECORE),
    "nxp": (TORCH, NEUTRON),
}


def detected_version(need: Need) -> str | None:
    """The installed version, or None."""
    if need is LITECORE:
        return _litecore()
    if find_spec(need.module) is None and _installed_version(need.package) is None:
        return None
    return _installed_version(need.package) or "installed"


def _litecore() -> str | None:
    from edgewright.backends.samsung import sdk

    try:
        litecore = sdk.find_sdk()
    except MissingError:  # the variable does not name the SDK's folder
        return None
    return None if litecore is None else str(litecore.root or "modules of ExecuTorch")


def _installed_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def supported_range(package: str) -> str:
    """The version range of a package in Edgewright's own metadata, or ''."""
    for line in _requirements():
        head = line.partition(";")[0].strip()
        bare = head.split("[")[0]
        for mark in ("<", ">", "=", "!", "~", " "):
            bare = bare.split(mark)[0]
        if bare.lower() == package.lower() and head[len(bare) :].strip():
            return head[len(bare) :].strip()
    return ""


def _requirements() -> list[str]:
    try:
        return requires("edgewright") or []
    except PackageNotFoundError:  # run from a folder, not installed
        return []


def satisfies(installed: str, supported: str) -> bool:
    """True if a version is in a range; specifiers other than plain comparisons are ignored.

    >>> satisfies("2.13.0+cpu", ">=2.11,<2.14"), satisfies("2.10.1", ">=2.11"), satisfies("installed", ">=1")
    (True, False, True)
    """
    compare: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
        ">=": lambda a, b: a >= b,
        "<=": lambda a, b: a <= b,
        "==": lambda a, b: a == b,
        "<": lambda a, b: a < b,
        ">": lambda a, b: a > b,
    }
    numbers = _numbers(installed)
    for part in filter(None, supported.split(",")):
        mark = next((m for m in compare if part.strip().startswith(m)), None)
        if mark is None or not numbers:
            continue
        limit = _numbers(part.strip()[len(mark) :])
        width = max(len(numbers), len(limit))
        padded = [n + (0,) * (width - len(n)) for n in (numbers, limit)]
        if not compare[mark](padded[0], padded[1]):
            return False
    return True


def _numbers(text: str) -> tuple[int, ...]:
    numbers = []
    for piece in text.strip().split("+")[0].split("."):
        digits = "".join(c for c in piece if c.isdigit())
        if not digits or not piece[0].isdigit():
            break
        numbers.append(int(digits))
    return tuple(numbers)


def machine() -> str:
    """Operating system, processor and number of cores."""
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"


def python_version() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def adb() -> str | None:
    return shutil.which("adb")


def qnn_release(library: Path) -> str:
    """The QNN release of a library, in the format that phones report; '' if unknown."""
    from edgewright.backends.qualcomm.emulator_server import release
    from edgewright.backends.qualcomm.libraries import find_build_id

    try:
        with open(library, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return release(find_build_id(data))
    except (OSError, ValueError):  # an empty file cannot be mapped
        return ""


def qnn_here() -> str:
    """The QNN release of the libraries in ``onnxruntime-qnn``."""
    spec = find_spec(QNN.module)
    return qnn_release(Path(spec.origin).parent / "libQnnHtp.so") if spec is not None and spec.origin else ""
