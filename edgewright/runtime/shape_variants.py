"""Shape specialization of methods with dynamic sizes: segments per set of input shapes, over shared machine code.

All shapes of a method follow from those of its inputs (``infer_shapes.py``), so for one set of input shapes a method
can be segmented as if it were static. What makes this affordable is that kernels take sizes as arguments where they
can: a new set of shapes gets a new plan (offsets, trip counts), and reuses the machine code and the packed weights of
the first one. An LRU cache keeps the last few plans. When inference or lowering fails, the method runs kernel by
kernel.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewright.engine.runner import native_available
from edgewright.errors import EdgewrightError
from edgewright.formats import schema
from edgewright.ir.numerics import FLOAT32, Numerics
from edgewright.lowering.passes.layout import identity
from edgewright.runtime.binding import KernelStep
from edgewright.runtime.delegate_calls import DelegateStep
from edgewright.runtime.infer_shapes import (
    RuntimeInt,
    ShapeInference,
    can_infer,
    is_view,
    runtime_scalar,
    size_scalar,
)
from edgewright.runtime.jit.graph_builder import MIN_MACS, GraphBuilder, TransposeCache, scalar_slot
from edgewright.runtime.jit.segments import COMPUTE_KERNELS, SegmentBuilder, SegmentStep, can_analyze
from edgewright.runtime.step import Step, Values
from edgewright.runtime.tensor import Shape, TensorSlot

if TYPE_CHECKING:
    from edgewright.engine.jit.driver import CompiledGraph
    from edgewright.engine.jit.shape_specialization import Specializer as EngineForms
    from edgewright.engine.profile import Profile
    from edgewright.runtime.delegates import Delegate
    from edgewright.runtime.variant_cache import VariantCache

_MAX_VARIANTS = 8
_INVALID = (EdgewrightError, ValueError, LookupError, TypeError, ArithmeticError)  # the kernels report what is wrong
log = logging.getLogger("edgewright.runtime")


def can_specialize(plan: schema.ExecutionPlan, values: Values, chains: list[list[Step]]) -> bool:
    """Whether a method has dynamic input shapes from which all others can be inferred, and repays it."""
    steps = [step for chain in chains for step in chain]
    tensors = [values[i] for i in plan.inputs]
    if not all(isinstance(v, TensorSlot) for v in tensors) or not any(v.dynamic for v in tensors):
        return False
    expensive = any(
        isinstance(s, DelegateStep) or (isinstance(s, KernelStep) and s.kernel.key in COMPUTE_KERNELS) for s in steps
    )
    viewed = {i for s in steps if is_view(s) for i in (*s.inputs, *s.outputs)}
    written = {i for s in steps for i in s.mutated}
    inferred = expensive and native_available() and all(map(can_infer, steps)) and can_analyze(steps)
    return inferred and not viewed & written


class ShapeSpecializer:
    """Chains of a method specialized to the shapes of its inputs. ``variants``: those of earlier processes."""

    def __init__(
        self, plan: schema.ExecutionPlan, values: Values, chains: list[list[Step]], memory: int, threads: int | None,
        variants: VariantCache | None = None, delegates: Sequence[Delegate] = (),
    ) -> None:  # fmt: skip
        self.variants, self.delegates = variants, delegates
        self.plan, self.values, self.chains, self.memory, self.threads = plan, values, chains, memory, threads
        self.transposed: TransposeCache = {}
        self._by_shapes: OrderedDict[tuple[Shape, ...], list[list[Step]]] = OrderedDict()
        self.engines: dict[tuple[int, int, Numerics], EngineForms] = {}  # by chain, start and numerics

    def engine(self, chain: int, start: int, numerics: Numerics) -> EngineForms:
        """The engine of the segment that begins at ``start``."""
        from edgewright.engine.jit.shape_specialization import Specializer as EngineForms

        key = (chain, start, numerics)
        if key not in self.engines:
            store = None if self.variants is None else self.variants.store
            self.engines[key] = EngineForms(self.threads, numerics, self.memory, store=store)
        return self.engines[key]

    def chains_for(self, values: Values) -> list[list[Step]]:
        """The chains for the current shapes of the inputs."""
        slots = [values[i] for i in self.plan.inputs]
        if any(slot.array is None for slot in slots):
            return self.chains
        key = tuple(slot.array.shape for slot in slots)
        if key not in self._by_shapes:
            self._by_shapes[key] = self._load(key) or self._specialize_and_save(key)
            while len(self._by_shapes) > _MAX_VARIANTS:
                self._by_shapes.popitem(last=False)
        self._by_shapes.move_to_end(key)
        return self._by_shapes[key]

    def _load(self, shapes: tuple[Shape, ...]) -> list[list[Step]] | None:
        """The specialization of an earlier process."""
        loaded = None if self.variants is None else self.variants.load(shapes)
        if loaded is None or len(self.chains) != 1:
            return None
        chain = list(self.chains[0])
        step = restore(*loaded, self.values, chain)
        chain[step.end - step.length] = step
        return [chain]

    def _specialize_and_save(self, shapes: tuple[Shape, ...]) -> list[list[Step]]:
        chains = self._specialize(dict(zip(self.plan.inputs, shapes, strict=True)))
        step, variants = _single_segment(chains), self.variants
        if variants is None or step is None:
            return chains
        if variants.save(shapes, step.compiled, step.describe(self.values)):
            variants.save_delegates([(d.input_count, list(d.bound_inputs)) for d in self.delegates])
        return chains

    def _specialize(self, input_shapes: dict[int, Shape]) -> list[list[Step]]:
        shapes = ShapeInference(self.values, input_shapes)
        try:
            with np.errstate(all="ignore"):
                shapes.infer([step for chain in self.chains for step in chain])
                segmenter = _StaticSegmentBuilder(self, shapes)
                chains = [list(chain) for chain in self.chains]
                for at, chain in enumerate(chains):
                    segmenter.chain_index = at
                    segmenter.run(chain)
                return chains
        except _INVALID as error:
            log.info("calls stay with numpy for inputs of sizes %s: %s", list(input_shapes.values()), error)
            return self.chains


class _StaticSegmentBuilder(SegmentBuilder):
    """Builds segments as if shapes were static."""

    chain_index = 0

    def __init__(self, specializer: ShapeSpecializer, sizes: ShapeInference) -> None:
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


class SpecializedSegmentStep(SegmentStep):
    """A segment for one set of shapes. Outputs that are views alias the engine's result. ``scalars``: inputs that are
    numbers of the value table, by their index."""

    def __init__(
        self, compiled: CompiledGraph, inputs: list[TensorSlot], outputs: list[tuple[TensorSlot, Shape, bool]],
        calls: list[Step], end: int, guards: Sequence[tuple[TensorSlot, int, bool]], numbers: dict[int, Any],
    ) -> None:  # fmt: skip
        super().__init__(_SpecializedRunner(compiled), inputs, [slot for slot, *_ in outputs], calls, end, guards)
        self.compiled = compiled
        self._result_slots, self._numbers = outputs, numbers
        self.scalars: dict[int, TensorSlot] = {}

    def describe(self, values: Values) -> dict[str, Any]:
        """What ``restore`` makes this step of, with a compiled graph: slots are described by their indices."""
        index: dict[TensorSlot, list[Any]] = {
            slot: [i] for i, slot in enumerate(values) if isinstance(slot, TensorSlot)
        }
        index |= {slot: [i, "scalar"] for i, slot in self.scalars.items()}
        numbers = {
            i: [number.index, number.offset] if isinstance(number, RuntimeInt) else number
            for i, number in self._numbers.items()
        }
        return {
            "start": self.end - self.length, "end": self.end, "inputs": [index[slot] for slot in self.input_slots],
            "outputs": [[index[slot], shape, view] for slot, shape, view in self._result_slots],
            "guards": [[index[slot], size, wrap] for slot, size, wrap in self._guards], "numbers": numbers,
        }  # fmt: skip

    def _guards_hold(self, table: Values) -> bool:
        for index, slot in self.scalars.items():
            slot.store(table[index])
        return super()._guards_hold(table)

    def run(self, table: Values, profile: Profile | None) -> int:
        for index, number in self._numbers.items():
            table[index] = table[number.index] + number.offset if isinstance(number, RuntimeInt) else number
        inputs = [_stored(slot) for slot in self.input_slots]
        targets = [None if view else self._target(slot, shape) for slot, shape, view in self._result_slots]
        results = self.runner.run(inputs, targets, profile)
        for (slot, _, view), array, target in zip(self._result_slots, results, targets, strict=True):
            if array is target:
                continue
            logical = array.transpose([slot.dim_order.index(d) for d in range(array.ndim)])
            if view:
                slot.alias(logical)
            else:
                slot.store(logical)
        return self.end

    @staticmethod
    def _target(slot: TensorSlot, shape: Shape) -> Any:
        slot.resize(shape)
        return None if slot.array is None else _stored(slot)


def restore(
    compiled: CompiledGraph, binding: Mapping[str, Any], values: Values, chain: Sequence[Step]
) -> SpecializedSegmentStep:
    """The step that ``describe`` has described."""
    scalars: dict[int, TensorSlot] = {}

    def slot(described: Sequence[Any]) -> TensorSlot:
        if len(described) > 1:
            return scalars.setdefault(described[0], scalar_slot())
        found: TensorSlot = values[described[0]]
        return found

    inputs = [slot(d) for d in binding["inputs"]]
    outputs = [(slot(d), tuple(shape), view) for d, shape, view in binding["outputs"]]
    guards = [(slot(d), size, wrap) for d, size, wrap in binding["guards"]]
    numbers = {int(i): RuntimeInt(*n) if isinstance(n, list) else n for i, n in binding["numbers"].items()}
    start, end = binding["start"], binding["end"]
    step = SpecializedSegmentStep(compiled, inputs, outputs, list(chain[start:end]), end, guards, numbers)
    step.scalars = scalars
    return step


def _single_segment(chains: list[list[Step]]) -> SpecializedSegmentStep | None:
    """The only segment of a method, if everything else is kernel calls, which need no delegate."""
    if len(chains) != 1:
        return None
    steps: list[Step] = []
    at = 0
    while at < len(chains[0]):
        steps.append(chains[0][at])
        at += steps[-1].length
    segments = [step for step in steps if isinstance(step, SpecializedSegmentStep)]
    only_calls = all(isinstance(step, KernelStep) for step in steps if step not in segments)
    return segments[0] if len(segments) == 1 and only_calls else None


def _stored(slot: TensorSlot) -> Any:
    """A tensor in memory order; the same array object as long as it is the same tensor, if that is its own order."""
    assert slot.array is not None
    return slot.array if slot.dim_order == identity(len(slot.dim_order)) else slot.array.transpose(slot.dim_order)


class _SpecializedRunner:
    """A compiled graph behind the interface of a segment's runner. ``compiled``: it serves one set of shapes only."""

    compiled = None

    def __init__(self, compiled: CompiledGraph) -> None:
        from edgewright.engine.isa import host_isa
        from edgewright.engine.jit.bound_arrays import BoundArrays

        self._bound_arrays = BoundArrays(compiled)
        self.compiled_graph, self.input_count = compiled, len(compiled.plan.inputs)
        plural = "s" if compiled.threads > 1 else ""
        self.how = f"engine, {host_isa().name}, {compiled.threads} thread{plural}, for these sizes"

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any] | None = None, profile: Any = None) -> list[Any]:
        from edgewright.engine.runner import usable_outputs

        if profile is None and outputs is not None and self._bound_arrays.run(inputs, outputs):
            return list(outputs)
        targets = None if outputs is None else usable_outputs(outputs, self.compiled_graph.plan.outputs)
        return self.compiled_graph.run(inputs, targets, profile)
