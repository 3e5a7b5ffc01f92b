"""``edgewright doctor``: what is installed, what is missing, and the exact command that installs it."""

from __future__ import annotations

import argparse
import json
import mmap
import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path

from edgewright._version import VERSION
from edgewright.backends.targets import all_targets
from edgewright.console import clean, console, table
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


EXAMPLES = """examples:
  edgewright doctor                          # fails only if an installed part cannot work
  edgewright doctor --target sm8550          # fails unless this machine can compile for the device
"""
_STYLES = {OK: "green", MISSING: "red", WRONG: "red", WRONG_FOLDER: "red", OPTIONAL: "yellow", UNSET: "yellow"}
_BAD = (MISSING, WRONG, WRONG_FOLDER)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("--target", action="append", default=[], metavar="sm8550", help="fail if this device needs something missing")
    add("--json", action="store_true", help="print the result as JSON")


@dataclass(frozen=True)
class Finding:
    """One check: subject, state, version, purpose and fix."""

    what: str
    state: str
    version: str
    purpose: str
    fix: str = ""


def run(args: argparse.Namespace) -> int:
    from edgewright.backends.targets import find_target

    required = {need for name in args.target for need in NEEDS.get(find_target(name).backend, ())}
    findings = diagnose(required)
    bad = [f for f in findings if f.state in _BAD]
    if args.json:
        print(json.dumps({"ok": not bad, "findings": [asdict(f) for f in findings]}, indent=2))
    else:
        _show(args, findings)
    if not bad:
        return 0
    if not args.json and not args.quiet:
        console().print(f"\n{len(bad)} to fix: {', '.join(f.what for f in bad)}", style="red", soft_wrap=True)
    return MissingError.exit_code


def diagnose(required: set[Need] | None = None) -> list[Finding]:
    """Run every check that needs no import."""
    needs = required or set()
    return [
        Finding("edgewright", OK, VERSION, machine()),
        _python(),
        *(_package(need, need in BASE or need in needs) for need in _needs()),
        _adb(),
        *(_folder(*row) for row in _FOLDERS),
        _cache(),
    ]


def _needs() -> list[Need]:
    named = [need for needs in NEEDS.values() for need in needs]
    listed = [*BASE, TORCH, TORCHAO, *named, PILLOW]
    return [need for need in dict.fromkeys(listed) if need is not LITECORE or "samsung" in _backends()]


def _backends() -> set[str]:
    return {target.backend for target in all_targets().values()}


def _python() -> Finding:
    right = sys.version_info >= (3, 10)
    fix = "" if right else "install Python 3.10 or later"
    return Finding("python", OK if right else WRONG, python_version(), "3.10 or later", fix)


def _package(need: Need, required: bool) -> Finding:
    version = detected_version(need)
    if version is None:
        return Finding(need.title, MISSING if required else OPTIONAL, "", need.purpose, need.fix)
    supported = supported_range(need.package)
    if not satisfies(version, supported):
        fix = f"pip install '{need.package}{supported}'"
        return Finding(need.title, WRONG, version, f"{need.purpose}: must be {supported}", fix)
    release = qnn_here() if need is QNN else ""  # the QNN release that phones report, not the package's
    return Finding(need.title, OK, f"{version}, QNN {release}" if release else version, need.purpose)


def _adb() -> Finding:
    path = adb()
    if path is None:
        fix = "apt install adb, or get Android's platform tools: developer.android.com/tools/releases/platform-tools"
        return Finding("adb", OPTIONAL, "", "running on phones", fix)
    return Finding("adb", OK, path, "running on phones")


# Environment variables that name folders: required files, purpose and fix.
_FOLDERS = (
    ("QNN_SDK_ROOT", ("lib/aarch64-android/libQnnHtp.so", "lib/x86_64-linux-clang/libQnnHtp.so"),
     "Qualcomm's libraries for phones; if set, also used for compiling",
     "to run on phones, unpack Qualcomm's AI Engine Direct SDK "
     "(www.qualcomm.com/developer/software/qualcomm-ai-engine-direct-sdk), and set QNN_SDK_ROOT to its folder"),
    ("ANDROID_NDK_ROOT", ("build/cmake/android.toolchain.cmake",), "building qnn_executor_runner, which phones need",
     "to build the runner, unpack Android's NDK (developer.android.com/ndk/downloads), and set ANDROID_NDK_ROOT to it"),
    ("EXECUTORCH_ROOT", ("backends/qualcomm/scripts/build.sh",), "building qnn_executor_runner, which phones need",
     "to build the runner, git clone https://github.com/pytorch/executorch, set EXECUTORCH_ROOT to it, and run there "
     "backends/qualcomm/scripts/build.sh --release; then: edgewright device run m.pte -b build-android"),
)  # fmt: skip


def _folder(variable: str, inside: tuple[str, ...], purpose: str, fix: str) -> Finding:
    folder = os.environ.get(variable, "")
    if not folder:
        return Finding(variable, UNSET, "", purpose, fix)
    missing = [name for name in inside if not (Path(folder) / name).exists()]
    if missing:
        return Finding(variable, WRONG_FOLDER, folder, f"{purpose}: must contain {', '.join(missing)}", fix)
    release = qnn_release(Path(folder) / inside[0]) if variable == "QNN_SDK_ROOT" else ""
    return Finding(variable, OK, f"{folder}, QNN {release}" if release else folder, purpose)


def _cache() -> Finding:
    from edgewright.engine.jit.cache import default_cache

    cache = default_cache()
    if cache.folder is None or cache.problem:
        fix = "set EDGEWRIGHT_CACHE to a folder of your own that others cannot write to"
        return Finding("code cache", OPTIONAL, "", f"faster starts: {cache.problem}", fix)
    return Finding("code cache", OK, "", f"faster starts: {cache.folder}")


def _show(args: argparse.Namespace, findings: list[Finding]) -> None:
    from rich.text import Text

    visible = findings if not args.quiet else [f for f in findings if f.state in _BAD]
    rows = [(f.what, Text(f.state, style=_STYLES[f.state]), f.version, f.purpose) for f in visible]
    if rows:
        console().print(table("", ("what", "state", "found", "for"), rows, flexible="for"))
    fixes = [(f.what, f.fix) for f in visible if f.fix]
    if fixes:
        console().print("\nto install what is missing:", style="bold")
    for what, fix in fixes:
        console().print(f"  {clean(what)}: {clean(fix)}", soft_wrap=True)
