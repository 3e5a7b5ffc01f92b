"""Files that a phone needs to run a program: Qualcomm's libraries from the SDK and ExecuTorch's runner."""

from __future__ import annotations

import mmap
import os
import re
from dataclasses import dataclass
from pathlib import Path

from edgewright.errors import MissingError, UsageError

_BUILD = re.compile(rb"v(\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{6,20})")
_RUNNERS = ("examples/qualcomm/executor_runner/qnn_executor_runner", "examples/qualcomm/qnn_executor_runner",
            "qnn_executor_runner")  # fmt: skip
_BACKENDS = ("lib/libqnn_executorch_backend.so", "backends/qualcomm/libqnn_executorch_backend.so",
             "libqnn_executorch_backend.so")  # fmt: skip
_AARCH64, _MACHINES = 183, {3: "x86", 40: "32-bit Arm", 62: "x86-64", 164: "Hexagon"}  # e_machine values of ELF
_SDK = "https://www.qualcomm.com/developer/software/qualcomm-ai-engine-direct-sdk"


@dataclass(frozen=True)
class RunnerFiles:
    """ExecuTorch's runner for phones and its QNN backend library."""

    program: Path
    backend: Path

    @property
    def files(self) -> list[Path]:
        return [self.program, self.backend]


def find_build_id(data: bytes | mmap.mmap) -> str:
    """The QNN build id in a library or context; empty if there is none.

    >>> find_build_id(b"...v2.51.0.260929181845...")
    'v2.51.0.260929181845'
    """
    match = _BUILD.search(data)
    return f"v{match.group(1).decode()}" if match else ""


def sdk_root(folder: str | None = None) -> Path:
    """The SDK's folder: the argument, or ``QNN_SDK_ROOT``."""
    root = folder or os.environ.get("QNN_SDK_ROOT", "")
    remedy = f"Unpack Qualcomm's SDK ({_SDK}) and name its folder: --qnn-sdk, or QNN_SDK_ROOT."
    if not root:
        raise MissingError("QNN SDK", "is needed: pip's libraries are for this machine, not for phones", remedy=remedy)
    if not (Path(root) / "lib" / "aarch64-android").is_dir():
        raise MissingError(root, "must hold lib/aarch64-android", remedy=remedy)
    return Path(root)


def names_on_phone(arch: int) -> list[str]:
    """Names of the libraries and the runner that a phone needs, besides programs and inputs."""
    return [*_htp_names(arch), Path(_RUNNERS[-1]).name, Path(_BACKENDS[-1]).name]


def _htp_names(arch: int) -> list[str]:
    return ["libQnnHtp.so", "libQnnSystem.so", f"libQnnHtpV{arch}Stub.so", f"libQnnHtpV{arch}Skel.so"]


def htp_files(root: Path, arch: int) -> list[Path]:
    """The libraries for an HTP version: those for Android, and the skeleton that runs on the Hexagon."""
    android, hexagon = root / "lib" / "aarch64-android", root / "lib" / f"hexagon-v{arch}" / "unsigned"
    *host_names, skel = _htp_names(arch)
    files = [*(android / name for name in host_names), hexagon / skel]
    missing = [str(f.relative_to(root)) for f in files if not f.is_file()]
    if missing:
        remedy = f"Use an SDK that knows Hexagon V{arch}."
        raise MissingError(str(root), f"lacks {', '.join(missing)}", remedy=remedy)
    return files


def find_program(names: tuple[str, ...], build_folder: str | None, runner: str | None, remedy: str) -> Path:
    """A runner for phones: the given file, or found in the folder of an Android build."""
    if runner is None and build_folder is None:
        rule = f"or --runner must name the path of {Path(names[0]).name}"
        raise UsageError("--build_folder", rule, remedy=remedy)
    if runner is not None and not Path(runner).is_file():
        raise MissingError(runner, "--runner must be a file")
    if runner is None:
        found = next((Path(str(build_folder)) / n for n in names if (Path(str(build_folder)) / n).is_file()), None)
        if found is None:
            raise MissingError(str(build_folder), f"must hold {names[0]}", remedy=remedy)
        runner = str(found)
    return _check_machine(Path(runner), remedy)


def find_runner(build_folder: str | None, runner: str | None) -> RunnerFiles:
    """ExecuTorch's runner: the given file, or found in the folder of an Android build."""
    if runner is None and build_folder is None:
        remedy = "Build it (backends/qualcomm/scripts/build.sh of ExecuTorch) and name the folder: -b build-android."
        raise UsageError("--build_folder", "or --runner must name the path of qnn_executor_runner", remedy=remedy)
    if runner is None:
        folder = Path(str(build_folder))
        return _check_arch(RunnerFiles(_first_file([folder], _RUNNERS), _first_file([folder], _BACKENDS)))
    program = Path(runner)
    if not program.is_file():
        raise MissingError(runner, "--runner must be a file")
    folders = [program.parent, *list(program.parents)[1:5], *([Path(build_folder)] if build_folder else [])]
    return _check_arch(RunnerFiles(program, _first_file(folders, _BACKENDS)))


def _check_arch(match: RunnerFiles) -> RunnerFiles:
    """Raise unless files are AArch64: a host build has files of the same names."""
    remedy = "Name the build for Android, such as -b build-android: backends/qualcomm/scripts/build.sh makes it."
    for path in match.files:
        _check_machine(path, remedy)
    return match


def _check_machine(path: Path, remedy: str) -> Path:
    with path.open("rb") as file:
        head = file.read(20)
    machine = int.from_bytes(head[18:20], "little")
    if head[:4] == b"\x7fELF" and len(head) == 20 and machine != _AARCH64:
        value = _MACHINES.get(machine, f"machine {machine}")
        raise UsageError(str(path), "must be for phones (AArch64)", value=value, remedy=remedy)
    return path


def _first_file(folders: list[Path], names: tuple[str, ...]) -> Path:
    for folder in folders:
        for name in names:
            if (folder / name).is_file():
                return folder / name
    remedy = "Build ExecuTorch for Android with QNN: backends/qualcomm/scripts/build.sh --release."
    raise MissingError(str(folders[-1]), f"must hold {names[-1]}", remedy=remedy)
