"""Shape specializations of a method on disk: a process that runs a program seen before neither parses its delegates nor
plans its graphs.

An entry is a plan with its machine code (``engine/jit/plan_cache.py``), and where the compiled calls read and write the
method's values. Packed weights are in mapped files that all shapes share (``engine/jit/weight_store.py``). The key
digests the program's file, the method, the shapes, the CPU, the number of threads, and the sources of this package. The
digest of a file is kept for its inode, size and times, so that a large file is not read to be recognized.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from edgewright.engine.isa import host_isa
from edgewright.engine.jit.build import FINGERPRINT
from edgewright.engine.jit.cache import cache_key, default_cache
from edgewright.engine.jit.driver import CompiledGraph
from edgewright.engine.jit.elf import CodegenError
from edgewright.engine.jit.plan_cache import read_entry, source_fingerprint, write_entry
from edgewright.engine.jit.thread_count import thread_count
from edgewright.engine.jit.weight_store import WeightStore
from edgewright.engine.tuning_params import tuned_fingerprint
from edgewright.files import text_path
from edgewright.runtime.tensor import Shape

_SOURCES = ("runtime", "lowering", "ir", "formats", "backends", "engine")
_PIECE = 16 << 20  # bytes hashed at a time


def file_digest(source: object) -> str | None:
    """The SHA-256 of a file; None if ``source`` is no path, or the file changes meanwhile."""
    path = text_path(source)
    if path is None:
        return None
    try:
        before = _identity(path)
        key = cache_key("digest of a file", before)
        known = default_cache().get(key)
        if known is not None:
            return known.decode()
        digest = hashlib.sha256()
        with open(path, "rb", buffering=0) as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
        if _identity(path) != before:
            return None
    except OSError:
        return None
    default_cache().put(key, digest.hexdigest().encode())
    return digest.hexdigest()


def _identity(path: str) -> str:
    """What changes if a file does: its time of change cannot be set by programs."""
    status = os.stat(path)
    return str((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))


class VariantCache:
    """The specializations of one method of one program."""

    def __init__(self, program: str, method: str, memory: int, threads: int | None) -> None:
        self._isa, self._threads = host_isa(), thread_count(threads)
        isa = self._isa
        sources = source_fingerprint(*_SOURCES)
        options = str((self._threads, memory, isa.bf16, tuned_fingerprint(isa, self._threads)))
        self._key = cache_key("variants", program, method, isa.cpu, isa.features, options, FINGERPRINT, sources)
        self.store = WeightStore(cache_key(program, isa.cpu, isa.features, FINGERPRINT, sources))

    # ------------------------------------------------------------------------------------------------------- delegates

    def delegates(self) -> list[tuple[int, list[int]]] | None:
        """For each delegate of the method, how many arguments of its calls are inputs, and the positions of those that
        are constants; None if no specialization is stored."""
        stored = default_cache().get(self._key)
        try:
            return None if stored is None else [(int(n), [int(i) for i in bound]) for n, bound in json.loads(stored)]
        except (ValueError, TypeError):
            return None

    def save_delegates(self, delegates: Sequence[tuple[int, Sequence[int]]]) -> None:
        default_cache().put(self._key, json.dumps([[n, sorted(bound)] for n, bound in delegates]).encode())

    # -------------------------------------------------------------------------------------------------------- variants

    def _variant_key(self, shapes: Sequence[Shape]) -> str:
        return cache_key(self._key, str([list(shape) for shape in shapes]))

    def load(self, shapes: Sequence[Shape]) -> tuple[CompiledGraph, Mapping[str, Any]] | None:
        """The compiled graph for inputs of these shapes, and what ``save`` was given with it."""
        entry = read_entry(self._variant_key(shapes), self._isa, lambda header: "binding" in header, self.store)
        try:
            return None if entry is None else (CompiledGraph(entry[0], self._threads), entry[1]["binding"])
        except (CodegenError, LookupError):  # refers to something the entry does not contain
            return None

    def save(self, shapes: Sequence[Shape], graph: CompiledGraph, binding: Mapping[str, Any]) -> bool:
        """Store a compiled graph with ``binding``, which JSON can hold."""
        places = self.store.places(graph.plan.shared)
        if places is None:
            return False
        return write_entry(self._variant_key(shapes), graph, lambda: {"binding": binding, "shared": places})
