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
_AARCH64, _MACHINES = 183, {3: "x86", 40: "32-bit Arm", 62: "x86-64", 164: "Hexagon"}  # as ELF files have them
_SDK = "https://www.qualcomm.com/developer/software/qualcomm-ai-engine-direct-sdk"


@dataclass(frozen=True)
class Runner:
    """ExecuTorch's program for the phone, and its QNN backend."""

    program: Path
    backend: Path

    @property
    def files(self) -> list[Path]:
        return [self.program, self.backend]


def build_in(data: bytes | mmap.mmap) -> str:
    """The build of QNN that a library or a context says it is of; empty if it does not say.

    >>> build_in(b"...v2.51.0.260929181845...")
    'v2.51.0.260929181845'
    """
    found = _BUILD.search(data)
    return f"v{found.group(1).decode()}" if found else ""


def sdk_root(given: str | None = None) -> Path:
    """The SDK's folder: the one given, or that of ``QNN_SDK_ROOT``."""
    root = given or os.environ.get("QNN_SDK_ROOT", "")
    remedy = f"Unpack Qualcomm's SDK ({_SDK}) and name its folder: --qnn-sdk, or QNN_SDK_ROOT."
    if not root:
        raise MissingError("QNN SDK", "is needed: pip's libraries are for this machine, not for phones", remedy=remedy)
    if not (Path(root) / "lib" / "aarch64-android").is_dir():
        raise MissingError(root, "must hold lib/aarch64-android", remedy=remedy)
    return Path(root)


def names_on_phone(arch: int) -> list[str]:
    """Every file but programs and inputs that a phone's folder needs: Qualcomm's, and ExecuTorch's."""
    return [*_htp_names(arch), Path(_RUNNERS[-1]).name, Path(_BACKENDS[-1]).name]


def _htp_names(arch: int) -> list[str]:
    return ["libQnnHtp.so", "libQnnSystem.so", f"libQnnHtpV{arch}Stub.so", f"libQnnHtpV{arch}Skel.so"]


def htp_files(root: Path, arch: int) -> list[Path]:
    """The libraries for an HTP: those of Android, and the one that runs on the Hexagon itself."""
    android, hexagon = root / "lib" / "aarch64-android", root / "lib" / f"hexagon-v{arch}" / "unsigned"
    *ours, skel = _htp_names(arch)
    files = [*(android / name for name in ours), hexagon / skel]
    missing = [str(f.relative_to(root)) for f in files if not f.is_file()]
    if missing:
        remedy = f"Use an SDK that knows Hexagon V{arch}."
        raise MissingError(str(root), f"lacks {', '.join(missing)}", remedy=remedy)
    return files


def find_runner(build_folder: str | None, runner: str | None) -> Runner:
    """ExecuTorch's runner: named, or in the folder of a build for Android."""
    if runner is None and build_folder is None:
        remedy = "Build it (backends/qualcomm/scripts/build.sh of ExecuTorch) and name the folder: -b build-android."
        raise UsageError("--build_folder", "or --runner must say where qnn_executor_runner is", remedy=remedy)
    if runner is None:
        folder = Path(str(build_folder))
        return _checked(Runner(_first([folder], _RUNNERS), _first([folder], _BACKENDS)))
    program = Path(runner)
    if not program.is_file():
        raise MissingError(runner, "--runner must be a file")
    around = [program.parent, *list(program.parents)[1:5], *([Path(build_folder)] if build_folder else [])]
    return _checked(Runner(program, _first(around, _BACKENDS)))


def _checked(found: Runner) -> Runner:
    """A build for this machine has files of the same names."""
    for path in found.files:
        with path.open("rb") as file:
            head = file.read(20)
        machine = int.from_bytes(head[18:20], "little")
        if head[:4] == b"\x7fELF" and len(head) == 20 and machine != _AARCH64:
            value = _MACHINES.get(machine, f"machine {machine}")
            remedy = (
                "Name the build for Android, such as -b build-android: backends/qualcomm/scripts/build.sh makes it."
            )
            raise UsageError(str(path), "must be for phones (AArch64)", value=value, remedy=remedy)
    return found


def _first(folders: list[Path], names: tuple[str, ...]) -> Path:
    for folder in folders:
        for name in names:
            if (folder / name).is_file():
                return folder / name
    remedy = "Build ExecuTorch for Android with QNN: backends/qualcomm/scripts/build.sh --release."
    raise MissingError(str(folders[-1]), f"must hold {names[-1]}", remedy=remedy)
