"""Locates and loads Qualcomm's libraries; converts error codes to exceptions that include the library's log."""

from __future__ import annotations

import ctypes as c
import os
import platform
from collections import deque
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from edgewright.backends.capture import capture_streams
from edgewright.backends.qualcomm.qnn import structs as s
from edgewright.errors import MissingError, VendorError

_P, _U32, _U64 = c.c_void_p, c.c_uint32, c.c_uint64
_OUT, _TEXT = c.POINTER(c.c_void_p), c.c_char_p
_TENSORS = c.POINTER(s.Tensor)
ERROR, WARNING = 1, 2
_LINES = 200  # of the log

# Index in the interface's function table, and argument types.
FUNCTIONS: dict[str, tuple[int, tuple[Any, ...]]] = {
    "backendCreate": (1, (_P, _P, _OUT)),
    "backendGetBuildId": (4, (c.POINTER(_TEXT),)),
    "backendGetSupportedOperations": (6, (_P, c.POINTER(_U32), _OUT)),
    "backendValidateOpConfig": (7, (_P, s.OpConfig)),
    "backendFree": (8, (_P,)),
    "contextCreate": (9, (_P, _P, _P, _OUT)),
    "contextGetBinarySize": (11, (_P, c.POINTER(_U64))),
    "contextGetBinary": (12, (_P, _P, _U64, c.POINTER(_U64))),
    "contextCreateFromBinary": (13, (_P, _P, _P, _P, _U64, _OUT, _P)),
    "contextFree": (14, (_P, _P)),
    "graphCreate": (15, (_P, _TEXT, _P, _OUT)),
    "graphAddNode": (18, (_P, s.OpConfig)),
    "graphFinalize": (19, (_P, _P, _P)),
    "graphRetrieve": (20, (_P, _TEXT, _OUT)),
    "graphExecute": (21, (_P, _TENSORS, _U32, _TENSORS, _U32, _P, _P)),
    "tensorCreateGraphTensor": (24, (_P, _TENSORS)),
    "logCreate": (25, (_P, _U32, _OUT)),
    "logFree": (27, (_P,)),
    "profileCreate": (28, (_P, _U32, _OUT)),
    "profileGetEvents": (30, (_P, c.POINTER(c.POINTER(_U64)), c.POINTER(_U32))),
    "profileGetSubEvents": (31, (_U64, c.POINTER(c.POINTER(_U64)), c.POINTER(_U32))),
    "profileGetEventData": (32, (_U64, c.POINTER(s.EventData))),
    "profileFree": (34, (_P,)),
    "deviceCreate": (40, (_P, _P, _OUT)),
    "deviceFree": (43, (_P,)),
    "errorGetMessage": (48, (_U64, c.POINTER(_TEXT))),
}
SYSTEM: dict[str, tuple[int, tuple[Any, ...]]] = {
    "create": (0, (_OUT,)),
    "getBinaryInfo": (1, (_P, _P, _U64, c.POINTER(c.POINTER(s.BinaryInfo)), c.POINTER(_U64))),
    "free": (3, (_P,)),
}
_FAMILIES = {
    1: "common", 2: "property", 3: "op package", 4: "backend", 5: "context", 6: "graph", 7: "tensor", 8: "memory",
    11: "log", 12: "profile", 14: "device", 30: "system",
}  # fmt: skip
_REMEDY = "pip install onnxruntime-qnn (its libraries are Qualcomm's), or set QNN_SDK_ROOT to an unpacked QNN SDK."


def find_folder() -> Path:
    """The folder of the x86-64 libraries: that of ``QNN_SDK_ROOT``, or of the installed ``onnxruntime-qnn``."""
    root = os.environ.get("QNN_SDK_ROOT", "")
    if root:
        folder = Path(root) / "lib" / "x86_64-linux-clang"
        if not (folder / "libQnnHtp.so").is_file():
            remedy = "Set it to the folder that holds the SDK's 'lib', or unset it to use onnxruntime-qnn."
            raise MissingError(
                "QNN_SDK_ROOT", "must hold lib/x86_64-linux-clang/libQnnHtp.so", value=root, remedy=remedy
            )
        return folder
    providers_out = find_spec("onnxruntime_qnn")
    folder = Path(providers_out.origin).parent if providers_out is not None and providers_out.origin else Path()
    if providers_out is None or not (folder / "libQnnHtp.so").is_file():
        raise MissingError("Qualcomm's libraries", "are not installed", remedy=_REMEDY)
    if platform.machine() not in ("x86_64", "AMD64"):
        raise MissingError("Qualcomm's libraries", "need an x86-64 machine", value=platform.machine())
    return folder


class QnnLibrary:
    """A loaded library: its functions by name, and its versions."""

    def __init__(self, path: Path, entry: str, head: Any, functions: dict[str, tuple[int, tuple[Any, ...]]]) -> None:
        self.path = path
        with capture_streams() as output:  # it prints a banner
            try:
                library = c.CDLL(os.fspath(path))
                providers = getattr(library, entry)
            except (OSError, AttributeError) as error:
                raise MissingError(str(path), f"cannot be loaded: {error}", remedy=_REMEDY) from error
            providers.restype, providers.argtypes = _U64, (c.POINTER(c.POINTER(_P)), c.POINTER(_U32))
            providers_out, count = c.POINTER(_P)(), _U32()
            code = providers(c.byref(providers_out), c.byref(count))
        if code or count.value < 1 or not providers_out[0]:
            raise VendorError(str(path), "gave no interface", value=output.text.strip() or code)
        base = int(providers_out[0])
        self.head: Any = head.from_address(base)
        table = base + c.sizeof(head)
        self._functions = {name: _function(table + 8 * index, args) for name, (index, args) in functions.items()}
        self._library = library

    def call(self, name: str, *args: Any) -> int:
        """Call a function; returns its error code."""
        function = self._functions[name]
        if function is None:
            raise VendorError(str(self.path), f"has no function {name}", remedy="Use QNN 2.47 or newer.")
        return int(function(*args))


def _function(address: int, args: tuple[Any, ...]) -> Any:
    pointer = c.c_void_p.from_address(address).value
    return c.CFUNCTYPE(_U64, *args)(pointer) if pointer else None


@cache
def _htp(folder: Path) -> QnnLibrary:
    return QnnLibrary(folder / "libQnnHtp.so", "QnnInterface_getProviders", s.Provider, FUNCTIONS)


@cache
def _system(folder: Path) -> QnnLibrary:
    return QnnLibrary(folder / "libQnnSystem.so", "QnnSystemInterface_getProviders", s.SystemProvider, SYSTEM)


def htp_library() -> QnnLibrary:
    """The HTP library: compiler and emulator."""
    return _htp(find_folder())


def system_library() -> QnnLibrary:
    """The System library, which reads the metadata of contexts."""
    return _system(find_folder())


def build_id(library: QnnLibrary) -> str:
    """The build of a library, such as ``v2.51.0.260929181845``."""
    text = c.c_char_p()
    check(library, "backendGetBuildId", c.byref(text))
    return (text.value or b"").decode(errors="replace")


class LogCapture:
    """Captures the log of a library, to include it in errors."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=_LINES)
        libc = c.CDLL(None)
        libc.vsnprintf.argtypes = (_P, c.c_size_t, _P, _P)

        def note(fmt: int, level: int, _time: int, args: int) -> None:
            text = c.create_string_buffer(1024)
            libc.vsnprintf(text, len(text), fmt, args)  # on x86-64 a va_list comes as a pointer
            self.lines.append(text.value.decode(errors="replace").strip())

        self.callback = c.CFUNCTYPE(None, _P, _U32, _U64, _P)(note)

    def drain(self) -> str:
        """Return the last lines and clear the log."""
        text = " | ".join(line for line in list(self.lines)[-4:] if line)
        self.lines.clear()
        return text


def check(
    library: QnnLibrary, name: str, *args: Any, log: LogCapture | None = None, subject: str = "QNN", rule: str = ""
) -> None:
    """Call a function; raises ``VendorError`` with the library's message unless it returns 0."""
    code = library.call(name, *args)
    if code == 0:
        return
    text = c.c_char_p()
    library.call("errorGetMessage", code, c.byref(text))
    low = code & 0xFFFF
    message = (text.value or b"").decode(errors="replace").strip()
    output = log.drain() if log is not None else ""
    value = f"{_FAMILIES.get(low // 1000, 'error')} {low}" + "".join(f": {part}" for part in (message, output) if part)
    raise VendorError(subject, rule or f"{name} must succeed", value=value)
