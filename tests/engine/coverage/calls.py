"""Kernel calls of the samples as graphs of the engine: what a portable program's segment is made of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from edgewright.formats.operator_signatures import operators
from edgewright.ir.dtypes import to_scalar_type
from edgewright.ir.graph import Array, Graph
from edgewright.runtime.jit.bind_call import has_lowering, lower_call
from edgewright.runtime.jit.graph_builder import GraphBuilder
from edgewright.runtime.tensor import TensorSlot
from tests.engine.coverage.vendors import native
from tests.ir.aten.harness import Sample, all_samples, eager, out_dtypes

TYPES = frozenset({"float32", "bool", "uint8", "int8", "int16", "int32", "int64"})
HALVES = frozenset({"float16", "bfloat16"})
# Arguments that a file holds.
HELD = {"weight", "bias", "running_mean", "running_var", "scale", "zero_point", "scales", "zero_points"}


def _arrays(given: Any) -> list[Array]:
    return [a for a in (given if isinstance(given, list) else [given]) if isinstance(a, np.ndarray)]


@cache
def samples(halves: bool = False) -> dict[str, list[Sample]]:
    """Of each kernel, those of types that the engine has, and of some elements; ``halves``: those with 16-bit reals."""
    found: dict[str, list[Sample]] = {key: [] for key in operators()}
    for sample in all_samples():
        given = [a for arg in sample.args for a in _arrays(arg)]
        types = {str(a.dtype) for a in given} | set(out_dtypes(sample))
        if types <= TYPES | HALVES and bool(types & HALVES) is halves and all(a.size for a in given):
            found[sample.key].append(sample)
    return found


class Slots:
    """Tensors of a sample as a loaded program has them; ``arrays`` are those of its inputs, in order."""

    def __init__(self) -> None:
        self.arrays: dict[int, Array] = {}

    def make(self, array: Any, held: bool = False) -> Any:
        if isinstance(array, list) and _arrays(array):
            return [None if a is None else self.make(a) for a in array]
        if not isinstance(array, np.ndarray):
            return array
        last = array.ndim == 4 and not array.flags.c_contiguous and array.transpose(0, 2, 3, 1).flags.c_contiguous
        order = (0, 2, 3, 1) if last else tuple(range(array.ndim))
        dense = np.array(array.transpose(order), order="C")
        memory = np.frombuffer(dense.tobytes(), np.uint8) if held else None
        slot = TensorSlot(to_scalar_type(array.dtype), array.shape, order, memory=memory)
        self.arrays[id(slot)] = dense
        return slot


@dataclass(frozen=True)
class Taken:
    """The graph of a call, its inputs, and what eager torch makes of them."""

    sample: Sample
    graph: Graph
    given: list[Array]
    wanted: list[Array]


def taken(sample: Sample) -> Taken | None:
    """A call as a segment has it; None if no row takes it."""
    signature, wanted = operators()[sample.key], eager(sample)
    if not has_lowering(sample.key) or not wanted[0].size:
        return None
    slots, builder = Slots(), GraphBuilder(lambda slot: False)
    args = {a.name: slots.make(v, a.name in HELD) for a, v in zip(signature.inputs, sample.args, strict=True)}
    for slot in (s for given in args.values() for s in (given if isinstance(given, list) else [given])):
        if isinstance(slot, TensorSlot) and slot.memory is None:
            builder.value_in_dim_order(slot)  # moves join what has begun
    orders = [sample.dim_order if i == 0 and sample.dim_order else tuple(range(w.ndim)) for i, w in enumerate(wanted)]
    outs = [TensorSlot(to_scalar_type(w.dtype), w.shape, o) for w, o in zip(wanted, orders, strict=True)]
    if not lower_call(builder, sample.key, args, outs):
        return None
    made = [(slot, array) for slot, array in zip(outs, wanted, strict=True) if builder.is_bound(slot)]
    builder.graph.outputs = [builder.value_in_dim_order(slot) for slot, _ in made]
    given = [slots.arrays[id(slot)] for slot in builder.input_slots]
    return Taken(sample, builder.graph, given, [array.transpose(slot.dim_order) for slot, array in made])


def in_numpy(key: str, halves: bool = False) -> bool:
    """Whether numpy has to do some sample of a kernel, or some step of it; or all, if there are no samples."""
    tried = 0
    for sample in samples(halves)[key]:
        wanted = eager(sample)
        if not wanted[0].size or not {str(w.dtype) for w in wanted} <= TYPES | HALVES:
            continue
        found, tried = taken(sample), tried + 1
        if found is None or not native(found.graph):
            return True
    return not tried and not halves
