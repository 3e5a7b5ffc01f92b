"""Loading of programs: ``Runtime.get().load_program("m.pte").load_method("forward").execute([x])``."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from edgewright.backends.registry import available_delegates
from edgewright.engine.jit.thread_count import thread_count
from edgewright.engine.runner import native_available
from edgewright.errors import FormatError, MissingDataError, UsageError
from edgewright.files import Source, open_source, text_path
from edgewright.forks import renew_in_child
from edgewright.formats.pte_reader import read_program
from edgewright.formats.schema import Dynamism, ExecutionPlan, Program, Tensor
from edgewright.hints import did_you_mean
from edgewright.runtime.arguments import check_instance
from edgewright.runtime.metadata import MethodMetadata, describe
from edgewright.runtime.method import Method
from edgewright.runtime.registry import all_kernels
from edgewright.runtime.shared_state import SharedState, is_shared, shares_state
from edgewright.runtime.twin_delegate import find_twin_file
from edgewright.runtime.values import Limits

if TYPE_CHECKING:
    from edgewright.formats.ptd import PtdEntry
    from edgewright.runtime.variant_cache import VariantCache


class Runtime:
    """Loads programs. ``get`` returns the default instance; a runtime has no per-program state.

    ``threads``: how many a method may use (None: ``EDGEWRIGHT_THREADS``, or one per physical core).
    """

    _instance: ClassVar[Runtime | None] = None

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None:
            thread_count(threads)
        self.threads = threads

    @classmethod
    def get(cls) -> Runtime:
        cls._instance = cls._instance or cls()
        return cls._instance

    def load_program(
        self, source: Source, data: Source | Sequence[Source] | None = None, *, limits: Limits | None = None,
        twin: Source | None = None,
    ) -> LoadedProgram:  # fmt: skip
        """Read and verify a ``.pte`` (path, bytes, mmap), with its ``.ptd`` files if it has any.

        ``twin``: host twins for blobs that only a device can run, if they are neither embedded nor next to the file.
        """
        if limits is not None:
            check_instance("limits", limits, Limits, "Write limits=Limits(memory=...).")
        if twin is not None:
            open_source(twin, "twin")  # fails now if it cannot be read; the contents are read on first use
        program = read_program(source)
        twin_source = find_twin_file(source) if twin is None else twin
        loaded = LoadedProgram(
            program, _merge_data(data), Limits() if limits is None else limits, twin_source, self.threads
        )
        loaded.path = text_path(source)
        return loaded

    @property
    def operators(self) -> list[str]:
        """Every operator with a kernel."""
        return sorted(all_kernels())

    @property
    def delegates(self) -> list[str]:
        """Every backend whose blobs can run."""
        return available_delegates()


class LoadedProgram:
    """A verified program and its external data. ``path``: of its file, if it is one."""

    path: str | None = None

    def __init__(
        self, program: Program, data: Mapping[str, PtdEntry], limits: Limits, twin: Source | None = None,
        threads: int | None = None,
    ) -> None:  # fmt: skip
        check_instance("program", program, Program, "Runtime.get().load_program(path) makes one of a file.")
        self.program = program
        self._data = data
        self._limits = limits
        self._twin = twin
        self._threads = threads
        self._loading = threading.Lock()
        self._shared: SharedState | None = None
        renew_in_child(self)
        clash = sorted({item.key for item in program.named_data or ()} & set(data))
        if clash:
            raise MissingDataError("data", "must not repeat names of the program's own data", value=", ".join(clash))

    @property
    def method_names(self) -> list[str]:
        return [plan.name for plan in self.program.execution_plan]

    def _repr_html_(self) -> str:
        """For notebooks."""
        from edgewright.runtime.html import program_html

        return program_html(self.program)

    def metadata(self, name: str = "forward") -> MethodMetadata:
        """A method's signature and requirements, without loading it."""
        return describe(self.program.execution_plan[self._index(name)])

    def load_method(self, name: str = "forward") -> Method:
        """A method with its own memory, ready to run. Load it again for another thread or fresh state.

        State that methods share (``share_mutable_buffers``) exists once per loaded program, and their executions are
        serialized; load the program again for independent state.
        """
        index = self._index(name)
        try:
            plan = self.program.execution_plan[index]
            shared = self._shared_state() if any(map(is_shared, plan.values)) else None
            variants = self._variants(plan)
            return Method(self.program, plan, self._data, self._limits, self._twin, self._threads, shared, variants)
        except FormatError as error:
            raise error.inside(f"execution_plan[{index}]") from None

    def _variants(self, plan: ExecutionPlan) -> VariantCache | None:
        """The stored specializations of a method with dynamic shapes and delegates."""
        dynamic = any(isinstance(v, Tensor) and v.shape_dynamism != Dynamism.STATIC for v in plan.values)
        if not dynamic or not plan.delegates or not plan.operators or self._data or not native_available():
            return None
        from edgewright.runtime.variant_cache import VariantCache, file_digest

        digest = file_digest(self.path)
        return None if digest is None else VariantCache(digest, plan.name or "", self._limits.memory, self._threads)

    def _shared_state(self) -> SharedState | None:
        with self._loading:
            if self._shared is None and shares_state(self.program):
                self._shared = SharedState(self.program, self._data, self._limits.memory)
            return self._shared

    def _renew(self) -> None:
        self._loading = threading.Lock()

    def _index(self, name: str) -> int:
        check_instance("method name", name, str)
        if name not in self.method_names:
            raise UsageError(f"method {name!r}", f"must be one of {', '.join(self.method_names)}",
                             remedy=did_you_mean(name, self.method_names))  # fmt: skip
        return self.method_names.index(name)


def _merge_data(data: Source | Sequence[Source] | None) -> dict[str, PtdEntry]:
    sources = [] if data is None else list(data) if isinstance(data, list | tuple) else [data]
    merged: dict[str, PtdEntry] = {}
    if sources:
        from edgewright.formats.ptd import read_data
    for source in sources:
        entries = read_data(source)  # type: ignore[arg-type]
        clash = sorted(set(merged) & set(entries))
        if clash:
            raise MissingDataError("data", "files must not repeat names", value=", ".join(clash))
        merged.update(entries)
    return merged
