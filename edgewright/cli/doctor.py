"""``edgewright doctor``: what is installed, what is missing, and the exact command that installs it."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path

from edgewright._version import VERSION
from edgewright.backends.info import BackendInfo, Folder, Package, Program, Requirement
from edgewright.backends.registry import InstalledBackend, find_backend, in_order, installed_backends
from edgewright.backends.targets import find_target
from edgewright.console import clean, console, table
from edgewright.errors import MissingError

OK, MISSING, WRONG, OPTIONAL = "ok", "missing", "wrong version", "not installed"
WRONG_FOLDER = "wrong folder"  # the folder that a variable names lacks the expected files
UNSET = "not set"
BROKEN = "broken"  # a backend of another package that cannot be loaded
_EDGEWRIGHT = BackendInfo("edgewright")  # what no backend declares

_COMPILE = "pip install 'edgewright[compile]'"
BASE = (
    Package("numpy", "numpy", "numpy", "everything", "pip install numpy"),
    Package("llvmlite", "llvmlite", "llvmlite", "machine code for this CPU", "pip install llvmlite"),
    Package("flatbuffers", "flatbuffers", "flatbuffers", "reading and writing files", "pip install flatbuffers"),
)
TORCH = Package("torch", "torch", "torch", "compiling", _COMPILE)
TORCHAO = Package("torchao", "torchao", "torchao", "quantizing", _COMPILE)
_LLM = "pip install 'edgewright[llm]'"
LANGUAGE_MODELS = (
    Package("tokenizers", "tokenizers", "tokenizers", "language models", _LLM),
    Package("Jinja2", "jinja2", "jinja2", "chat templates of language models", _LLM),
    Package("gguf", "gguf", "gguf", "compiling language models from GGUF files", _LLM),
    Package("Starlette", "starlette", "starlette", "edgewright serve", _LLM),
    Package("uvicorn", "uvicorn", "uvicorn", "edgewright serve", _LLM),
)
SWEEPS = (
    Package("Dask", "distributed", "distributed", "sweeps", "pip install 'edgewright[explore]'"),
    Package("pyarrow", "pyarrow", "pyarrow", "tables of sweeps as Parquet", "pip install pyarrow"),
)
PILLOW = Package("Pillow", "pillow", "PIL", "calibrating with a folder of images", "pip install pillow")


def requirements(info: BackendInfo) -> Sequence[Requirement]:
    """What a backend needs, apart from torch."""
    return info.load(info.requirements) if info.requirements else ()


def required_packages(info: BackendInfo) -> list[tuple[BackendInfo, Package]]:
    """What compiling for a backend needs, with the backend that declares it."""
    return [(info, need) for need in (TORCH, *requirements(info)) if isinstance(need, Package)]


def detected_version(info: BackendInfo, need: Package) -> str | None:
    """The installed version, or None."""
    if need.detect:
        return info.load_function(need.detect)()
    if find_spec(need.module) is None and _installed_version(need.package) is None:
        return None
    return _installed_version(need.package) or "installed"


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

    >>> satisfies("2.13.0+cpu", ">=2.11,<2.16"), satisfies("2.10.1", ">=2.11"), satisfies("installed", ">=1")
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


EXAMPLES = """examples:
  edgewright doctor                          # fails only if an installed part cannot work
  edgewright doctor --target sm8550          # fails unless this machine can compile for the device
"""
_STYLES = {OK: "green", MISSING: "red", WRONG: "red", WRONG_FOLDER: "red", OPTIONAL: "yellow", UNSET: "yellow"}
_STYLES[BROKEN] = "red"
_BAD = (MISSING, WRONG, WRONG_FOLDER, BROKEN)


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
    backends = [find_backend(find_target(name).backend) for name in args.target]
    findings = diagnose({need for info in backends for _, need in required_packages(info)})
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


def diagnose(required: Collection[Package] = ()) -> list[Finding]:
    """Run every check that needs no import. ``required``: packages that must not be missing."""
    backends = in_order()
    needs = [(info, need) for info in backends for need in requirements(info)]
    general = [(_EDGEWRIGHT, need) for need in (*BASE, TORCH, TORCHAO)]
    optional = [(_EDGEWRIGHT, need) for need in (*LANGUAGE_MODELS, *SWEEPS, PILLOW)]
    packages = [*general, *((i, n) for i, n in needs if isinstance(n, Package)), *optional]
    return [
        Finding("edgewright", OK, VERSION, machine()),
        _python(),
        *(_package(info, need, need in BASE or need in required) for info, need in packages),
        *(_program(need) for _, need in needs if isinstance(need, Program)),
        *(_folder(info, need) for info, need in needs if isinstance(need, Folder)),
        *map(_backend, installed_backends()),
        _cache(),
    ]


def _python() -> Finding:
    right = sys.version_info >= (3, 10)
    fix = "" if right else "install Python 3.10 or later"
    return Finding("python", OK if right else WRONG, python_version(), "3.10 or later", fix)


def _package(info: BackendInfo, need: Package, required: bool) -> Finding:
    version = detected_version(info, need)
    if version is None:
        return Finding(need.title, MISSING if required else OPTIONAL, "", need.purpose, need.fix)
    supported = need.versions or supported_range(need.package)
    if not satisfies(version, supported):
        fix = f"pip install '{need.package}{supported}'"
        return Finding(need.title, WRONG, version, f"{need.purpose}: must be {supported}", fix)
    release = info.load_function(need.release)() if need.release else ""
    return Finding(need.title, OK, f"{version}, {release}" if release else version, need.purpose)


def _program(need: Program) -> Finding:
    path = shutil.which(need.name)
    if path is None:
        return Finding(need.name, OPTIONAL, "", need.purpose, need.fix)
    return Finding(need.name, OK, path, need.purpose)


def _folder(info: BackendInfo, need: Folder) -> Finding:
    folder = os.environ.get(need.variable, "")
    if not folder:
        return Finding(need.variable, UNSET, "", need.purpose, need.fix)
    missing = [name for name in need.files if not (Path(folder) / name).exists()]
    if missing:
        return Finding(
            need.variable, WRONG_FOLDER, folder, f"{need.purpose}: must contain {', '.join(missing)}", need.fix
        )
    release = info.load_function(need.release)(folder) if need.release else ""
    return Finding(need.variable, OK, f"{folder}, {release}" if release else folder, need.purpose)


def _backend(installed: InstalledBackend) -> Finding:
    """A backend of another package."""
    what = f"backend {installed.entry}"
    if installed.info is None:
        fix = "install a version of its package that works with this one, or uninstall it"
        return Finding(what, BROKEN, installed.version, f"cannot be used: {installed.problem}", fix)
    return Finding(what, OK, installed.version, f"programs for {installed.info.title}")


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
