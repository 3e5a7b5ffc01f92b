"""Methods that are one compiled graph from end to end: arrays go to it and come from it, past everything between.

For small networks the way through slots, planned memory and copies takes longer than the network does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewright.runtime.delegate_calls import DelegateStep
from edgewright.runtime.tensor import Array, TensorSlot, strides_of

if TYPE_CHECKING:
    from edgewright.engine.jit.driver import CompiledGraph
    from edgewright.engine.plan import TensorSpec


class Direct:
    """``graph`` takes the method's inputs in the order ``taken``; the method's outputs are its ``given`` ones."""

    def __init__(
        self, graph: CompiledGraph, inputs: list[TensorSlot], taken: list[int], outputs: list[TensorSlot],
        given: list[int],
    ) -> None:  # fmt: skip
        self._graph, self._taken = graph, taken
        self._wanted = [(s.dtype, s.bound, strides_of(s.bound, s.dim_order, s.dtype.itemsize)) for s in inputs]
        self._made = [(t.shape, t.dtype) for t in graph.plan.outputs]
        self._given = [(at, _turned(slot)) for at, slot in zip(given, outputs, strict=True)]

    def run(self, inputs: Sequence[Any]) -> list[Array] | None:
        """The outputs; None if an input is not exactly as it is planned, which is for others to deal with."""
        if type(inputs) not in (list, tuple) or len(inputs) != len(self._wanted):
            return None
        for array, (dtype, shape, strides) in zip(inputs, self._wanted, strict=True):
            if type(array) is not np.ndarray or array.dtype != dtype or array.shape != shape:
                return None
            if array.strides != strides or not array.flags.aligned:
                return None
        made = [np.empty(*of) for of in self._made]
        self._graph.run_ready([inputs[i] for i in self._taken], made)
        return [made[i] if turn is None else np.ascontiguousarray(made[i].transpose(turn)) for i, turn in self._given]


def _turned(slot: TensorSlot) -> list[int] | None:
    """How dimensions come back in order; None if they lie in order."""
    order = list(slot.dim_order)
    return None if order == sorted(order) else [order.index(d) for d in range(len(order))]


def find_direct(inputs: Sequence[Any], outputs: Sequence[Any], chains: list[list[Any]], table: list[Any],
                memory: int) -> Direct | None:  # fmt: skip
    """``inputs`` and ``outputs`` are the method's values."""
    ends = _ends(chains, table)
    if ends is None:
        return None
    graph, reads, writes = ends
    slots = [*inputs, *outputs, *reads, *writes]
    if not all(isinstance(s, TensorSlot) and not s.dynamic for s in slots):
        return None
    places, made = ({s: i for i, s in enumerate(group)} for group in (inputs, writes))
    whole = len(places) == len(inputs) and len(made) == len(writes) == len(set(outputs)) == len(outputs)
    known = all(s in places for s in reads) and all(s in made for s in outputs)
    if not whole or not known or any(s.mutated and s.memory is None for s in inputs):
        return None
    plan = graph.plan
    alike = _alike(reads, plan.inputs) and _alike(writes, plan.outputs)
    lent = all(s.lent or s.memory is None for s in inputs)
    if not alike or not lent or plan.updates or sum(t.nbytes for t in plan.outputs) > memory:
        return None
    return Direct(graph, list(inputs), [places[s] for s in reads], list(outputs), [made[s] for s in outputs])


def _ends(chains: list[list[Any]], table: list[Any]) -> tuple[CompiledGraph, list[Any], list[Any]] | None:
    """The graph that is all there is, and the values it reads and writes."""
    if len(chains) != 1 or not chains[0]:
        return None
    step = chains[0][0]
    if isinstance(step, DelegateStep):
        graph = getattr(step.delegate, "compiled", None) if len(chains[0]) == 1 else None
        reads, writes = ([table[i] for i in ids] for ids in (step.inputs, step.outputs))
    elif getattr(step, "end", 0) == len(chains[0]) and not step.guarded:
        graph, reads, writes = getattr(step.runner, "compiled", None), step.inputs, step.outputs
    else:
        return None
    return None if graph is None or not graph.native else (graph, reads, writes)


def _alike(slots: Sequence[TensorSlot], tensors: Sequence[TensorSpec]) -> bool:
    """Whether what the program has is what the graph takes, as it lies in memory."""
    if len(slots) != len(tensors):
        return False
    shapes = [tuple(s.bound[d] for d in s.dim_order) for s in slots]
    return all(s.dtype == t.dtype and shape == t.shape for s, shape, t in zip(slots, shapes, tensors, strict=True))
