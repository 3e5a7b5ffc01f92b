"""Shape inference for a method: sizes of all tensors from the sizes of its inputs, without running it.

Kernels have shape functions, delegates specialize their graphs, and scalars computed from sizes alone are evaluated on
the way. A number that is read from a tensor, such as the position of a token, stays unknown (``RuntimeInt``): results
of operators that only move with it (``MOVING``), or compute with it (``x < position``), have sizes that do not depend
on it. Any other size that depends on the contents of a tensor cannot be inferred.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edgewright.errors import ExecutionError
from edgewright.formats.operator_signatures import Kind
from edgewright.ir.graph import Graph
from edgewright.runtime.binding import KernelStep
from edgewright.runtime.delegate_calls import DelegateStep
from edgewright.runtime.kernel import Kernel
from edgewright.runtime.step import Step, Values
from edgewright.runtime.tensor import Array, Shape, TensorSlot
from edgewright.runtime.values import IntItems, TensorItems

_VIEW = "executorch_prim::et_view.default"
_ITEM = "aten::_local_scalar_dense"
_RANGE = "aten::arange."  # the operators whose scalars (``Kind.NUMBER``) are sizes
_SIZE_OPS = ("aten::sym_size.int", "aten::sym_numel")
_SUMS: dict[str, Callable[[Any, Any], Any]] = {
    "executorch_prim::add.Scalar": lambda a, b: a + b,
    "executorch_prim::sub.Scalar": lambda a, b: a - b if isinstance(a, RuntimeInt) else None,
}
# Operators that do the same at any position, as long as it is in their tensors: a caller checks that.
_AT_START_POS = (
    "update_cache", "update_cache_with_indices", "custom_sdpa", "custom_quantized_sdpa", "sdpa_with_kv_cache",
)  # fmt: skip
MOVING = {
    "aten::slice_copy.Tensor_out": ("start", "end"),
    **{f"llama::{name}.out": ("start_pos",) for name in _AT_START_POS},
}


@dataclass(frozen=True)
class RuntimeInt:
    """The integer of value ``index``, which is known at run time, plus a constant."""

    index: int
    offset: int = 0

    def __add__(self, other: object) -> RuntimeInt | None:
        """None if the sum is no integer plus a constant."""
        return replace(self, offset=self.offset + other) if type(other) is int else None

    __radd__ = __add__

    def __sub__(self, other: object) -> RuntimeInt | None:
        return self + -other if type(other) is int else None


def runtime_scalar(step: Step) -> int | None:
    """The value that a step reads from a tensor of integers; None if it does something else."""
    return step.result if isinstance(step, KernelStep) and step.kernel.key == _ITEM else None


def size_scalar(step: Step) -> int | None:
    """The value that a step computes from sizes alone; None if it computes something else."""
    if not isinstance(step, KernelStep):
        return None
    key = step.kernel.key
    is_scalar = key in _SIZE_OPS or (key.startswith("executorch_prim::") and key.endswith((".Scalar", ".int")))
    return step.result if is_scalar else None


def _only_writes_operands(kernel: Kernel) -> bool:
    signature = kernel.signature
    return signature is not None and not signature.outputs and any(a.is_write for a in signature.inputs)


def is_view(step: Step) -> bool:
    return isinstance(step, KernelStep) and step.kernel.key == _VIEW


def can_infer(step: Step) -> bool:
    """Whether the shapes of a step's results follow from those of its inputs."""
    if isinstance(step, DelegateStep):
        return step.delegate.device_graph is not None
    if not isinstance(step, KernelStep) or not step.kernel.stock:
        return False
    if step.kernel.raw:
        return is_view(step)
    if runtime_scalar(step) is not None:
        return True
    return size_scalar(step) is not None or _only_writes_operands(step.kernel) or step.kernel.shape is not None


class ShapeInference:
    """Shapes of tensors and values of scalars for one set of input shapes."""

    def __init__(self, values: Values, input_shapes: dict[int, Shape]) -> None:
        self.values, self.shapes, self.numbers = values, dict(input_shapes), dict[int, Any]()
        self.graphs: dict[DelegateStep, Graph] = {}  # specialized graphs of delegates

    def infer(self, steps: Sequence[Step]) -> None:
        """Infer the results of ``steps``, for each of which ``can_infer`` holds."""
        for step in steps:
            if isinstance(step, DelegateStep):
                self._delegate(step)
            elif isinstance(step, KernelStep):
                self._kernel(step)

    def _kernel(self, step: KernelStep) -> None:
        item, scalar = runtime_scalar(step), size_scalar(step)
        if item is not None:
            self._item(item, step)
        elif scalar is not None:
            self._scalar(scalar, step)
        elif is_view(step):
            source, size = (self._argument(i) for i in step.inputs)
            self.shapes[step.outputs[0]] = source.reshape(size).shape
        elif not _only_writes_operands(step.kernel):
            self._results(step)

    def _item(self, item: int, step: KernelStep) -> None:
        if self.values[step.inputs[0]].dtype.kind == "i":
            self.numbers[item] = RuntimeInt(item)

    def _scalar(self, scalar: int, step: KernelStep) -> None:
        """A number computed from others; nothing is known of it if one of them is unknown, except of sums."""
        arguments = [self._argument(i) for i in step.inputs]
        if not any(isinstance(a, RuntimeInt) for a in arguments):
            self.numbers[scalar] = step.kernel.fn(*arguments)
        elif step.kernel.key in _SUMS and isinstance(total := _SUMS[step.kernel.key](*arguments), RuntimeInt):
            self.numbers[scalar] = total

    def _results(self, step: KernelStep) -> None:
        arguments = [self._argument(i) for i in step.inputs]
        if any(isinstance(a, RuntimeInt) for a in arguments):
            arguments = self._at_the_start(step, arguments)
        shapes = step.kernel.shape(*arguments)  # type: ignore[misc]
        shapes = shapes if isinstance(shapes, list) else [shapes]
        outputs = [i for index in step.outputs for i in self._members(index)]
        for index, shape in zip(outputs, shapes, strict=True):
            if shape is not None:
                self.shapes[index] = tuple(map(int, shape))

    def _at_the_start(self, step: KernelStep, arguments: list[Any]) -> list[Any]:
        """The arguments of an operator at position 0, if its sizes are the same at any other."""
        assert step.kernel.signature is not None
        key, inputs = step.kernel.key, step.kernel.signature.inputs
        unknown = {a.name: n for a, n in zip(inputs, arguments, strict=True) if isinstance(n, RuntimeInt)}
        moves = set(unknown) == set(MOVING.get(key, ())) and len({n.index for n in unknown.values()}) == 1
        computes = not key.startswith(_RANGE) and all(a.kind is Kind.NUMBER for a in inputs if a.name in unknown)
        if not moves and not computes:
            raise ExecutionError(key, "has sizes that depend on the contents of a tensor")
        return [a.offset if isinstance(a, RuntimeInt) else a for a in arguments]

    def _members(self, index: int) -> list[int]:
        value = self.values[index]
        return [i for i in value.indices if i is not None] if isinstance(value, TensorItems) else [index]

    def _delegate(self, step: DelegateStep) -> None:
        from edgewright.engine.graph.infer_shapes import specialize  # not if compiled graphs are in the cache

        graph = step.delegate.device_graph
        assert graph is not None, "can_infer"
        input_shapes = [self._stored_shape(i) for i in step.inputs]
        specialized = self.graphs[step] = specialize(graph, input_shapes)
        for index, value in zip(step.outputs, specialized.outputs, strict=True):
            order = self.values[index].dim_order
            if sorted(order) != list(range(len(value.bound))):
                raise ExecutionError("delegate", f"must produce a tensor of rank {len(order)}", value=list(value.bound))
            self.shapes[index] = tuple(value.bound[order.index(d)] for d in range(len(order)))

    def _stored_shape(self, index: int) -> Shape:
        """A tensor's shape in memory order."""
        shape = self.shape(index)
        return tuple(shape[d] for d in self.values[index].dim_order)

    def shape(self, index: int) -> Shape:
        slot: TensorSlot = self.values[index]
        if index not in self.shapes and slot.dynamic:
            raise ExecutionError("tensor", "has no size yet: no input or instruction has filled it")
        return self.shapes.get(index, slot.bound)

    def _argument(self, index: int) -> Any:
        """An argument of a shape function: arrays without memory, and numbers."""
        value = self.values[index]
        if isinstance(value, TensorSlot):
            return self._array(index)
        if isinstance(value, IntItems):
            return [self.numbers.get(i, self.values[i]) for i in value.indices]
        if isinstance(value, TensorItems):
            return [None if i is None else self._array(i) for i in value.indices]
        return self.numbers.get(index, value)

    def _array(self, index: int) -> Array:
        slot: TensorSlot = self.values[index]
        return np.broadcast_to(np.zeros((), slot.dtype), self.shape(index))
