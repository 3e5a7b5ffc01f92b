"""Compiles LLVM IR to object code, through the object cache and in parallel processes.

llvmlite compiles on one thread at a time, and forking a multithreaded process may deadlock. Parallel compilation
therefore uses fresh Python processes that load only llvmlite and receive IR over a pipe while more of it is generated.
LLVM is never loaded into this process if the workers compile everything, or if everything is cached.
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

_OPT_LEVEL = 2  # code generation level; IR passes gain nothing, vectorization is explicit
_CODE_MODEL = ("pic", "small")  # relocation and code model
_IR_PER_PROCESS = 300_000  # characters of IR: about 60 ms of compile time
_FRAME = struct.Struct("<q")

# Runs in a compiler process: length-prefixed IR in, length-prefixed objects out, until the pipe closes. An empty frame
# asks for the host CPU's name and features.
_COMPILER_SCRIPT = """
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
    return llvm.Target.from_triple(target_triple()).create_target_machine(cpu, features, _OPT_LEVEL, *_CODE_MODEL)


# A module's IR, or a function that generates it. A generated kernel's name determines its IR, so a cached object needs
# no IR at all.
Source = Union[str, Callable[[], str]]


def _compiler() -> str:
    """Fingerprint the installed llvmlite without loading it."""
    spec = importlib.util.find_spec("llvmlite")
    if spec is None or spec.origin is None:
        return ""
    status = os.stat(spec.origin)
    return f"{spec.origin} {status.st_size} {status.st_mtime_ns}"


def object_key(text: str, cpu: str, features: str) -> str:
    return cache_key(text, cpu, features, VERSION, COMPILER, target_triple(), str(_OPT_LEVEL), *_CODE_MODEL)


def _fingerprint() -> str:
    """Fingerprint the engine's sources: objects of other versions are not reused."""
    files = []
    for folder, _, names in os.walk(os.path.dirname(os.path.dirname(__file__))):
        for path in (os.path.join(folder, name) for name in names if name.endswith(".py")):
            status = os.stat(path)
            files.append(f"{os.path.basename(path)} {status.st_size} {status.st_mtime_ns}")
    return cache_key(COMPILER, *sorted(files))


_IMPORT_PID = os.getpid()
COMPILER = _compiler()
FINGERPRINT = _fingerprint()  # at import: files may change later


def build_kernels(
    kernels: Mapping[str, Source], cpu: str, features: str, cache: Cache | None = None, limit: int | None = None
) -> list[bytes]:
    """An object per kernel, in order; IR is generated and compiled only for those that are not cached.

    ``limit``: characters of IR to compile at most; more raise ``CodeSizeError``.
    """
    keys = {
        name: object_key(source if isinstance(source, str) else f"{name} {FINGERPRINT}", cpu, features)
        for name, source in kernels.items()
    }
    sources = {keys[name]: source for name, source in kernels.items()}
    return _build(sources, keys.values(), cpu, features, cache, limit)


def build_objects(texts: Sequence[str], cpu: str, features: str, cache: Cache | None = None) -> list[bytes]:
    """An object per module, in order."""
    keys = [object_key(text, cpu, features) for text in texts]
    return _build(dict(zip(keys, texts, strict=True)), keys, cpu, features, cache)


def _build(
    sources: Mapping[str, Source], keys: Iterable[str], cpu: str, features: str, cache: Cache | None,
    limit: int | None = None,
) -> list[bytes]:  # fmt: skip
    store = cache or default_cache()
    objects = {key: data for key in sources if (data := store.get(key)) is not None}
    missing = {key: source for key, source in sources.items() if key not in objects}
    if missing:
        compiled = compile_all(_within(limit, missing.values()), cpu, features)
        for key, data in zip(missing, compiled, strict=True):
            store.put(key, data)
            objects[key] = data
        store.trim()
    return [objects[key] for key in keys]


def _within(limit: int | None, sources: Iterable[Source]) -> Iterator[str]:
    """Yield the IR of each module; raise once its total length exceeds the limit."""
    total = 0
    for source in sources:
        text = source if isinstance(source, str) else source()
        total += len(text)
        if limit is not None and total > limit:
            raise CodeSizeError("device graph", f"kernels may have {limit} characters of LLVM text", value=total)
        yield text


def compile_all(sources: Iterable[Source], cpu: str, features: str, processes: int | None = None) -> list[bytes]:
    """Compile every module; large amounts in up to ``processes`` processes, by default one per core."""
    from queue import SimpleQueue  # imported late

    max_processes = _cores() if processes is None else processes
    texts: list[str] = []
    results: dict[int, bytes] = {}
    queue: SimpleQueue[int | None] = SimpleQueue()
    compilers: list[_CompilerProcess] = []
    ir_size = 0 if _is_llvm_loaded() else _IR_PER_PROCESS  # a compiler process is cheaper than loading LLVM here
    try:
        for at, source in enumerate(sources):
            texts.append(source if isinstance(source, str) else source())
            queue.put(at)
            ir_size += len(texts[at])
            count = max_processes if processes is not None else min(max_processes, ir_size // _IR_PER_PROCESS)
            compilers += [_CompilerProcess(texts, queue, results, cpu, features) for _ in range(count - len(compilers))]
    except BaseException:
        while not queue.empty():  # the objects are not needed any more
            queue.get()
        raise
    finally:
        for _ in compilers:
            queue.put(None)
        for compiler in compilers:
            compiler.finish()
    remaining = [at for at in range(len(texts)) if at not in results]  # too little for a process, or a process died
    machine = target_machine(cpu, features) if remaining else None
    for at in remaining:
        results[at] = _compile(machine, texts[at])
    return [results[at] for at in range(len(texts))]


def _is_llvm_loaded() -> bool:
    """Whether LLVM is loaded and usable: in a forked child, threads that no longer exist may hold its locks."""
    return "llvmlite.binding" in sys.modules and os.getpid() == _IMPORT_PID


def host_cpu() -> tuple[str, dict[str, bool]]:
    """The name and features of the host CPU, as LLVM reports them."""
    from queue import SimpleQueue

    answers: dict[int, bytes] = {}
    if not _is_llvm_loaded():
        queue: SimpleQueue[int | None] = SimpleQueue()
        queue.put(0)
        queue.put(None)
        _CompilerProcess([""], queue, answers, "", "").finish()
    if answers:
        cpu, features = json.loads(answers[0])
        return cpu, features
    import llvmlite.binding as llvm

    return llvm.get_host_cpu_name(), dict(llvm.get_host_cpu_features())


def _compile(machine: Any, text: str) -> bytes:
    import llvmlite.binding as llvm

    try:
        code: bytes = machine.emit_object(llvm.parse_assembly(text))
    except RuntimeError as error:
        raise CodegenError("kernel", f"LLVM must accept the text: {error}", remedy="Please report this.") from error
    return code


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _CompilerProcess:
    """A compiler process, and the thread that feeds it."""

    def __init__(
        self, texts: list[str], queue: SimpleQueue[int | None], results: dict[int, bytes], cpu: str, features: str
    ) -> None:
        self._texts, self._queue, self._results = texts, queue, results
        folder = str(Path(COMPILER.rsplit(" ", 2)[0]).parent.parent) if COMPILER else ""
        self._arguments = (folder, target_triple(), cpu, features, str(_OPT_LEVEL), *_CODE_MODEL)
        self._thread = threading.Thread(target=self._compile_queued, daemon=True, name="edgewright-build")
        self._thread.start()

    def _compile_queued(self) -> None:
        """On any failure the module stays without an object, and this process compiles it."""
        if getattr(sys, "frozen", False) or not sys.executable:
            return  # a frozen application: there is no Python to start
        import subprocess  # only when something must be compiled

        command = [sys.executable, "-I", "-S", "-c", _COMPILER_SCRIPT, *self._arguments]
        try:
            with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=subprocess.DEVNULL) as process:
                while (at := self._queue.get()) is not None:
                    if code := self._ask(process, self._texts[at]):
                        self._results[at] = code
        except (OSError, struct.error):
            return

    def _ask(self, process: subprocess.Popen[bytes], text: str) -> bytes:
        assert process.stdin is not None and process.stdout is not None
        data = text.encode()
        process.stdin.write(_FRAME.pack(len(data)) + data)
        process.stdin.flush()
        (size,) = _FRAME.unpack(process.stdout.read(_FRAME.size))
        code = process.stdout.read(size)
        return code if len(code) == size else b""

    def finish(self) -> None:
        self._thread.join()
