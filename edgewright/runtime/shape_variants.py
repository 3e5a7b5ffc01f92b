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
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgewright.engine.runner import native_available
from edgewright.errors import EdgewrightError
from edgewright.formats import schema
from edgewright.ir.numerics import Numerics
from edgewright.runtime.binding import KernelStep
from edgewright.runtime.delegate_calls import DelegateStep
from edgewright.runtime.infer_shapes import ShapeInference, can_infer, is_view
from edgewright.runtime.jit.segment_step import COMPUTE_KERNELS, can_analyze
from edgewright.runtime.specialized_step import SpecializedSegmentStep, restore
from edgewright.runtime.step import Step, Values
from edgewright.runtime.tensor import Shape, TensorSlot

if TYPE_CHECKING:
    from edgewright.engine.jit.shape_specialization import Specializer as EngineForms
    from edgewright.runtime.delegates import Delegate
    from edgewright.runtime.jit.graph_builder import TransposeCache
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
        from edgewright.runtime.static_segments import StaticSegmentBuilder  # not if variants are in the cache

        shapes = ShapeInference(self.values, input_shapes)
        try:
            with np.errstate(all="ignore"):
                shapes.infer([step for chain in self.chains for step in chain])
                segmenter = StaticSegmentBuilder(self, shapes)
                chains = [list(chain) for chain in self.chains]
                for at, chain in enumerate(chains):
                    segmenter.chain_index = at
                    segmenter.run(chain)
                return chains
        except _INVALID as error:
            log.info("calls stay with numpy for inputs of sizes %s: %s", list(input_shapes.values()), error)
            return self.chains


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
