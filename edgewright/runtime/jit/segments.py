"""Segments: runs of kernel calls (and delegates) that the engine compiles to one graph.

A program without delegates, or with many small ones, is a list of kernel calls. Calls that are lowered one after the
other form a segment, which replaces them if it is expensive enough to repay compilation. Three conditions keep this
sound:

- only straight chains (no jumps, no raw kernels) of static shapes are considered, so that data flow is known at load;
- a tensor is an output of its segment if anything outside observes it: a later call, the caller, the next execution
  (state), or a *view*, a tensor that is planned over the same memory without an instruction that writes it. Outputs are
  written where the file planned them; everything else stays in the engine's arena;
- indices that the segment reads from outside are range-checked before each run (guards). If a check fails, the original
  calls run, and the one that is wrong reports it.

This is maximal-munch fusion over a linear schedule; compare the subgraph partitioning of ONNX Runtime's execution
providers.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgewright.engine.runner import make_runner, native_available
from edgewright.errors import EdgewrightError
from edgewright.formats import schema
from edgewright.ir.graph import Graph
from edgewright.ir.numerics import FLOAT32
from edgewright.runtime.binding import KernelStep, load
from edgewright.runtime.delegate_calls import DelegateStep
from edgewright.runtime.input_aliasing import covers, live_in_tensors, memory_span, overlaps, tensor_indices
from edgewright.runtime.jit.bind_call import defines_all_results, has_lowering, lower_call
from edgewright.runtime.jit.graph_builder import MIN_MACS, GraphBuilder, TransposeCache
from edgewright.runtime.jit.last_writers import LastWriters
from edgewright.runtime.jit.segment_step import COMPUTE_KERNELS, SegmentStep, can_analyze
from edgewright.runtime.step import Step, Values
from edgewright.runtime.tensor import TensorSlot
from edgewright.runtime.values import IntItems, TensorItems

if TYPE_CHECKING:
    from edgewright.engine.jit.plan_cache import PlanSource

_MAX_PAIRS = 1_000_000
log = logging.getLogger("edgewright.runtime")


def _origin(graph: Graph) -> PlanSource | None:
    """The key under which a segment's plan is cached; None if it is not."""
    from edgewright.engine.graph.digest import graph_digest
    from edgewright.engine.jit.plan_cache import PlanSource

    digest = graph_digest(graph)
    return None if digest is None else PlanSource(f"segment {digest}", lambda name: None, ())


def compile_segments(
    plan: schema.ExecutionPlan, values: Values, chains: list[list[Step]], memory: int, threads: int | None
) -> None:
    """Replace runs of calls with compiled segments."""
    steps = [step for chain in chains for step in chain]
    straight = all(isinstance(s, DelegateStep) or (isinstance(s, KernelStep) and not s.kernel.raw) for s in steps)
    expensive = any(is_deferred_delegate(s) or (isinstance(s, KernelStep) and _is_expensive(s, values)) for s in steps)
    if not (expensive and straight and can_analyze(steps) and native_available()):
        return
    joiner = SegmentBuilder(plan, values, steps, memory, threads)
    for chain in chains:
        joiner.run(chain)


_LARGE_RESULT = 100_000  # elements of a result


def _is_expensive(step: KernelStep, values: Values) -> bool:
    """Whether a call may be worth compiling."""
    if step.kernel.key in COMPUTE_KERNELS:
        return True
    results = (values[i] for i in tensor_indices(step.outputs, values))
    return has_lowering(step.kernel.key) and any(
        isinstance(s, TensorSlot) and s.capacity >= _LARGE_RESULT for s in results
    )


def is_deferred_delegate(step: Step) -> bool:
    """Whether a step is a delegate that deferred compilation so that a segment can inline its graph."""
    return isinstance(step, DelegateStep) and step.delegate.deferred


def _exposed_results(step: Step) -> Sequence[int]:
    """What a step may expose: all results of a delegate, the first of a kernel (calls whose others are read are
    rejected)."""
    if isinstance(step, KernelStep) and not defines_all_results(step.kernel.key):
        return [*step.outputs[:1], *step.mutated]
    return step.outputs


def written_tensors(step: Step) -> Sequence[int]:
    """All tensors that a step writes: its results, and what it updates in place."""
    return [*step.outputs, *step.mutated]


def _is_planned(value: schema.Value) -> bool:
    return isinstance(value, schema.Tensor) and value.allocation_info is not None


class SegmentBuilder:
    """Finds runs of calls that lower to one graph, and replaces each with a segment."""

    def __init__(
        self, plan: schema.ExecutionPlan, values: Values, steps: Sequence[Step], memory: int, threads: int | None
    ) -> None:
        self.plan, self.values, self.memory, self.threads = plan, values, memory, threads
        self.transposed: TransposeCache | None = None  # shared between builders
        self.readers = Counter(i for step in steps for i in set(tensor_indices(step.inputs, values)))
        read_first = live_in_tensors(plan, values, steps)
        all_written = {i for step in steps for i in tensor_indices(written_tensors(step), values)}
        self.observed = set(tensor_indices(plan.outputs, values)) | (read_first & all_written)
        # Views: read but never written by an instruction. They observe whatever was last written to their memory.
        self.views = {i for i in read_first - all_written - set(plan.inputs) if _is_planned(plan.values[i])}
        self.views_of: dict[int, set[int]] = {}  # views by the tensor they observe
        if not self._find_views(steps):
            self.observed |= all_written
        self.index = {value: i for i, value in enumerate(values) if isinstance(value, TensorSlot)}
        # Numbers that calls compute: what the table holds before the method runs is not their value.
        self.unknown = {s.result for s in steps if isinstance(s, KernelStep) and s.result is not None}

    def _find_views(self, steps: Sequence[Step]) -> bool:
        """Find what each view observes: the last writes to its memory before each of its reads. False if that are too
        many to list."""
        writers, pairs = LastWriters(), 0

        def observe(view: int) -> None:
            nonlocal pairs
            found = writers.of(*memory_span(self.plan.values[view]))
            pairs += len(found)
            for i in found:
                self.views_of.setdefault(i, set()).add(view)

        for step in steps:
            for view in self.views.intersection(tensor_indices(step.inputs, self.values)):
                observe(view)
            for i in tensor_indices(written_tensors(step), self.values):
                writers.write(i, *memory_span(self.plan.values[i]))
            if pairs > _MAX_PAIRS:
                return False
        for view in self.views:
            if view in self.observed or not self.readers[view]:  # after the last step
                observe(view)
        return True

    def run(self, chain: list[Step]) -> None:
        """Replace the segments of one chain, greedily from its start."""
        at = 0
        while at < len(chain):
            end, builder = self._grow(chain, at)
            if self.is_profitable(chain, at, end, builder):
                self.replace(chain, at, end, builder)
            at = max(end, at + 1)

    def is_profitable(self, chain: list[Step], start: int, end: int, builder: GraphBuilder) -> bool:
        """Whether a segment repays compilation. One delegate alone gains nothing."""
        return builder.macs >= MIN_MACS and not (end == start + 1 and is_deferred_delegate(chain[start]))

    def _grow(self, chain: list[Step], start: int) -> tuple[int, GraphBuilder]:
        """Lower as many calls from ``start`` as possible; returns the end of the run and the graph."""
        builder = self.new_builder()
        at = start
        while at < len(chain) and self.add_step(chain[at], builder, chain[start:at]):
            at += 1
        return at, builder

    def new_builder(self) -> GraphBuilder:
        return GraphBuilder(self._only_reader, self.transposed)

    def add_step(self, step: Step, builder: GraphBuilder, before: Sequence[Step]) -> bool:
        """Lower a step into ``builder``; False if it cannot be."""
        if isinstance(step, KernelStep):
            return self.add_call(step, builder, before)
        if not isinstance(step, DelegateStep) or not step.delegate.deferred:
            return False
        graph = step.delegate.device_graph
        return graph is not None and self.inline_delegate(step, graph, builder, before)

    def inline_delegate(self, step: DelegateStep, graph: Graph, builder: GraphBuilder, before: Sequence[Step]) -> bool:
        """Inline the graph of a delegate, unless the segment has one that rounds otherwise."""
        numerics = step.delegate.numerics
        if builder.numerics not in (None, numerics):
            return False
        inputs, outputs = (
            [self.values[i] for i in tensor_indices(ids, self.values)] for ids in (step.inputs, step.outputs)
        )
        views = self.views.intersection(tensor_indices(step.inputs, self.values))
        if before and not all(self._bind_view(view, builder, before) for view in views):
            return False
        if not builder.inline(graph, inputs, outputs):
            return False
        builder.numerics = numerics
        return True

    def add_call(self, step: KernelStep, builder: GraphBuilder, before: Sequence[Step]) -> bool:
        """Lower a kernel call, if nothing reads a result that its lowering does not define."""
        key, signature = step.kernel.key, step.kernel.signature
        if not has_lowering(key) or signature is None or not step.kernel.stock or self._reads_unknown(step):
            return False
        builder.origin = step.origin
        args = {a.name: self._argument(i) for a, i in zip(signature.inputs, step.inputs, strict=True)}
        outs = [self.values[i] for i in (*tensor_indices(step.outputs[:1], self.values), *step.outputs[1:])]
        views = self.views.intersection(tensor_indices(step.inputs, self.values))
        if before and not all(self._bind_view(view, builder, before) for view in views):
            return False  # it may observe a tensor that this segment computes
        others_unread = defines_all_results(key) or all(
            not self.readers[i] and i not in self.observed for i in step.outputs[1:]
        )
        return others_unread and all(isinstance(o, TensorSlot) for o in outs) and lower_call(builder, key, args, outs)

    def _reads_unknown(self, step: KernelStep) -> bool:
        """Whether an argument is a number that is known at run time only."""
        lists = (self.values[i] for i in step.inputs)
        members = (i for value in lists if isinstance(value, IntItems) for i in value.indices)
        return not self.unknown.isdisjoint((*step.inputs, *members))

    def _bind_view(self, view: int, builder: GraphBuilder, before: Sequence[Step]) -> bool:
        """Bind ``view`` to the tensor of this segment that it observes, which must be exactly one and of the same
        extent.

        True if there is nothing to bind.
        """
        planned = self.plan.values[view]
        for step in reversed(before):
            overlapping = [
                i for i in tensor_indices(written_tensors(step), self.values) if overlaps(self.plan.values[i], planned)
            ]
            if overlapping:
                written, slot = self.plan.values[overlapping[0]], self.values[overlapping[0]]
                exact = len(overlapping) == 1 and covers(written, planned) and covers(planned, written)
                return exact and builder.bind_view(slot, self.values[view])
        return True

    def _argument(self, index: int) -> Any:
        value = self.values[index]
        if isinstance(value, TensorItems):
            return [None if i is None else self.values[i] for i in value.indices]
        return value if isinstance(value, TensorSlot) else load(value, self.values)

    def _only_reader(self, slot: TensorSlot) -> bool:
        index = self.index[slot]
        return self.readers[index] == 1 and index not in self.observed and index not in self.views_of

    def observed_results(self, steps: Sequence[Step]) -> list[int]:
        """The tensors computed by ``steps`` that are observed outside them."""
        inner_reads = Counter(i for s in steps for i in set(tensor_indices(s.inputs, self.values)))
        results = dict.fromkeys(i for s in steps for i in tensor_indices(_exposed_results(s), self.values))
        return [i for i in results if self._is_observed(i, inner_reads)]

    def replace(self, chain: list[Step], start: int, end: int, builder: GraphBuilder) -> None:
        outputs = [self.values[i] for i in self.observed_results(chain[start:end])]
        try:
            builder.graph.outputs = builder.results(outputs)
            origin = _origin(builder.graph)
            make_origin = None if origin is None else lambda: origin
            runner = make_runner(
                lambda: builder.graph,
                builder.numerics or FLOAT32,
                self.memory,
                self.threads,
                origin=make_origin,
                fallback=False,
            )
        except EdgewrightError as error:  # the kernels report the error, if there is one
            log.info("calls %d to %d stay with numpy: %s", start, end - 1, error)
            return
        chain[start] = SegmentStep(runner, builder.input_slots, outputs, chain[start:end], end, builder.guards)

    def _is_observed(self, index: int, inner_reads: Counter[int]) -> bool:
        """Whether anything outside a segment observes a tensor it computes, directly or through a view."""
        views = self.views_of.get(index, ())
        observed = any(i in self.observed or self.readers[i] > inner_reads[i] for i in (index, *views))
        return observed or any(self.readers[view] == 0 for view in views)
