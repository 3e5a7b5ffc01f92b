"""Qualcomm's emulator, in a process of its own: a context that brings it down does not bring this program down.

One process serves all contexts. If it ends, who was running is told so; others find their contexts loaded anew.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.messages import Ended, raise_error, receive, send
from edgewright.backends.qualcomm.qnn.library import find_folder
from edgewright.errors import EdgewrightError, FormatError, LimitError, VendorError
from edgewright.pte import numbers

Array = np.ndarray[Any, Any]
MODULE = "edgewright.backends.qualcomm.emulated"
_SHOWN = 400  # characters of what a crashed emulator said last
_ENDS = 4096


class _Process:
    """A running emulator."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.owner = folder, os.getpid()
        ours, theirs = socket.socketpair()
        self.said = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        paths = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
        command = [sys.executable, "-m", MODULE, str(theirs.fileno())]
        with theirs:
            self.child = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=self.said,
                                          stderr=self.said, pass_fds=(theirs.fileno(),))  # fmt: skip
        self.line = ours

    @property
    def usable(self) -> bool:
        return self.owner == os.getpid() and self.child.poll() is None

    def ask(self, header: dict[str, Any], parts: Sequence[Any], most: int) -> tuple[dict[str, Any], list[bytes]]:
        try:
            send(self.line, header, parts)
            return receive(self.line, most)
        except Ended:
            raise self._ended() from None
        except BaseException:  # an answer is still on its way: nobody could tell whose
            self.stop()
            raise

    def _ended(self) -> VendorError:
        code = self.child.wait()
        self.line.close()
        self.said.seek(max(0, self.said.seek(0, os.SEEK_END) - _SHOWN))
        words = self.said.read().decode(errors="replace").strip()
        remedy = "Compile the model again; EDGEWRIGHT_QNN=twin runs it without Qualcomm's libraries."
        return VendorError("QNN emulator", f"ended with {code}", value=words or "nothing more", remedy=remedy)

    def stop(self) -> None:
        self.line.close()
        if self.owner == os.getpid():
            self.child.kill()
            self.child.wait()


_LOCK = threading.Lock()
_RUNNING: list[_Process] = []


def _running() -> _Process:
    folder = find_folder()
    current = _RUNNING[0] if _RUNNING else None
    if current is None or not current.usable or current.folder != folder:
        if current is not None:
            current.stop()
        _RUNNING[:] = [_Process(folder)]
    return _RUNNING[0]


def _ask(
    process: _Process, header: dict[str, Any], parts: Sequence[Any], most: int
) -> tuple[dict[str, Any], list[bytes]]:
    answer, made = process.ask(header, parts, most)
    raise_error(answer)
    return answer, made


@dataclass(frozen=True)
class End:
    """An input or output of a graph."""

    name: str
    dims: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        return numbers.product((*self.dims, np.dtype(self.dtype).itemsize))


class Emulated:
    """One context in the emulator. ``memory``: bytes that inputs and outputs may take."""

    def __init__(self, context: bytes, soc: int, method: str, memory: int) -> None:
        self._context, self._header = context, {"do": "open", "soc": soc, "method": method}
        self._process: _Process | None = None
        self._number = -1
        with _LOCK:
            answer = self._load()
        self.build = str(answer.get("build", ""))
        self.inputs, self.outputs = (_ends(answer.get(side)) for side in ("inputs", "outputs"))
        needed = numbers.add(*(e.nbytes for e in (*self.inputs, *self.outputs)))
        if needed > memory:
            self.close()
            remedy = "Raise it with load_program(..., limits=Limits(memory=...)) if you trust the file."
            raise LimitError("QNN delegate", f"inputs and outputs may take {memory} bytes", value=needed, remedy=remedy)

    def _load(self) -> dict[str, Any]:
        process = _running()
        answer, _ = _ask(process, self._header, [self._context], 0)
        self._process, self._number = process, int(answer.get("id", -1))
        return answer

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs for inputs of the right types and sizes."""
        with _LOCK:
            if self._process is None or not self._process.usable:
                self._load()
            assert self._process is not None
            total = numbers.add(*(e.nbytes for e in self.outputs))
            header = {"do": "run", "id": self._number}
            _, made = _ask(self._process, header, [np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in inputs],
                           total)  # fmt: skip
        if [len(m) for m in made] != [e.nbytes for e in self.outputs]:
            raise VendorError("QNN emulator", "must give outputs of their sizes", value=[len(m) for m in made][:8])
        return [np.frombuffer(bytearray(m), e.dtype).reshape(e.dims) for m, e in zip(made, self.outputs, strict=True)]

    def close(self) -> None:
        """Give the context back."""
        with _LOCK:
            if self._process is not None and self._process.usable:
                with contextlib.suppress(EdgewrightError):  # it ended: there is nothing to give back
                    _ask(self._process, {"do": "close", "id": self._number}, [], 0)
            self._process = None


def _ends(listed: Any) -> list[End]:
    """What the emulator says of a graph's ends, which it has from the file."""
    if not isinstance(listed, list) or len(listed) > _ENDS:
        raise VendorError("QNN emulator", "must list inputs and outputs")
    found = []
    for item in listed:
        name, dims, dtype = item
        if len(dims) > 8 or any(type(n) is not int or not 0 < n < 1 << 31 for n in dims) or not isinstance(dtype, str):
            raise FormatError("must have tensors of fixed shapes", where="QNN context", value=str(item)[:80])
        found.append(End(str(name), tuple(dims), np.dtype(dtype).name))
    return found
