"""What sizes a method's tensors will have for inputs of given sizes, found without running it.

Kernels say the shapes of their results, delegates what their graphs make; numbers that are computed of sizes alone are
known with them. Where the contents of a tensor decide a size, nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.engine.graph.infer_shapes import specialize
from edgewright.errors import ExecutionError
from edgewright.ir.graph import Graph
from edgewright.runtime.binding import KernelStep, Values
from edgewright.runtime.delegate_calls import DelegateStep
from edgewright.runtime.tensor import Array, Shape, TensorSlot
from edgewright.runtime.values import IntItems, TensorItems

VIEW = "executorch_prim::et_view.default"
_OF_SIZES = ("aten::sym_size.int", "aten::sym_numel")
_IN_PLACE = ("aten::copy_", "aten::index_put_")


def of_sizes(step: Any) -> bool:
    """A step whose result is a number that follows from sizes alone."""
    if not isinstance(step, KernelStep) or step.result is None:
        return False
    return step.name in _OF_SIZES or (
        step.name.startswith("executorch_prim::") and step.name.endswith((".Scalar", ".int"))
    )


def foreseen(step: Any) -> bool:
    """A step whose results' sizes can be known before it runs."""
    if isinstance(step, DelegateStep):
        return hasattr(step.delegate, "device_graph")
    if not isinstance(step, KernelStep) or not step.kernel.stock:
        return False
    if step.kernel.raw:
        return step.name == VIEW
    return of_sizes(step) or step.name in _IN_PLACE or step.kernel.shape is not None


class Sizes:
    """Values of a method for certain sizes of its inputs: shapes of tensors, and numbers."""

    def __init__(self, values: Values, given: dict[int, Shape]) -> None:
        self.values, self.shapes, self.numbers = values, dict(given), dict[int, Any]()
        self.graphs: dict[DelegateStep, Graph] = {}  # of delegates, for these sizes

    def follow(self, steps: Sequence[Any]) -> None:
        """Go through ``steps``, all of which are ``foreseen``."""
        for step in steps:
            if isinstance(step, DelegateStep):
                self._delegate(step)
            elif of_sizes(step):
                self.numbers[step.result] = step.kernel.fn(*(self._argument(i) for i in step.inputs))
            elif step.name == VIEW:
                source, size = (self._argument(i) for i in step.inputs)
                self.shapes[step.outputs[0]] = source.reshape(size).shape
            elif step.name not in _IN_PLACE:
                self._kernel(step)

    def _kernel(self, step: KernelStep) -> None:
        shapes = step.kernel.shape(*(self._argument(i) for i in step.inputs))  # type: ignore[misc]
        shapes = shapes if isinstance(shapes, list) else [shapes]
        outputs = [i for index in step.outputs for i in self._members(index)]
        for index, shape in zip(outputs, shapes, strict=True):
            if shape is not None:
                self.shapes[index] = tuple(map(int, shape))

    def _members(self, index: int) -> list[int]:
        value = self.values[index]
        return [i for i in value.indices if i is not None] if isinstance(value, TensorItems) else [index]

    def _delegate(self, step: DelegateStep) -> None:
        graph: Graph = step.delegate.device_graph  # type: ignore[attr-defined]
        given = [self._lies(i) for i in step.inputs]
        special = self.graphs[step] = specialize(graph, given)
        for index, value in zip(step.outputs, special.outputs, strict=True):
            order = self.values[index].dim_order
            if sorted(order) != list(range(len(value.bound))):
                raise ExecutionError("delegate", f"must make a tensor of rank {len(order)}", value=list(value.bound))
            self.shapes[index] = tuple(value.bound[order.index(d)] for d in range(len(order)))

    def _lies(self, index: int) -> Shape:
        """A tensor's shape as it lies in memory."""
        shape = self.shape(index)
        return tuple(shape[d] for d in self.values[index].dim_order)

    def shape(self, index: int) -> Shape:
        slot: TensorSlot = self.values[index]
        if index not in self.shapes and slot.dynamic:
            raise ExecutionError("tensor", "has no size yet: no input or instruction has filled it")
        return self.shapes.get(index, slot.bound)

    def _argument(self, index: int) -> Any:
        """What a shape is computed from: arrays without memory, and numbers."""
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
