"""State shared by the methods of a program, and the lock that serializes their executions.

ExecuTorch plans the buffers of ``share_mutable_buffers`` in the arena with memory id 2, at the same offsets in every
method. If several methods of a loaded program use that arena, it exists once.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewright.errors import LimitError
from edgewright.forks import renew_in_child
from edgewright.formats import checked_int, schema
from edgewright.runtime.tensor import RAISE_MEMORY, Array

if TYPE_CHECKING:
    from edgewright.formats.ptd import PtdEntry

MEMORY_ID = 2
_HUGE_PAGES_FROM = 16 << 20  # bytes


class Guard:
    """Serializes executions. ``torn``: a fork interrupted one in another thread, which may have left state half
    written."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.torn = False
        renew_in_child(self)

    def _renew(self) -> None:
        self.torn = self.lock.locked()
        self.lock = threading.Lock()


class SharedState:
    """The shared arena and its initial contents."""

    def __init__(self, program: schema.Program, data: Mapping[str, PtdEntry], memory: int) -> None:
        self.guard = Guard()
        size = max(arena_extents(plan)[MEMORY_ID] for plan in _sharing(program))
        self.arena = allocate("shared state", size, memory)
        tensors = [
            v for plan in _sharing(program) for v in plan.values if isinstance(v, schema.Tensor) and is_shared(v)
        ]
        self._initial = [(t, stored) for t in tensors if (stored := initial_bytes(program, t, data)) is not None]
        self.reset()

    def reset(self) -> None:
        self.arena[:] = 0
        for tensor, data in self._initial:
            info, size = tensor.allocation_info, tensor_bytes(tensor)
            start = info.offset if info is not None else 0
            self.arena[start : start + size] = np.frombuffer(data, np.uint8, size)


def shares_state(program: schema.Program) -> bool:
    """True if several methods of a program use the arena of shared state."""
    return len(_sharing(program)) > 1


def is_shared(value: Any) -> bool:
    """True for a tensor in the arena of shared state."""
    info = value.allocation_info if isinstance(value, schema.Tensor) else None
    return info is not None and info.memory_id == MEMORY_ID


def _sharing(program: schema.Program) -> list[schema.ExecutionPlan]:
    return [plan for plan in program.execution_plan if any(map(is_shared, plan.values))]


def arena_extents(plan: schema.ExecutionPlan) -> list[int]:
    """The number of bytes of each arena that the tensors of a plan cover."""
    extents = [0] * len(plan.non_const_buffer_sizes)
    for value in plan.values:
        if isinstance(value, schema.Tensor) and value.allocation_info is not None:
            info = value.allocation_info
            extents[info.memory_id] = max(extents[info.memory_id], checked_int.add(info.offset, tensor_bytes(value)))
    return extents


def tensor_bytes(tensor: schema.Tensor) -> int:
    return checked_int.tensor_bytes(tensor.scalar_type, tensor.sizes)


def allocate(subject: str, size: int, limit: int) -> Array:
    """Zeroed memory within the limit."""
    if size > limit:
        raise LimitError(subject, f"may plan {limit} bytes", value=size, remedy=RAISE_MEMORY)
    try:
        return _zeros(size)
    except (MemoryError, OSError) as error:
        raise LimitError(subject, "does not fit in memory", value=f"{size} bytes") from error


def _zeros(size: int) -> Array:
    """Zeros, in huge pages if there are many: decoding reads key-value caches from one end to the other for every
    token, which takes longer where each 4 KiB need an entry of the TLB."""
    if sys.platform != "linux" or size < _HUGE_PAGES_FROM:
        return np.zeros(size, np.uint8)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


def initial_bytes(program: schema.Program, tensor: schema.Tensor, data: Mapping[str, PtdEntry]) -> Any:
    """The initial contents of a tensor, or None: a view of the file, never a copy."""
    if tensor.external:
        assert tensor.extra_tensor_info is not None
        return data[tensor.extra_tensor_info.fully_qualified_name or ""].data
    if not tensor.data_buffer_idx:
        return None
    mutable = tensor.allocation_info is not None
    source = (program.mutable_data_segments or [])[0] if mutable else program.constant_segment
    assert source is not None
    assert source.offsets is not None
    start = source.offsets[tensor.data_buffer_idx]
    return memoryview(program.segment(source.segment_index))[start : start + tensor_bytes(tensor)]
