"""Shape specialization: dynamic-shape graphs are planned per set of input shapes, with an LRU cache of plans.

A graph declares upper bounds of its shapes; the actual shapes are known at the call.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from edgewright.engine.compiler import make_plan
from edgewright.engine.graph.infer_shapes import specialize
from edgewright.engine.graph.legalize import to_core
from edgewright.engine.graph.memory import SharedWeights
from edgewright.engine.jit.driver import CompiledGraph
from edgewright.engine.jit.elf import CodeImage
from edgewright.engine.plan import Plan
from edgewright.forks import renew_in_child
from edgewright.ir.graph import Array, Graph
from edgewright.ir.numerics import FLOAT32, Numerics

if TYPE_CHECKING:
    from edgewright.engine.jit.weight_store import WeightStore
    from edgewright.engine.profile import Profile

Shape = tuple[int, ...]
_MAX_IMAGES = 8  # code images kept for reuse
_MAX_GROWTH = 4  # drop shared weights once they hold this many times the arrays of one plan


class Specializer:
    """Makes specializations of one graph that share packed weights and machine code.

    Where possible, kernels take sizes and strides as arguments and weights are packed independently of shapes, so a
    specialization usually needs no new machine code. Steps whose kernels are compiled for one shape say so in profiles.
    ``compilations`` counts specializations that needed new code. ``store``: where packed weights are kept.
    """

    def __init__(
        self, threads: int | None, numerics: Numerics, memory: int, cpu: str | None = None, dynamic: bool = True,
        store: WeightStore | None = None,
    ) -> None:  # fmt: skip
        self.threads, self.numerics, self.memory, self.cpu = threads, numerics, memory, cpu
        self.store = store
        self.compilations = 0
        self._shared = SharedWeights() if dynamic else None
        self._first_count = 0  # shared arrays of the first plan
        self._images: list[CodeImage] = []

    def make(self, graph: Graph) -> CompiledGraph:
        """Compile a graph of static shapes."""
        plan = make_plan(graph, self.threads, self.numerics, self.cpu, self.memory, shared=self._weights())
        if self._shared is not None:
            self._first_count = self._first_count or len(self._shared.arrays)
            if self.store is not None:
                self.store.persist(self._shared.arrays)
                plan = replace(plan, shared=self._shared.arrays)
        kernels = {step.kernel for step in plan.steps if step.python is None}
        image = next((image for image in self._images if kernels <= image.symbols.keys()), None)
        if image is not None:
            return CompiledGraph(replace(plan, image=image), self.threads)
        self.compilations += 1
        if self._images:
            plan = _label_shape_specific(plan, self._images[0])
        compiled = CompiledGraph(plan, self.threads)
        if self._shared is not None:
            self._images = [*self._images, compiled.image][-_MAX_IMAGES:]
        return compiled

    def _weights(self) -> SharedWeights | None:
        """The shared weights; reset if specializations turn out to share little."""
        if self._shared is not None and len(self._shared.arrays) > _MAX_GROWTH * max(self._first_count, 1):
            self._shared = SharedWeights()
        return self._shared


class Specialized:
    """Runs a graph on inputs of any admissible shapes; caches the ``max_cached`` most recently used specializations."""

    def __init__(
        self,
        graph: Graph,
        threads: int | None = None,
        numerics: Numerics = FLOAT32,
        memory: int = 4 << 30,
        max_cached: int = 8,
        dynamic: bool = False,
        cpu: str | None = None,
    ) -> None:
        self.graph, self.max_cached = to_core(graph, numerics), max_cached
        self.specializer = Specializer(threads, numerics, memory, cpu, dynamic)
        self._cache: OrderedDict[tuple[Shape, ...], CompiledGraph] = OrderedDict()
        self._lock = threading.Lock()
        renew_in_child(self)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def compiled(self, shapes: Sequence[Shape]) -> CompiledGraph:
        """The specialization for these input shapes."""
        key = tuple(tuple(s) for s in shapes)
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
            compiled = self._cache[key] = self.specializer.make(specialize(self.graph, key))
            while len(self._cache) > self.max_cached:
                self._cache.popitem(last=False)
            return compiled

    def run(self, inputs: Sequence[Array], profile: Profile | None = None) -> list[Array]:
        """Run on ``inputs``; returns new arrays."""
        arrays = [np.asarray(x) for x in inputs]
        return self.compiled([x.shape for x in arrays]).run(arrays, profile=profile)


def _label_shape_specific(plan: Plan, first: CodeImage) -> Plan:
    """Label the steps whose kernels are not in the first image as compiled for this shape."""
    steps = [
        step if step.python is not None or step.kernel in first.symbols
        else replace(step, label=f"{step.label or step.kernel} (compiled for this shape)")
        for step in plan.steps
    ]  # fmt: skip
    return replace(plan, steps=tuple(steps))
