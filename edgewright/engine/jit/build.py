"""LLVM text to object code: from the cache, or compiled now, in other processes if there is much.

llvmlite lets one thread compile at a time, and forking a process that has threads may hang it: so the others are fresh
Pythons that load llvmlite alone and are sent text while more of it is written. LLVM, which is large, then never enters
this process, nor does it when everything was cached.
"""

from __future__ import annotations

import importlib.util
import json
import os
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from edgewright._version import VERSION
from edgewright.engine.codegen.builder import CodeSizeError
from edgewright.engine.host_arch import target_triple
from edgewright.engine.jit.cache import Cache, cache_key, default_cache
from edgewright.engine.jit.elf import CodegenError

if TYPE_CHECKING:
    import subprocess
    from queue import SimpleQueue

_OPTIMIZE = 2  # of code generation; passes over the text gain nothing, vectors are explicit
_POSITION = ("pic", "small")  # code that runs wherever it lies
_WORTH_A_PROCESS = 300_000  # characters of text: about 60 ms of compiling, and LLVM's memory
_FRAME = struct.Struct("<q")

# Runs in the other process: frames of text in, frames of objects out, until the pipe closes. No text: what LLVM says of
# the processor.
_HELPER = """
import json, struct, sys
sys.path.insert(0, sys.argv[1])
import llvmlite.binding as llvm
llvm.initialize_native_target(); llvm.initialize_native_asmprinter(); llvm.initialize_native_asmparser()
triple, cpu, features, level, *position = sys.argv[2:]
machine = llvm.Target.from_triple(triple).create_target_machine(cpu, features, int(level), *position)
read, write = sys.stdin.buffer, sys.stdout.buffer
while size := read.read(8):
    text = read.read(*struct.unpack("<q", size)).decode()
    if text:
        made = machine.emit_object(llvm.parse_assembly(text))
    else:
        made = json.dumps([llvm.get_host_cpu_name(), dict(llvm.get_host_cpu_features())]).encode()
    write.write(struct.pack("<q", len(made)) + made)
    write.flush()
"""


def target_machine(cpu: str, features: str) -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # LLVM ends the process over inline assembly without it
    return llvm.Target.from_triple(target_triple()).create_target_machine(cpu, features, _OPTIMIZE, *_POSITION)


# A module's text, or what writes it: then its name says all it depends on, and a cached object needs no text at all.
Source = Union[str, Callable[[], str]]


def _compiler() -> str:
    """The installed llvmlite, as far as it can be seen without loading it."""
    found = importlib.util.find_spec("llvmlite")
    if found is None or found.origin is None:
        return ""
    status = os.stat(found.origin)
    return f"{found.origin} {status.st_size} {status.st_mtime_ns}"


def object_key(text: str, cpu: str, features: str) -> str:
    return cache_key(text, cpu, features, VERSION, COMPILER, target_triple(), str(_OPTIMIZE), *_POSITION)


def _fingerprint() -> str:
    """The engine's own code, as far as it can be seen: what other code wrote is not taken for what this would write."""
    seen = []
    for folder, _, names in os.walk(os.path.dirname(os.path.dirname(__file__))):
        for path in (os.path.join(folder, name) for name in names if name.endswith(".py")):
            status = os.stat(path)
            seen.append(f"{os.path.basename(path)} {status.st_size} {status.st_mtime_ns}")
    return cache_key(COMPILER, *sorted(seen))


_PROCESS = os.getpid()
COMPILER = _compiler()
FINGERPRINT = _fingerprint()  # now: later the files may be others than those that were loaded


def build_kernels(
    kernels: Mapping[str, Source], cpu: str, features: str, cache: Cache | None = None, limit: int | None = None
) -> list[bytes]:
    """An object for each kernel, in order; only what is not cached is written and compiled.

    ``limit``: characters that may be compiled; more of them raise ``CodeSizeError``.
    """
    known = {
        name: object_key(source if isinstance(source, str) else f"{name} {FINGERPRINT}", cpu, features)
        for name, source in kernels.items()
    }
    wanted = {known[name]: source for name, source in kernels.items()}
    return _build(wanted, known.values(), cpu, features, cache, limit)


def build_objects(texts: Sequence[str], cpu: str, features: str, cache: Cache | None = None) -> list[bytes]:
    """An object for each module text, in order."""
    keys = [object_key(text, cpu, features) for text in texts]
    return _build(dict(zip(keys, texts, strict=True)), keys, cpu, features, cache)


def _build(
    sources: Mapping[str, Source], wanted: Iterable[str], cpu: str, features: str, cache: Cache | None,
    limit: int | None = None,
) -> list[bytes]:  # fmt: skip
    store = cache or default_cache()
    found = {key: data for key in sources if (data := store.get(key)) is not None}
    missing = {key: source for key, source in sources.items() if key not in found}
    if missing:
        made = compile_all(_within(limit, missing.values()), cpu, features)
        for key, data in zip(missing, made, strict=True):
            store.put(key, data)
            found[key] = data
        store.trim()
    return [found[key] for key in wanted]


def _within(limit: int | None, sources: Iterable[Source]) -> Iterator[str]:
    """Texts, as long as they are no more than the limit together."""
    total = 0
    for source in sources:
        text = source if isinstance(source, str) else source()
        total += len(text)
        if limit is not None and total > limit:
            raise CodeSizeError("device graph", f"kernels may have {limit} characters of LLVM text", value=total)
        yield text


def compile_all(sources: Iterable[Source], cpu: str, features: str, processes: int | None = None) -> list[bytes]:
    """Compile every text, in up to ``processes`` other processes (as many as there are cores) if there is much."""
    from queue import SimpleQueue  # only when something may have to be compiled

    most = _cores() if processes is None else processes
    texts: list[str] = []
    results: dict[int, bytes] = {}
    queue: SimpleQueue[int | None] = SimpleQueue()
    helpers: list[_Helper] = []
    written = 0 if _loaded() else _WORTH_A_PROCESS  # LLVM is not loaded for a little either
    try:
        for at, source in enumerate(sources):
            texts.append(source if isinstance(source, str) else source())
            queue.put(at)
            written += len(texts[at])
            wanted = most if processes is not None else min(most, written // _WORTH_A_PROCESS)
            helpers += [_Helper(texts, queue, results, cpu, features) for _ in range(wanted - len(helpers))]
    except BaseException:
        while not queue.empty():  # nobody will ask for the objects
            queue.get()
        raise
    finally:
        for _ in helpers:
            queue.put(None)
        for helper in helpers:
            helper.finish()
    left = [at for at in range(len(texts)) if at not in results]  # too few for a helper, or one died with it
    machine = target_machine(cpu, features) if left else None
    for at in left:
        results[at] = _compile(machine, texts[at])
    return [results[at] for at in range(len(texts))]


def _loaded() -> bool:
    """Whether LLVM is here and may be used: in a forked child a thread that is not there may hold its locks."""
    return "llvmlite.binding" in sys.modules and os.getpid() == _PROCESS


def host_cpu() -> tuple[str, dict[str, bool]]:
    """The name of this processor and what it can do, as LLVM has it."""
    from queue import SimpleQueue

    answers: dict[int, bytes] = {}
    if not _loaded():
        queue: SimpleQueue[int | None] = SimpleQueue()
        queue.put(0)
        queue.put(None)
        _Helper([""], queue, answers, "", "").finish()
    if answers:
        cpu, features = json.loads(answers[0])
        return cpu, features
    import llvmlite.binding as llvm

    return llvm.get_host_cpu_name(), dict(llvm.get_host_cpu_features())


def _compile(machine: Any, text: str) -> bytes:
    import llvmlite.binding as llvm

    try:
        made: bytes = machine.emit_object(llvm.parse_assembly(text))
    except RuntimeError as error:
        raise CodegenError("kernel", f"LLVM must accept the text: {error}", remedy="Please report this.") from error
    return made


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Helper:
    """Another Python that compiles, and the thread that feeds it."""

    def __init__(
        self, texts: list[str], queue: SimpleQueue[int | None], results: dict[int, bytes], cpu: str, features: str
    ) -> None:
        self._texts, self._queue, self._results = texts, queue, results
        folder = str(Path(COMPILER.split(" ")[0]).parent.parent) if COMPILER else ""
        self._arguments = (folder, target_triple(), cpu, features, str(_OPTIMIZE), *_POSITION)
        self._thread = threading.Thread(target=self._feed, daemon=True, name="edgewright-build")
        self._thread.start()

    def _feed(self) -> None:
        """Whatever goes wrong here, the text stays without an object, and this process compiles it."""
        if getattr(sys, "frozen", False) or not sys.executable:
            return  # there is no Python to start, only the application itself
        import subprocess  # only when something must be compiled

        command = [sys.executable, "-I", "-S", "-c", _HELPER, *self._arguments]
        try:
            with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=subprocess.DEVNULL) as process:
                while (at := self._queue.get()) is not None:
                    if made := self._ask(process, self._texts[at]):
                        self._results[at] = made
        except (OSError, struct.error):
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
