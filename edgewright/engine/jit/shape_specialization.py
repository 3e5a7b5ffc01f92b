"""Graphs whose sizes vary: planned for each set of input shapes, the most recent plans kept, with kernels in common.

A device graph says the largest sizes its tensors may have; what they are is known when it is called.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from edgewright.engine.compiler import make_plan
from edgewright.engine.dialects import translate
from edgewright.engine.graph.infer_shapes import specialize
from edgewright.engine.graph.shared_weights import SharedWeights
from edgewright.engine.jit.driver import CompiledGraph
from edgewright.engine.jit.elf import CodeImage
from edgewright.engine.plan import Plan
from edgewright.forks import renew_in_child
from edgewright.ir.graph import Array, Graph
from edgewright.ir.numerics import XNNPACK, Numerics

if TYPE_CHECKING:
    from edgewright.engine.profile import EngineProfile

Shape = tuple[int, ...]
_IMAGES = 8  # of machine code, kept for the next shapes
_ALIKE = 4  # times as many arrays as one plan has are too many


class Specializer:
    """Plans of a graph for certain shapes, and what they have in common.

    A plan says where values lie and how many there are. Its kernels are given those numbers where they can be, and its
    weights are packed as for any other: so a plan for other shapes needs no new machine code but for operators that are
    compiled for their shapes, which the profile names. ``compilations`` counts plans that did.
    """

    def __init__(
        self, threads: int | None, numerics: Numerics, memory: int, cpu: str | None = None, varies: bool = True
    ) -> None:
        self.threads, self.numerics, self.memory, self.cpu = threads, numerics, memory, cpu
        self.compilations = 0
        self._shared = SharedWeights() if varies else None
        self._usual = 0  # arrays of a plan
        self._images: list[CodeImage] = []

    def make(self, graph: Graph) -> CompiledGraph:
        """The form of a graph whose sizes are known."""
        plan = make_plan(graph, self.threads, self.numerics, self.cpu, self.memory, shared=self._weights())
        if self._shared is not None:
            self._usual = self._usual or len(self._shared.arrays)
        wanted = {step.kernel for step in plan.steps if step.python is None}
        known = next((image for image in self._images if wanted <= image.symbols.keys()), None)
        if known is not None:
            return CompiledGraph(replace(plan, image=known), self.threads)
        self.compilations += 1
        if self._images:
            plan = _told(plan, self._images[0])
        form = CompiledGraph(plan, self.threads)
        if self._shared is not None:
            self._images = [*self._images, form.image][-_IMAGES:]
        return form

    def _weights(self) -> SharedWeights | None:
        """What was packed so far; begun anew if plans turn out to have little in common."""
        if self._shared is not None and len(self._shared.arrays) > _ALIKE * max(self._usual, 1):
            self._shared = SharedWeights()
        return self._shared


class Specialized:
    """Runs a graph on inputs of any shapes it admits; ``keep`` forms for certain shapes are held at a time."""

    def __init__(
        self,
        graph: Graph,
        threads: int | None = None,
        numerics: Numerics = XNNPACK,
        memory: int = 4 << 30,
        keep: int = 8,
        varies: bool = False,
        cpu: str | None = None,
    ) -> None:
        self.graph, self.keep = translate(graph, numerics), keep
        self.forms = Specializer(threads, numerics, memory, cpu, varies)
        self._made: OrderedDict[tuple[Shape, ...], CompiledGraph] = OrderedDict()
        self._lock = threading.Lock()
        renew_in_child(self)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def compiled(self, shapes: Sequence[Shape]) -> CompiledGraph:
        """The form for inputs of these shapes."""
        key = tuple(tuple(s) for s in shapes)
        with self._lock:
            if key in self._made:
                self._made.move_to_end(key)
                return self._made[key]
            form = self._made[key] = self.forms.make(specialize(self.graph, key))
            while len(self._made) > self.keep:
                self._made.popitem(last=False)
            return form

    def run(self, inputs: Sequence[Array], profile: EngineProfile | None = None) -> list[Array]:
        """New arrays: the outputs for ``inputs``."""
        given = [np.asarray(x) for x in inputs]
        return self.compiled([x.shape for x in given]).run(given, profile=profile)


def _told(plan: Plan, first: CodeImage) -> Plan:
    """The plan, whose steps say in profiles that their kernels were compiled for these shapes alone."""
    told = [
        step if step.python is not None or step.kernel in first.symbols
        else replace(step, label=f"{step.label or step.kernel} (compiled for this shape)")
        for step in plan.steps
    ]  # fmt: skip
    return replace(plan, steps=tuple(told))
