"""Fast path for a method that is a single compiled graph: bypasses the value table.

The general path copies inputs to planned memory, binds arguments through slots, and copies outputs out. For a network
of tens of microseconds that bookkeeping dominates. If a method is exactly one compiled graph (one delegate, or one
segment), the caller's arrays can be passed to the machine code and fresh arrays returned. That is only equivalent if

- every input has the planned dtype, shape and strides (checked per call; anything else takes the general path),
- nothing else reads an input's planned memory (``input_aliasing.py``) and the graph updates no state,
- inputs and outputs are distinct tensors that the graph reads and writes in their memory layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewright.runtime.step import Step, Values
from edgewright.runtime.tensor import Array, TensorSlot, strides_of

if TYPE_CHECKING:
    from edgewright.engine.jit.driver import CompiledGraph
    from edgewright.engine.plan import TensorSpec
    from edgewright.runtime.step import SingleGraph


class FastPath:
    """Calls ``graph`` with the method's inputs in ``input_order``; the method's outputs are those at
    ``output_order``."""

    def __init__(
        self, graph: CompiledGraph, inputs: list[TensorSlot], input_order: list[int], outputs: list[TensorSlot],
        output_order: list[int],
    ) -> None:  # fmt: skip
        self._graph, self._input_order = graph, input_order
        self._expected = [(s.dtype, s.bound, strides_of(s.bound, s.dim_order, s.dtype.itemsize)) for s in inputs]
        self._result_specs = [(t.shape, t.dtype) for t in graph.plan.outputs]
        self._output_order = [(at, _inverse_permutation(slot)) for at, slot in zip(output_order, outputs, strict=True)]

    def run(self, inputs: Sequence[Any]) -> list[Array] | None:
        """The outputs; None if an input does not match exactly, which is left to the general path."""
        if type(inputs) not in (list, tuple) or len(inputs) != len(self._expected):
            return None
        for array, (dtype, shape, strides) in zip(inputs, self._expected, strict=True):
            if type(array) is not np.ndarray or array.dtype != dtype or array.shape != shape:
                return None
            if array.strides != strides or not array.flags.aligned:
                return None
        results = [np.empty(*spec) for spec in self._result_specs]
        self._graph.run_ready([inputs[i] for i in self._input_order], results)
        return [
            results[i] if inverse is None else np.ascontiguousarray(results[i].transpose(inverse))
            for i, inverse in self._output_order
        ]


def _inverse_permutation(slot: TensorSlot) -> list[int] | None:
    """The inverse permutation of a slot's dim order; None if it is the identity."""
    order = list(slot.dim_order)
    return None if order == sorted(order) else [order.index(d) for d in range(len(order))]


def find_fast_path(
    inputs: Sequence[Any], outputs: Sequence[Any], chains: list[list[Step]], table: Values, memory: int
) -> FastPath | None:
    """The fast path of a method, or None. ``inputs`` and ``outputs`` are its values."""
    single = _single_graph(chains, table)
    if single is None or not single[0].native:
        return None
    graph, reads, writes = single
    slots = [*inputs, *outputs, *reads, *writes]
    if not all(isinstance(s, TensorSlot) and not s.dynamic for s in slots):
        return None
    input_index, output_index = ({s: i for i, s in enumerate(group)} for group in (inputs, writes))
    distinct = len(input_index) == len(inputs) and len(output_index) == len(writes) == len(set(outputs)) == len(outputs)
    covered = all(s in input_index for s in reads) and all(s in output_index for s in outputs)
    if not distinct or not covered or any(s.mutated and s.memory is None for s in inputs):
        return None
    plan = graph.plan
    matching = _layouts_match(reads, plan.inputs) and _layouts_match(writes, plan.outputs)
    aliasable = all(s.aliasable or s.memory is None for s in inputs)
    if not matching or not aliasable or plan.updates or sum(t.nbytes for t in plan.outputs) > memory:
        return None
    return FastPath(
        graph, list(inputs), [input_index[s] for s in reads], list(outputs), [output_index[s] for s in outputs]
    )


def _single_graph(chains: list[list[Step]], table: Values) -> SingleGraph | None:
    """The compiled graph that is the entire method, with the values it reads and writes."""
    if len(chains) != 1 or not chains[0] or chains[0][0].length != len(chains[0]):
        return None
    return chains[0][0].single_graph(table)


def _layouts_match(slots: Sequence[TensorSlot], tensors: Sequence[TensorSpec]) -> bool:
    """Whether the program's tensors are what the graph expects, in memory layout."""
    if len(slots) != len(tensors):
        return False
    shapes = [tuple(s.bound[d] for d in s.dim_order) for s in slots]
    return all(s.dtype == t.dtype and shape == t.shape for s, shape, t in zip(slots, shapes, tensors, strict=True))
