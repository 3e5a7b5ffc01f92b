"""Segments of a method with dynamic sizes, built for one set of shapes as if they were static."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from edgewright.errors import EdgewrightError
from edgewright.formats import schema
from edgewright.ir.numerics import FLOAT32, Numerics
from edgewright.runtime.binding import KernelStep
from edgewright.runtime.delegate_calls import DelegateStep
from edgewright.runtime.infer_shapes import ShapeInference, is_view, runtime_scalar, size_scalar
from edgewright.runtime.jit.graph_builder import MIN_MACS, GraphBuilder, TransposeCache
from edgewright.runtime.jit.segments import SegmentBuilder
from edgewright.runtime.specialized_step import SpecializedSegmentStep
from edgewright.runtime.step import Step, Values
from edgewright.runtime.tensor import TensorSlot

if TYPE_CHECKING:
    from edgewright.engine.jit.shape_specialization import Specializer as EngineForms

log = logging.getLogger("edgewright.runtime")


class SegmentOwner(Protocol):
    """The method that segments are for, and what those for other shapes share with them."""

    plan: schema.ExecutionPlan
    values: Values
    chains: list[list[Step]]
    memory: int
    threads: int | None
    transposed: TransposeCache

    def engine(self, chain: int, start: int, numerics: Numerics) -> EngineForms:
        """The engine of the segment that begins at ``start``."""


class StaticSegmentBuilder(SegmentBuilder):
    """Builds segments as if shapes were static."""

    chain_index = 0

    def __init__(self, specializer: SegmentOwner, sizes: ShapeInference) -> None:
        self.specializer, self.sizes, self.originals = specializer, sizes, specializer.values
        values = [self._as_static(i, value) for i, value in enumerate(specializer.values)]
        steps = [step for chain in specializer.chains for step in chain]
        super().__init__(specializer.plan, values, steps, specializer.memory, specializer.threads)
        self.transposed = specializer.transposed
        self.unknown -= set(sizes.numbers)

    def _as_static(self, index: int, value: Any) -> Any:
        if isinstance(value, TensorSlot) and value.dynamic and index in self.sizes.shapes:
            shape = self.sizes.shapes[index]
            value.check_shape(shape)
            return TensorSlot(value.scalar_type, shape, value.dim_order)
        return self.sizes.numbers.get(index, value)

    def is_profitable(self, chain: list[Step], start: int, end: int, builder: GraphBuilder) -> bool:
        return builder.macs >= MIN_MACS and end > start + 1

    def add_step(self, step: Step, builder: GraphBuilder, before: Sequence[Step]) -> bool:
        scalar = size_scalar(step)
        if scalar is not None:
            return scalar in self.sizes.numbers
        if runtime_scalar(step) is not None:
            return False  # the number must be in the value table before a segment reads it
        if isinstance(step, DelegateStep):
            return self.inline_delegate(step, self.sizes.graphs[step], builder, before)
        if is_view(step):
            return self._view(step, builder)
        return isinstance(step, KernelStep) and self.add_call(step, builder, before)

    def _view(self, step: Step, builder: GraphBuilder) -> bool:
        """A reshape of contiguous memory."""
        source, out = self.values[step.inputs[0]], self.values[step.outputs[0]]
        contiguous = all(s.dim_order == tuple(range(len(s.bound))) for s in (source, out))
        if not contiguous or not builder.supports_float(source, out) or builder.constant_data(source) is not None:
            return False
        builder.origin = step.origin
        builder.bind_reshape(source, out)
        return True

    def replace(self, chain: list[Step], start: int, end: int, builder: GraphBuilder) -> None:
        observed = self.observed_results(chain[start:end])
        try:
            builder.graph.outputs = builder.results([self.values[i] for i in observed])
            engine = self.specializer.engine(self.chain_index, start, builder.numerics or FLOAT32)
            compiled = engine.make(builder.graph)
        except EdgewrightError as error:
            log.info("calls %d to %d stay with numpy: %s", start, end - 1, error)
            return
        views = {s.outputs[0] for s in chain[start:end] if is_view(s)}
        outputs = [(self.originals[i], self.sizes.shape(i), i in views) for i in observed]
        numbers = {i: self.sizes.numbers[i] for i in map(size_scalar, chain[start:end]) if i is not None}
        original = {slot: self.originals[i] for i, slot in enumerate(self.values) if isinstance(slot, TensorSlot)}
        original |= {slot: slot for slot in builder.scalars.values()}
        inputs = [original[slot] for slot in builder.input_slots]
        guards = [(original[slot], size, wrap) for slot, size, wrap in builder.guards]
        step = SpecializedSegmentStep(compiled, inputs, outputs, chain[start:end], end, guards, numbers)
        step.scalars = builder.scalars
        chain[start] = step
