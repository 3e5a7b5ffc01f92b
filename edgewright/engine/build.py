"""LLVM text to object code to addresses: from the cache, or compiled now, in several processes if there is much.

llvmlite lets one thread compile at a time, and forking a process that has threads may hang it: so a second process is
a fresh Python that loads llvmlite alone and is sent text. It starts while this process already compiles.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import llvmlite
import llvmlite.binding as llvm

from edgewright._version import VERSION
from edgewright.engine.cache import Cache, default_cache, key_of
from edgewright.errors import EdgewrightError

if TYPE_CHECKING:
    import subprocess

_OPTIMIZE = 2  # of code generation; passes over the text gain nothing, vectors are explicit
_WORTH_A_PROCESS = 400_000  # characters of text: about 80 ms of compiling
_FRAME = struct.Struct("<q")

# Runs in the other process: frames of text in, frames of objects out, until the pipe closes.
_HELPER = """
import struct, sys
sys.path.insert(0, sys.argv[1])
import llvmlite.binding as llvm
llvm.initialize_native_target(); llvm.initialize_native_asmprinter(); llvm.initialize_native_asmparser()
cpu, features, level = sys.argv[2], sys.argv[3], int(sys.argv[4])
machine = llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=level)
read, write = sys.stdin.buffer, sys.stdout.buffer
while size := read.read(8):
    made = machine.emit_object(llvm.parse_assembly(read.read(*struct.unpack("<q", size)).decode()))
    write.write(struct.pack("<q", len(made)) + made)
    write.flush()
"""


class CodegenError(EdgewrightError):
    """LLVM refused what the engine wrote: a defect of the engine."""

    stage = "engine"
    exit_code = 70


def prepare() -> None:
    """What LLVM needs before anything else; cheap when done before."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # LLVM ends the process over inline assembly without it


def target_machine(cpu: str, features: str) -> Any:
    prepare()
    return llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=_OPTIMIZE)


# A module's text, or what writes it: then its name says all it depends on, and a cached object needs no text at all.
# Bytes are the object itself.
Source = Union[str, bytes, Callable[[], str]]


def object_key(text: str, cpu: str, features: str) -> str:
    return key_of(text, cpu, features, VERSION, llvmlite.__version__, llvm.get_default_triple(), str(_OPTIMIZE))


def _fingerprint() -> str:
    """The engine's own code, as far as it can be seen: what other code wrote is not taken for what this would write."""
    seen = []
    for folder, _, names in os.walk(os.path.dirname(__file__)):
        for path in (os.path.join(folder, name) for name in names if name.endswith(".py")):
            status = os.stat(path)
            seen.append(f"{os.path.basename(path)} {status.st_size} {status.st_mtime_ns}")
    return key_of(*sorted(seen))


FINGERPRINT = _fingerprint()  # now: later the files may be others than those that were loaded


def build_kernels(kernels: Mapping[str, Source], cpu: str, features: str, cache: Cache | None = None) -> list[bytes]:
    """An object for each kernel, in order; only what is not cached is written and compiled."""
    ready = [source for source in kernels.values() if isinstance(source, bytes)]
    if len(ready) == len(kernels):
        return ready
    known = {
        name: object_key(source if isinstance(source, str) else f"{name} {FINGERPRINT}", cpu, features)
        for name, source in kernels.items()
    }
    return _build({known[name]: source for name, source in kernels.items()}, known.values(), cpu, features, cache)


def build_objects(texts: Sequence[str], cpu: str, features: str, cache: Cache | None = None) -> list[bytes]:
    """An object for each module text, in order."""
    keys = [object_key(text, cpu, features) for text in texts]
    return _build(dict(zip(keys, texts, strict=True)), keys, cpu, features, cache)


def _build(
    sources: Mapping[str, Source], wanted: Iterable[str], cpu: str, features: str, cache: Cache | None
) -> list[bytes]:
    store = cache or default_cache()
    found = {key: data for key in sources if (data := store.get(key)) is not None}
    missing = {key: source for key, source in sources.items() if key not in found}
    texts = [source() if callable(source) else str(source) for source in missing.values()]
    for key, data in zip(missing, compile_all(texts, cpu, features), strict=True):
        store.put(key, data)
        found[key] = data
    if missing:
        store.trim()
    return [found[key] for key in wanted]


def compile_all(texts: Sequence[str], cpu: str, features: str, processes: int | None = None) -> list[bytes]:
    """Compile every text, the largest first, in up to ``processes`` processes (as many as there are cores)."""
    whole = sum(map(len, texts))
    most = processes if processes is not None else min(_cores(), 1 + whole // _WORTH_A_PROCESS)
    queue = deque(sorted(range(len(texts)), key=lambda at: -len(texts[at])))
    results: list[bytes] = [b""] * len(texts)
    helpers = [_Helper(texts, queue, results, cpu, features) for _ in range(min(most, len(texts)) - 1)]
    try:
        machine = target_machine(cpu, features)
        while queue:
            try:
                at = queue.popleft()
            except IndexError:  # a helper took the last one
                break
            results[at] = _compile(machine, texts[at])
    finally:
        for helper in helpers:
            helper.finish()
    for at in (at for at, made in enumerate(results) if not made):  # a helper died with it
        results[at] = _compile(machine, texts[at])
    return results


def _compile(machine: Any, text: str) -> bytes:
    try:
        made: bytes = machine.emit_object(llvm.parse_assembly(text))
    except RuntimeError as error:
        raise CodegenError("kernel", f"LLVM must accept the text: {error}", remedy="Please report this.") from error
    return made


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Helper:
    """Another Python that compiles, and the thread that feeds it."""

    def __init__(self, texts: Sequence[str], queue: deque[int], results: list[bytes], cpu: str, features: str) -> None:
        self._texts, self._queue, self._results = texts, queue, results
        self._process: subprocess.Popen[bytes] | None = None
        self._arguments = (str(Path(llvmlite.__file__).parent.parent), cpu, features, str(_OPTIMIZE))
        self._thread = threading.Thread(target=self._feed, daemon=True, name="edgewright-build")
        self._thread.start()

    def _feed(self) -> None:
        """Whatever goes wrong here, the text stays without an object, and this process compiles it."""
        if getattr(sys, "frozen", False) or not sys.executable:
            return  # there is no Python to start, only the application itself
        import subprocess  # only when something must be compiled

        command = [sys.executable, "-I", "-S", "-c", _HELPER, *self._arguments]
        try:
            with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=subprocess.DEVNULL) as self._process:
                while self._queue:
                    at = self._queue.popleft()
                    self._results[at] = self._ask(self._process, self._texts[at])
        except (OSError, IndexError, struct.error):
            return

    def _ask(self, process: subprocess.Popen[bytes], text: str) -> bytes:
        assert process.stdin is not None and process.stdout is not None
        data = text.encode()
        process.stdin.write(_FRAME.pack(len(data)) + data)
        process.stdin.flush()
        (size,) = _FRAME.unpack(process.stdout.read(_FRAME.size))
        made = process.stdout.read(size)
        return made if len(made) == size else b""

    def finish(self) -> None:
        self._thread.join()


class Library:
    """Objects in executable memory; functions by name. The code lives as long as this does."""

    def __init__(self, objects: Iterable[bytes]) -> None:
        prepare()
        machine = llvm.Target.from_default_triple().create_target_machine()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        for data in objects:
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        found: int = self._engine.get_function_address(name)
        if not found:
            raise CodegenError(
                f"kernel {name!r}", "must be defined by a module of that name", remedy="Please report this."
            )
        return found
