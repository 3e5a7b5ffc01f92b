"""The value table of a loaded method: from file tables to tensors over planned memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewright.errors import LimitError, MissingDataError
from edgewright.formats import checked_int, schema
from edgewright.runtime.arguments import check_count
from edgewright.runtime.shared_state import MEMORY_ID, SharedState, allocate, arena_extents, initial_bytes, is_shared
from edgewright.runtime.tensor import RAISE_MEMORY, Array, MemoryPool, TensorSlot

if TYPE_CHECKING:
    from edgewright.formats.ptd import PtdEntry


@dataclass(frozen=True)
class Limits:
    """Resource limits for a file.

    ``memory``: bytes of all arenas of a method; the same again for tensors without planned memory, and for outputs.
    ``instructions``: per execution.
    """

    memory: int = 4 << 30
    instructions: int = 10_000_000

    def __post_init__(self) -> None:
        check_count("Limits.memory", self.memory, 0)
        check_count("Limits.instructions", self.instructions, 1)


@dataclass(frozen=True)
class IntItems:
    """A list of integers by value index."""

    indices: tuple[int, ...]


@dataclass(frozen=True)
class TensorItems:
    """A list of tensors by value index; None for an absent one."""

    indices: tuple[int | None, ...]


class MethodMemory:
    """The arenas of one method, one of them possibly shared. Allocates what tensors span, whatever the file claims."""

    def __init__(self, plan: schema.ExecutionPlan, limits: Limits, shared: SharedState | None = None) -> None:
        self.sizes = arena_extents(plan)
        subject = f"method {plan.name!r}"
        if sum(self.sizes) > limits.memory:
            rule = f"may plan {limits.memory} bytes"
            raise LimitError(subject, rule, value=sum(self.sizes), remedy=RAISE_MEMORY)
        self.arenas = [
            shared.arena if shared is not None and index == MEMORY_ID else allocate(subject, size, limits.memory)
            for index, size in enumerate(self.sizes)
        ]
        self.shared = shared

    def clear(self) -> None:
        """Zero the arenas that the method owns."""
        for index, arena in enumerate(self.arenas):
            if self.shared is None or index != MEMORY_ID:
                arena[:] = 0

    def view(self, info: schema.AllocationDetails, size: int) -> Array:
        return self.arenas[info.memory_id][info.offset : info.offset + size]


class ValueTable:
    """Builds the runtime value of every EValue of a plan."""

    def __init__(
        self, program: schema.Program, plan: schema.ExecutionPlan, data: Mapping[str, PtdEntry], limits: Limits,
        shared: SharedState | None = None,
    ) -> None:  # fmt: skip
        self.program = program
        self.plan = plan
        self.data = data
        self._require_external()
        self.memory = MethodMemory(plan, limits, shared)
        self.pool = MemoryPool(limits.memory)
        self.initial: list[tuple[Array, Any]] = []  # planned memory and its initial contents
        self.values = [self._value(v) for v in plan.values]
        self._restore_initial()  # the rest is zeros, which take no memory until they are used

    def reset(self) -> None:
        """Restore mutable state to its initial contents, for all methods that share it; zeros if the file has none."""
        if self.memory.shared is not None:
            self.memory.shared.reset()
        self._reset_own()

    def _reset_own(self) -> None:
        self.memory.clear()
        self._restore_initial()

    def _restore_initial(self) -> None:
        for memory, data in self.initial:
            memory[:] = np.frombuffer(data, np.uint8, memory.size)

    def _value(self, value: schema.Value) -> Any:
        if isinstance(value, schema.Tensor):
            return self._tensor(value)
        if isinstance(value, schema.IntList):
            return IntItems(tuple(value.items))
        if isinstance(value, schema.TensorList):
            return TensorItems(tuple(value.items))
        if isinstance(value, schema.OptionalTensorList):
            return TensorItems(tuple(None if i < 0 else i for i in value.items))
        if isinstance(value, schema.DoubleList | schema.BoolList):
            return list(value.items)
        if isinstance(value, schema.Null):
            return None
        return _scalar(value)

    def _tensor(self, tensor: schema.Tensor) -> TensorSlot:
        data, memory = initial_bytes(self.program, tensor, self.data), None
        if tensor.allocation_info is not None:
            size = checked_int.tensor_bytes(tensor.scalar_type, tensor.sizes)
            memory = self.memory.view(tensor.allocation_info, size)
            if data is not None and (self.memory.shared is None or not is_shared(tensor)):
                self.initial.append((memory, data))
        elif data is not None:
            memory = np.frombuffer(data, np.uint8)
        elif not tensor.shape_dynamism and not all(tensor.sizes):
            memory = np.zeros(0, np.uint8)
        return TensorSlot(
            tensor.scalar_type,
            tuple(tensor.sizes),
            tuple(tensor.dim_order),
            dynamic=tensor.shape_dynamism != schema.Dynamism.STATIC,
            memory=memory,
            pool=self.pool,
        )

    def _require_external(self) -> None:
        """Raise, naming all of them, if external tensors are missing or have another layout."""
        missing = []
        for tensor in self.plan.values:
            if not isinstance(tensor, schema.Tensor) or not tensor.external or tensor.extra_tensor_info is None:
                continue
            key = tensor.extra_tensor_info.fully_qualified_name or ""
            entry = self.data.get(key)
            if entry is None:
                missing.append(key)
            else:
                _check_layout(key, tensor, entry)
        if missing:
            subject = f"method {self.plan.name!r}"
            remedy = "Pass the .ptd written with this program: load_program(path, data='weights.ptd')."
            raise MissingDataError(subject, f"needs external tensors: {', '.join(missing)}", remedy=remedy)


def _scalar(value: schema.Int | schema.Bool | schema.Double | schema.String) -> int | bool | float | str:
    if isinstance(value, schema.Int):
        return value.int_val
    if isinstance(value, schema.Bool):
        return value.bool_val
    if isinstance(value, schema.Double):
        return value.double_val
    return value.string_val


def _check_layout(key: str, tensor: schema.Tensor, entry: PtdEntry) -> None:
    layout = entry.layout
    if layout is None:
        raise MissingDataError(f"external tensor {key!r}", "must be stored with its layout; the .ptd has bare bytes")
    expected = (tensor.scalar_type, tuple(tensor.sizes), tuple(tensor.dim_order))
    actual = (layout.scalar_type, tuple(layout.sizes), tuple(layout.dim_order))
    if expected != actual:
        rule = f"must have scalar type, sizes and dim order {expected}, as the program says"
        raise MissingDataError(f"external tensor {key!r}", rule, value=actual, remedy="Use the .ptd of this program.")
