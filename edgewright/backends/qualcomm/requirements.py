"""What compiling for Qualcomm's chips and running on phones need, for ``edgewright doctor``."""

from __future__ import annotations

import mmap
from importlib.util import find_spec
from pathlib import Path

from edgewright.backends.info import Folder, Package, Program
from edgewright.backends.qualcomm.emulator_server import release
from edgewright.backends.qualcomm.libraries import find_build_id

_MODULE = "onnxruntime_qnn"
_ANDROID = "lib/aarch64-android/libQnnHtp.so"

_RUNNER = "building qnn_executor_runner, which phones need"

REQUIREMENTS = (
    Package(
        "QNN",
        "onnxruntime-qnn",
        _MODULE,
        "programs for Qualcomm, and an emulator of its HTP",
        "pip install 'edgewright[qualcomm]'",
        release=".requirements:installed_release",
    ),
    Program(
        "adb",
        "running on phones",
        "apt install adb, or get Android's platform tools: developer.android.com/tools/releases/platform-tools",
    ),
    Folder(
        "QNN_SDK_ROOT",
        (_ANDROID, "lib/x86_64-linux-clang/libQnnHtp.so"),
        "Qualcomm's libraries for phones; if set, also used for compiling",
        "to run on phones, unpack Qualcomm's AI Engine Direct SDK "
        "(www.qualcomm.com/developer/software/qualcomm-ai-engine-direct-sdk), and set QNN_SDK_ROOT to its folder",
        release=".requirements:sdk_release",
    ),
    Folder(
        "ANDROID_NDK_ROOT",
        ("build/cmake/android.toolchain.cmake",),
        _RUNNER,
        "to build the runner, unpack Android's NDK (developer.android.com/ndk/downloads), "
        "and set ANDROID_NDK_ROOT to it",
    ),
    Folder(
        "EXECUTORCH_ROOT",
        ("backends/qualcomm/scripts/build.sh",),
        _RUNNER,
        "to build the runner, git clone https://github.com/pytorch/executorch, set EXECUTORCH_ROOT to it, and run "
        "there backends/qualcomm/scripts/build.sh --release; then: edgewright device run m.pte -b build-android",
    ),
)


def installed_release() -> str:
    """The QNN release of the libraries in ``onnxruntime-qnn``, in the format that phones report; '' if unknown."""
    spec = find_spec(_MODULE)
    return "" if spec is None or not spec.origin else _release(Path(spec.origin).parent / "libQnnHtp.so")


def sdk_release(folder: str) -> str:
    """The QNN release of an SDK; '' if unknown."""
    return _release(Path(folder) / _ANDROID)


def _release(library: Path) -> str:
    try:
        with open(library, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            number = release(find_build_id(data))
    except (OSError, ValueError):  # an empty file cannot be mapped
        return ""
    return f"QNN {number}" if number else ""
