"""llama.cpp as a peer of language models: finds the user's shared library, and measures in another process."""

from __future__ import annotations

import ctypes.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from edgewright.errors import MissingError, UsageError, VendorError

SERVE = Path(__file__).with_name("serve_llama_cpp.py")
LIBRARY = "EDGEWRIGHT_LLAMA_CPP"
_NAMES = ("libllama.so", "libllama.*.so", "libllama.so.*", "libllama.dylib", "llama.dll")
_REMEDY = (
    f"Name llama.cpp's shared library, or its folder: --llama-cpp PATH, or {LIBRARY}=PATH. Builds of llama.cpp contain "
    "it (build/bin/libllama.so), and so does the npm package @node-llama-cpp/linux-x64 (bins/linux-x64)."
)


def find_library(path: str | None = None) -> str:
    """The file of the library: of ``path``, of the environment variable, or an installed one."""
    named = path or os.environ.get(LIBRARY)
    if not named:
        installed = ctypes.util.find_library("llama")
        if installed is None:
            raise MissingError("llama.cpp", "is not installed", remedy=_REMEDY)
        return installed
    place = Path(named)
    if place.is_dir():
        found = sorted(file for pattern in _NAMES for file in place.glob(pattern))
        if not found:
            raise MissingError("llama.cpp", "the folder has no libllama", value=named, remedy=_REMEDY)
        return str(found[0])
    if not place.is_file():
        raise MissingError("llama.cpp", "the library does not exist", value=named, remedy=_REMEDY)
    return str(place)


class LlamaCpp:
    """A GGUF file in llama.cpp. ``info``: model, bytes, features of the processor that the library uses, ..."""

    def __init__(self, library: str, path: str, threads: int, context: int) -> None:
        if not Path(path).is_file():
            raise UsageError("--peer", "must be a file", value=path)
        self._path = path
        command = [sys.executable, str(SERVE), library, os.path.abspath(path), str(threads), str(context)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self.info = self._answer()

    def prompt(self, count: int, depth: int = 0) -> float:
        """Seconds of a prompt, after ``depth`` tokens."""
        return float(self._ask({"prompt": count, "depth": depth})["seconds"])

    def generate(self, count: int, depth: int = 0) -> float:
        """Seconds of tokens one by one, after ``depth`` tokens."""
        return float(self._ask({"generate": count, "depth": depth})["seconds"])

    def score(self, tokens: Sequence[int]) -> float:
        """The sum of negative log likelihoods of tokens after the first."""
        return float(self._ask({"score": list(tokens)})["negative_log_likelihood"])

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # _answer says why
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None and self._process.stderr is not None
        line = self._process.stdout.readline()
        if not line:
            reason = (self._process.stderr.read().strip().splitlines() or ["no reason given"])[-1]
            self.close()
            raise VendorError(f"llama.cpp on {self._path}", "failed", value=reason)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self._process.communicate()

    def __enter__(self) -> LlamaCpp:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is not None:
            self._process.kill()
        self.close()
