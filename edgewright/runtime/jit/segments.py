"""Runs of kernel calls that the engine does at once, where that pays: products of matrices and convolutions, and what
stands between them.

Only straight chains are looked at, tensors of single precision and fixed sizes, and weights that the file holds. What
the rest of the program can see of a segment is written where the file planned it; what it cannot stays in the engine.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from edgewright.engine.runner import Runner, make_runner, native_available
from edgewright.errors import EdgewrightError
from edgewright.formats import schema
from edgewright.ir.graph import Graph
from edgewright.ir.numerics import XNNPACK
from edgewright.runtime.binding import KernelStep, Values, load
from edgewright.runtime.delegate_calls import DelegateStep, engine_profile, parts_of
from edgewright.runtime.input_aliasing import covers, found_there, overlap, tensors
from edgewright.runtime.jit.bind_call import has_way, take
from edgewright.runtime.jit.graph_builder import WORTH, Maker, Turned
from edgewright.runtime.jit.registry import WHOLE
from edgewright.runtime.tensor import TensorSlot
from edgewright.runtime.values import TensorItems

if TYPE_CHECKING:
    from edgewright.engine.jit.plan_cache import PlanSource
    from edgewright.runtime.profile import Part

_MOST_PAIRS = 1_000_000
_MOST = 20_000  # instructions: what a segment hides from the rest is found by looking at all of them
log = logging.getLogger("edgewright.runtime")


class SegmentStep:
    """Several calls, done by the engine; then on with the instruction after them."""

    def __init__(
        self, runner: Runner, inputs: list[TensorSlot], outputs: list[TensorSlot], calls: list[Any], end: int,
        guards: Iterable[tuple[TensorSlot, int, bool]],
    ) -> None:  # fmt: skip
        self.runner, self.inputs, self.outputs, self.end = runner, inputs, outputs, end
        self._calls, self._guards = calls, tuple(guards)
        self.guarded = bool(self._guards)  # places are looked at before each run
        self.label = f"{len(calls)} calls ({runner.how})"

    def __call__(self, table: Values) -> int:
        return self.tells(table, None)

    def tells(self, table: Values, parts: list[Part] | None) -> int:
        """Run; the times of the engine's steps are added to ``parts``."""
        if not self.inside(table):
            return self.one_by_one(table)
        given = [load(slot, table).transpose(slot.dim_order) for slot in self.inputs]
        targets = [None if s.array is None else s.array.transpose(s.dim_order) for s in self.outputs]
        profile = None if parts is None else engine_profile()
        made = self.runner.run(given, targets, profile)
        if parts is not None and profile is not None:
            parts += parts_of(profile)
        for slot, array, target in zip(self.outputs, made, targets, strict=True):
            if array is not target:
                slot.store(array.transpose([slot.dim_order.index(d) for d in range(array.ndim)]))
        return self.end

    def inside(self, table: Values) -> bool:
        """Whether all places that are read or written are in their tensors."""
        return all(_inside(load(slot, table), size, wrap) for slot, size, wrap in self._guards)

    def one_by_one(self, table: Values) -> int:
        """The calls themselves: one of them says what is wrong."""
        for call in self._calls:
            call(table)
        return self.end


def _origin(graph: Graph) -> PlanSource | None:
    """What a segment's plan is kept by, if it is."""
    from edgewright.engine.graph.digest import graph_digest
    from edgewright.engine.jit.plan_cache import PlanSource

    digest = graph_digest(graph)
    return None if digest is None else PlanSource(f"segment {digest}", lambda name: None, ())


def _inside(places: Any, size: int, wrap: bool) -> bool:
    """Whether all are places in a dimension of ``size``; with a size of 0, divisors that are not zero."""
    if not size:
        return bool(places.all())
    low, high = (int(places.min()), int(places.max())) if places.size != 1 else (int(places.item()),) * 2
    return high < size and low >= (-size if wrap else 0)


def join(plan: schema.ExecutionPlan, values: Values, chains: list[list[Any]], memory: int, threads: int | None) -> None:
    """Put segments in the place of the calls they do."""
    steps = [step for chain in chains for step in chain]
    straight = all(isinstance(s, DelegateStep) or (isinstance(s, KernelStep) and not s.kernel.raw) for s in steps)
    known = any(inlined(s) or (isinstance(s, KernelStep) and _costly(s, values)) for s in steps)
    if not (known and straight and calls_fit(steps) and native_available()):
        return
    joiner = Joiner(plan, values, steps, memory, threads)
    for chain in chains:
        joiner.run(chain)


PRODUCTS = {
    f"aten::{name}.out"
    for name in ("convolution", "addmm", "mm", "linear", "bmm", "native_layer_norm", "native_group_norm", "_softmax",
                 "gelu")
}  # fmt: skip


_LARGE = 100_000  # elements of a result that is worth a look


def _costly(step: KernelStep, values: Values) -> bool:
    """Whether a call may be worth compiling."""
    if step.kernel.key in PRODUCTS:
        return True
    made = (values[i] for i in tensors(step.outputs, values))
    return has_way(step.kernel.key) and any(isinstance(s, TensorSlot) and s.capacity >= _LARGE for s in made)


def calls_fit(steps: Sequence[Any]) -> bool:
    """Few enough to look at all of them for each."""
    return len(steps) <= _MOST


def inlined(step: Any) -> bool:
    """A delegate that waits to be joined with what stands beside it."""
    return isinstance(step, DelegateStep) and bool(getattr(step.delegate, "waits", False))


def _results(step: Any) -> Sequence[int]:
    """What others may read of a step: all of a delegate's, the first of a kernel's (others are not taken if read)."""
    outputs: Sequence[int] = step.outputs
    if isinstance(step, DelegateStep) or step.kernel.key in WHOLE:
        return outputs
    return [*outputs[:1], *step.changed]


def _writes(step: Any) -> Sequence[int]:
    """All that a step writes to: its results, and what it changes."""
    return [*step.outputs, *getattr(step, "changed", ())]


def _planned(value: schema.Value) -> bool:
    return isinstance(value, schema.Tensor) and value.allocation_info is not None


class Joiner:
    """Finds calls that the engine can do together, and puts a step in the place of each run of them."""

    def __init__(
        self, plan: schema.ExecutionPlan, values: Values, steps: Sequence[Any], memory: int, threads: int | None
    ) -> None:
        self.plan, self.values, self.memory, self.threads = plan, values, memory, threads
        self.turned: Turned | None = None  # what makers remember of constants
        self.readers = Counter(i for step in steps for i in set(tensors(step.inputs, values)))
        found = found_there(plan, values, steps)
        written = {i for step in steps for i in tensors(_writes(step), values)}
        self.shown = set(tensors(plan.outputs, values)) | (found & written)
        # Views that no instruction makes: they are wherever their memory was written.
        self.views = {i for i in found - written - set(plan.inputs) if _planned(plan.values[i])}
        self.seen_by: dict[int, set[int]] = {}  # views, by the tensors they show
        if len(self.views) * len(steps) > _MOST_PAIRS:
            self.shown |= written
        else:
            self._find_views(steps)
        self.index = {value: i for i, value in enumerate(values) if isinstance(value, TensorSlot)}

    def _find_views(self, steps: Sequence[Any]) -> None:
        """What views show: the last that was written there before they are first read."""
        for view in self.views:
            stored = self.plan.values[view]
            reads = (at for at, step in enumerate(steps) if view in set(tensors(step.inputs, self.values)))
            for step in reversed(steps[: next(reads, len(steps))]):
                there = [i for i in tensors(_writes(step), self.values) if overlap(self.plan.values[i], stored)]
                for i in there:
                    self.seen_by.setdefault(i, set()).add(view)
                if any(covers(self.plan.values[i], stored) for i in there):
                    break

    def run(self, chain: list[Any]) -> None:
        at = 0
        while at < len(chain):
            end, maker = self._grow(chain, at)
            if self.worth(chain, at, end, maker):
                self.replace(chain, at, end, maker)
            at = max(end, at + 1)

    def worth(self, chain: list[Any], start: int, end: int, maker: Maker) -> bool:
        return maker.macs >= WORTH and not (end == start + 1 and inlined(chain[start]))

    def _grow(self, chain: list[Any], start: int) -> tuple[int, Maker]:
        """As many calls from ``start`` as there are rows for."""
        maker = Maker(self._only_reader, self.turned)
        at = start
        while at < len(chain) and self.join(chain[at], maker, chain[start:at]):
            at += 1
        return at, maker

    def join(self, step: Any, maker: Maker, before: Sequence[Any]) -> bool:
        if isinstance(step, KernelStep):
            return self.take(step, maker, before)
        return inlined(step) and self.inline(step, step.delegate.device_graph, maker, before)

    def inline(self, step: DelegateStep, graph: Graph, maker: Maker, before: Sequence[Any]) -> bool:
        """A delegate whose graph is known, as a part of this one."""
        given, made = ([self.values[i] for i in tensors(ids, self.values)] for ids in (step.inputs, step.outputs))
        views = self.views.intersection(tensors(step.inputs, self.values))
        if before and not all(self._look(view, maker, before) for view in views):
            return False
        return maker.inline(graph, given, made)

    def take(self, step: KernelStep, maker: Maker, before: Sequence[Any]) -> bool:
        key, signature = step.kernel.key, step.kernel.signature
        if not has_way(key) or signature is None or not step.kernel.stock:
            return False
        args = {a.name: self._argument(i) for a, i in zip(signature.inputs, step.inputs, strict=True)}
        outs = [self.values[i] for i in (*tensors(step.outputs[:1], self.values), *step.outputs[1:])]
        views = self.views.intersection(tensors(step.inputs, self.values))
        if before and not all(self._look(view, maker, before) for view in views):
            return False  # it may be a view of what this segment makes
        unseen = key in WHOLE or all(not self.readers[i] and i not in self.shown for i in step.outputs[1:])
        return unseen and all(isinstance(o, TensorSlot) for o in outs) and take(maker, {**args, "key": key}, outs)

    def _look(self, view: int, maker: Maker, before: Sequence[Any]) -> bool:
        """Whether a view shows nothing this segment makes, or all of one tensor, as it lies: then that is reshaped."""
        stored = self.plan.values[view]
        for step in reversed(before):
            there = [i for i in tensors(_writes(step), self.values) if overlap(self.plan.values[i], stored)]
            if there:
                made, shown = self.plan.values[there[0]], self.values[there[0]]
                whole = len(there) == 1 and covers(made, stored) and covers(stored, made)
                return whole and maker.reshape(shown, self.values[view])
        return True

    def _argument(self, index: int) -> Any:
        value = self.values[index]
        if isinstance(value, TensorItems):
            return [None if i is None else self.values[i] for i in value.indices]
        return value if isinstance(value, TensorSlot) else load(value, self.values)

    def _only_reader(self, slot: TensorSlot) -> bool:
        index = self.index[slot]
        return self.readers[index] == 1 and index not in self.shown and index not in self.seen_by

    def seen(self, steps: Sequence[Any]) -> list[int]:
        """What steps make that others see."""
        inside = Counter(i for s in steps for i in set(tensors(s.inputs, self.values)))
        made = dict.fromkeys(i for s in steps for i in tensors(_results(s), self.values))
        return [i for i in made if self._visible(i, inside)]

    def replace(self, chain: list[Any], start: int, end: int, maker: Maker) -> None:
        outputs = [self.values[i] for i in self.seen(chain[start:end])]
        try:
            maker.graph.outputs = [maker.output(slot) for slot in outputs]
            origin = _origin(maker.graph)
            made_so = None if origin is None else lambda: origin
            runner = make_runner(
                lambda: maker.graph, XNNPACK, self.memory, self.threads, origin=made_so, fallback=False
            )
        except EdgewrightError as error:  # numpy will say what is wrong, if anything is
            log.info("calls %d to %d stay with numpy: %s", start, end - 1, error)
            return
        chain[start] = SegmentStep(runner, maker.given, outputs, chain[start:end], end, maker.guards)

    def _visible(self, made: int, inside: Counter[int]) -> bool:
        """Whether anything outside a segment sees a tensor it makes, itself or by a view."""
        views = self.seen_by.get(made, ())
        outside = any(i in self.shown or self.readers[i] > inside[i] for i in (made, *views))
        return outside or any(self.readers[view] == 0 for view in views)
