"""Binding of instructions to steps: arguments are resolved and checked once, at load."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from edgewright.errors import ExecutionError, FormatError
from edgewright.formats.flatbuffer_reader import newer_release
from edgewright.formats.operator_signatures import OPERATORS, Argument, Kind
from edgewright.runtime.kernel import Kernel
from edgewright.runtime.step import Step, Values
from edgewright.runtime.tensor import TensorSlot
from edgewright.runtime.values import IntItems, TensorItems

Getter = Callable[[Values], Any]

_ACCEPTS: dict[Kind, tuple[type, ...]] = {
    Kind.INT: (int,), Kind.FLOAT: (float, int), Kind.BOOL: (bool,), Kind.NUMBER: (int, float, bool), Kind.STR: (str,),
    Kind.INTS: (IntItems,), Kind.FLOATS: (list,), Kind.BOOLS: (list,), Kind.TENSOR: (TensorSlot,),
    Kind.TENSORS: (TensorItems,), Kind.OPTIONAL_TENSORS: (TensorItems,),
}  # fmt: skip


def check_kind(value: Any, argument: Argument) -> None:
    """Raise unless ``value`` is of the argument's kind."""
    if argument.kind is Kind.ANY or (value is None and argument.optional):
        return
    accepted = _ACCEPTS[argument.kind]
    if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in accepted):
        expected = f"{argument.kind.value} or null" if argument.optional else argument.kind.value
        raise FormatError(f"argument {argument.name!r} must be {expected}", value=type(value).__name__)


def load(value: Any, values: Values) -> Any:
    """The argument passed to a kernel: an array for a tensor, a Python value for anything else."""
    if isinstance(value, TensorSlot):
        if value.array is None:
            raise ExecutionError("tensor", "has no data yet: no input or instruction has filled it")
        return value.array
    if isinstance(value, IntItems):
        items = [values[i] for i in value.indices]
        if not all(type(i) is int for i in items):
            raise ExecutionError("list of integers", "must hold integers", value=items)
        return items
    if isinstance(value, TensorItems):
        return [None if i is None else _load_member(values[i], values) for i in value.indices]
    return value


def _load_member(value: Any, values: Values) -> Any:
    """A tensor of a list. A move may have replaced it with a list; nested lists could grow without bound."""
    if value is not None and not isinstance(value, TensorSlot):
        raise ExecutionError("list of tensors", "must hold tensors", value=type(value).__name__)
    return load(value, values)


def make_getter(index: int, argument: Argument, values: Values, replaced: set[int], *, raw: bool = False) -> Getter:
    """A function that loads argument ``index`` at run time; constants are checked and loaded now."""
    value = values[index]
    if raw and isinstance(value, TensorSlot):
        return lambda table: table[index]
    if index in replaced:

        def fetch(table: Values) -> Any:
            check_kind(table[index], argument)
            return load(table[index], table)

        return fetch
    check_kind(value, argument)
    if isinstance(value, TensorSlot | TensorItems):
        return lambda table: load(value, table)
    if isinstance(value, IntItems) and not replaced.isdisjoint(value.indices):
        return lambda table: load(value, table)
    constant = load(value, values)
    return lambda table: constant


def slots(index: int, values: Values) -> list[TensorSlot]:
    """The tensors written through value ``index`` (a tensor or a list of tensors)."""
    value = values[index]
    targets = [values[i] for i in value.indices if i is not None] if isinstance(value, TensorItems) else [value]
    for slot in targets:
        if not isinstance(slot, TensorSlot):
            raise FormatError("a result must be a tensor", value=type(slot).__name__)
        if slot.memory is not None and slot.memory.size and not slot.memory.flags.writeable:
            raise FormatError("a result must not be a constant of the file")
        slot.mutated = True
    return targets


class KernelStep(Step):
    """A kernel call with its arguments bound. ``result``: the value that a scalar result replaces."""

    def __init__(self, kernel: Kernel, args: Sequence[int], values: Values, replaced: set[int]) -> None:
        self.kernel = kernel
        inputs, outputs, self.result = _split(kernel, args, values)
        self.getters = [make_getter(i, argument, values, replaced, raw=kernel.raw) for i, argument in inputs]
        self.inputs, self.outputs = [i for i, _ in inputs], outputs
        self.mutated = [i for i, argument in inputs if argument.is_write]  # updated in place
        for index in (*self.outputs, *self.mutated):
            if index not in replaced:
                slots(index, values)

    @property
    def label(self) -> str:
        return self.kernel.key

    def __call__(self, table: Values) -> None:
        outputs = [slot for index in self.outputs for slot in slots(index, table)]
        result = self.kernel([get(table) for get in self.getters], outputs)
        if self.result is not None:
            table[self.result] = _scalar_result(result)


def _scalar_result(result: Any) -> Any:
    if isinstance(result, np.generic):
        result = result.item()
    if type(result) is int and not -(1 << 63) <= result < 1 << 63:
        raise ExecutionError("integer", "must fit 64 bits", value=result)
    return result


def _split(
    kernel: Kernel, args: Sequence[int], values: Values
) -> tuple[list[tuple[int, Argument]], list[int], int | None]:
    """A call's inputs, the values of its results, and the value that a scalar result replaces."""
    signature = kernel.signature
    if signature is None:
        count = _count_outputs(args, values)
        inputs = args[: len(args) - 1 - count]
        any_kind = Argument("?", Kind.ANY)
        return [(i, any_kind) for i in inputs], list(args[len(inputs) : -1]), None
    if len(args) != signature.num_values:
        rule = f"{kernel.key} takes {signature.num_values} values"
        added = len(args) > signature.num_values and kernel.key in OPERATORS  # ExecuTorch's own
        raise newer_release(rule, len(args)) if added else FormatError(rule, value=len(args))
    inputs = args[: len(signature.inputs)]
    scalar = not signature.outputs and not any(a.is_write for a in signature.args)
    outputs = list(args[len(inputs) : len(signature.args)])
    return list(zip(inputs, signature.inputs, strict=True)), outputs, args[-1] if scalar else None


def _count_outputs(args: Sequence[int], values: Values) -> int:
    """The number of results of a call without signature: its last argument repeats them."""
    if len(args) < 2:
        raise FormatError("an operator call lists its result twice", value=list(args))
    last = values[args[-1]]
    if isinstance(last, TensorItems) and args[-1] != args[-2]:
        return len(last.indices) if list(args[-1 - len(last.indices) : -1]) == list(last.indices) else 1
    return 1


def written_values(calls: Iterable[tuple[Kernel | None, Sequence[int]]]) -> set[int]:
    """Value indices that instructions replace (as opposed to tensor contents): scalar results and move targets."""
    indices: set[int] = set()
    for kernel, args in calls:
        if kernel is None:
            indices.update(args)
        elif kernel.signature is not None and not any(a.is_write for a in kernel.signature.args) and args:
            indices.add(args[-1])
    return indices
