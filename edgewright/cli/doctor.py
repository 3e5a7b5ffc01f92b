"""``edgewright doctor``: what is installed, what is missing, and the exact command that installs it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from edgewright._version import VERSION
from edgewright.backends.targets import all_targets
from edgewright.cli import doctor_checks as checks
from edgewright.cli.doctor_checks import MISSING, NEEDS, OK, OPTIONAL, UNSET, WRONG, WRONG_FOLDER, Need
from edgewright.console import clean, console, table
from edgewright.errors import MissingError

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
        Finding("edgewright", OK, VERSION, checks.machine()),
        _python(),
        *(_package(need, need in checks.BASE or need in needs) for need in _needs()),
        _adb(),
        *(_folder(*row) for row in _FOLDERS),
        _cache(),
    ]


def _needs() -> list[Need]:
    named = [need for needs in NEEDS.values() for need in needs]
    listed = [*checks.BASE, checks.TORCH, checks.TORCHAO, *named, checks.PILLOW]
    return [need for need in dict.fromkeys(listed) if need is not checks.LITECORE or "samsung" in _backends()]


def _backends() -> set[str]:
    return {target.backend for target in all_targets().values()}


def _python() -> Finding:
    right = sys.version_info >= (3, 10)
    fix = "" if right else "install Python 3.10 or later"
    return Finding("python", OK if right else WRONG, checks.python_version(), "3.10 or later", fix)


def _package(need: Need, required: bool) -> Finding:
    version = checks.detected_version(need)
    if version is None:
        return Finding(need.title, MISSING if required else OPTIONAL, "", need.purpose, need.fix)
    supported = checks.supported_range(need.package)
    if not checks.satisfies(version, supported):
        fix = f"pip install '{need.package}{supported}'"
        return Finding(need.title, WRONG, version, f"{need.purpose}: must be {supported}", fix)
    release = checks.qnn_here() if need is checks.QNN else ""  # the QNN release that phones report, not the package's
    return Finding(need.title, OK, f"{version}, QNN {release}" if release else version, need.purpose)


def _adb() -> Finding:
    path = checks.adb()
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
    release = checks.qnn_release(Path(folder) / inside[0]) if variable == "QNN_SDK_ROOT" else ""
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
