"""A method as a sequence of parts: core graphs of everything that the CPU runs, and the delegates between them.

Unlike a segment, which stands beside the calls that it replaces, the parts are the complete method: a call that cannot
be lowered is an error. Object files are written from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from edgewright.errors import UnsupportedOperatorError, UsageError
from edgewright.ir.graph import Graph
from edgewright.ir.layer_names import fill_origins, layer_of
from edgewright.ir.numerics import FLOAT32, Numerics
from edgewright.runtime.delegate_calls import DelegateStep
from edgewright.runtime.input_aliasing import covers, overlaps, state_tensors, tensor_indices
from edgewright.runtime.jit.graph_builder import GraphBuilder
from edgewright.runtime.jit.segment_step import can_analyze
from edgewright.runtime.jit.segments import SegmentBuilder, written_tensors
from edgewright.runtime.method import Method
from edgewright.runtime.step import FreeStep, JumpFalseStep, MoveStep, Step
from edgewright.runtime.tensor import TensorSlot


@dataclass(frozen=True)
class CpuPart:
    """Consecutive calls as one graph. ``guards``: index inputs, the size of what they index, negatives allowed."""

    graph: Graph
    numerics: Numerics
    inputs: tuple[TensorSlot, ...]
    outputs: tuple[TensorSlot, ...]
    guards: frozenset[tuple[TensorSlot, int, bool]]


@dataclass(frozen=True)
class DelegatePart:
    """A delegate that has no graph for the CPU: delegate ``index`` of the method."""

    index: int
    inputs: tuple[TensorSlot, ...]
    outputs: tuple[TensorSlot, ...]


Part = CpuPart | DelegatePart


@dataclass(frozen=True)
class MethodParts:
    parts: tuple[Part, ...]
    inputs: tuple[TensorSlot, ...]
    outputs: tuple[TensorSlot, ...]


def split_method(method: Method) -> MethodParts:
    """Lower a method of static shapes without state."""
    steps, values, plan = method.bound_steps, method.values, method.plan
    _check_static(method, steps)
    steps = [step for step in steps if not isinstance(step, FreeStep)]
    for step in steps:
        if isinstance(step, JumpFalseStep | MoveStep):
            remedy = "Compile the branch that the device needs, or unroll the loop."
            raise UnsupportedOperatorError(
                f"method {method.name!r}", "must be straight-line code: it has control flow", remedy=remedy
            )
    state = state_tensors(plan, values, steps)
    if state:
        remedy = "Make the state an input and an output of forward()."
        layer = next(filter(None, (_first_reader(index, steps) for index in sorted(state))), "")
        subject = f"layer {layer}" if layer else f"method {method.name!r}"
        raise UnsupportedOperatorError(subject, "must keep no state between calls", remedy=remedy)
    builder = _PartBuilder(plan, values, steps, method.memory_limit, 1)
    if steps and not can_analyze(steps):
        raise UnsupportedOperatorError(f"method {method.name!r}", "must be calls of stock kernels and delegates")
    parts = builder.split(steps, method.delegate_indices)
    outputs = tuple(builder.memory_of(i, steps) for i in plan.outputs)
    return MethodParts(tuple(parts), tuple(values[i] for i in plan.inputs), outputs)


def _check_static(method: Method, steps: Sequence[Step]) -> None:
    for side, indices in (("input", method.plan.inputs), ("output", method.plan.outputs)):
        for number, index in enumerate(indices):
            value = method.values[index]
            if not isinstance(value, TensorSlot):
                got = type(value).__name__
                raise UsageError(f"{side} {number} of {method.name!r}", "must be a tensor in an object file", value=got)
            if value.dynamic:
                if side == "output":
                    _reject_data_dependent(method, steps)
                layer = _first_reader(index, steps) if side == "input" else ""
                where = f" (first read by layer {layer})" if layer else ""
                rule, shape = "must have a fixed shape in an object file", list(value.bound)
                remedy = "Compile the model without dynamic_shapes, at the size that the device uses."
                raise UsageError(f"{side} {number} of {method.name!r}{where}", rule, value=shape, remedy=remedy)


def _first_reader(index: int, steps: Sequence[Step]) -> str:
    """The layer of the first operator that reads a value, or ''."""
    for step in steps:
        if index not in (*step.inputs, *step.mutated):
            continue
        if not isinstance(step, DelegateStep) or step.delegate.device_graph is None:
            return layer_of(step.origin)
        graph = step.delegate.device_graph
        fill_origins(graph)
        value = graph.inputs[step.inputs.index(index)]
        return next((layer_of(op.origin) for op in graph.ops if value in op.inputs()), "")
    return ""


def _reject_data_dependent(method: Method, steps: Sequence[Step]) -> None:
    """Reject the first operator whose result has a size that depends on the values of its operands."""
    for step in steps:
        for index in tensor_indices(written_tensors(step), method.values):
            slot = method.values[index]
            if isinstance(slot, TensorSlot) and slot.dynamic:
                rule = "has a result whose size depends on the values of its operands"
                remedy = "End the model before it and compute it in the application, or use a mask of fixed size."
                raise UnsupportedOperatorError(_subject(step), rule, value=list(slot.bound), remedy=remedy)


class _PartBuilder(SegmentBuilder):
    def split(self, steps: Sequence[Step], delegates: dict[int, int]) -> list[Part]:
        """``delegates``: the index of each delegate by the identity of its object."""
        parts: list[Part] = []
        chain, at = list(steps), 0
        while at < len(chain):
            step = chain[at]
            if isinstance(step, DelegateStep) and step.delegate.device_graph is None:
                inputs = tuple(self.memory_of(i, chain[:at]) for i in step.inputs)
                outputs = tuple(self.values[i] for i in step.outputs)
                parts.append(DelegatePart(delegates[id(step.delegate)], inputs, outputs))
                at += 1
                continue
            end, builder = self._grow(chain, at)
            if end == at:
                raise _unsupported(step)
            parts.append(self._part(builder, chain[at:end], chain[:at]))
            at = end
        return parts

    def new_builder(self) -> GraphBuilder:
        builder = super().new_builder()
        builder.complete = True
        return builder

    def _part(self, builder: GraphBuilder, steps: Sequence[Step], before: Sequence[Step]) -> CpuPart:
        outputs = [self.values[i] for i in self.observed_results(steps)]
        builder.graph.outputs = builder.results(outputs)
        memory = {slot: self.memory_of(self._index_of(slot), before) for slot in builder.input_slots}
        guards = frozenset((memory[slot], size, wrap) for slot, size, wrap in builder.guards)
        return CpuPart(builder.graph, builder.numerics or FLOAT32, tuple(memory.values()), tuple(outputs), guards)

    def _index_of(self, slot: TensorSlot) -> int:
        if slot not in self.index:
            rule = "must have no arguments that are computed at run time, such as positions in a cache"
            raise UnsupportedOperatorError("method", rule)
        return self.index[slot]

    def memory_of(self, index: int, before: Sequence[Step]) -> TensorSlot:
        """The tensor whose memory holds tensor ``index`` after the steps ``before``: itself, unless it is a view."""
        planned, slots = self.plan.values[index], cast(list[TensorSlot], self.values)
        if index not in self.views:
            return slots[index]
        for written in (
            *(tensor_indices(written_tensors(s), self.values) for s in reversed(before)),
            self.plan.inputs,
        ):
            found = [i for i in written if overlaps(self.plan.values[i], planned)]
            if found:
                source = self.plan.values[found[0]]
                if len(found) == 1 and covers(source, planned) and covers(planned, source):
                    return slots[found[0]]
                break
        rule = "must be computed by one call, or be an input: it is a view of parts of tensors"
        raise UnsupportedOperatorError(f"tensor {index} of the method", rule)

    def add_step(self, step: Step, builder: GraphBuilder, before: Sequence[Step]) -> bool:
        if not isinstance(step, DelegateStep):
            return super().add_step(step, builder, before)
        graph = step.delegate.device_graph
        return graph is not None and self.inline_delegate(step, graph, builder, before)


def _unsupported(step: Step) -> UnsupportedOperatorError:
    remedy = "Leave it out of the model and compute it in the application, or express it with other operators."
    return UnsupportedOperatorError(_subject(step), "has no kernel that an object file may contain", remedy=remedy)


def _subject(step: Step) -> str:
    layer = layer_of(step.origin)
    return f"{step.label} in layer {layer}" if layer else str(step.label)
