"""Methods whose sizes vary: for every set of input sizes, segments of their own, which share their machine code.

The sizes of all tensors follow from those of the inputs (``sizes.py``), so that calls can be joined as if they were
fixed. What the engine compiled for the first sizes does for the next; what was planned for some sizes is kept a while.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewright.engine.runner import native_available
from edgewright.errors import EdgewrightError
from edgewright.formats import schema
from edgewright.ir.numerics import XNNPACK
from edgewright.runtime.binding import KernelStep, Values
from edgewright.runtime.delegate_calls import DelegateStep, engine_profile, parts_of
from edgewright.runtime.infer_shapes import VIEW, Sizes, foreseen, of_sizes
from edgewright.runtime.jit.graph_builder import WORTH, Maker, Turned
from edgewright.runtime.jit.segments import PRODUCTS, Joiner, SegmentStep, calls_fit
from edgewright.runtime.tensor import Shape, TensorSlot

if TYPE_CHECKING:
    from edgewright.engine.jit.driver import CompiledGraph
    from edgewright.engine.jit.shape_specialization import Specializer as EngineForms
    from edgewright.runtime.profile import Part

_KEEP = 8
_BROKEN = (EdgewrightError, ValueError, LookupError, TypeError, ArithmeticError)  # numpy will say what is wrong
log = logging.getLogger("edgewright.runtime")


def forms_of(
    plan: schema.ExecutionPlan, values: Values, chains: list[list[Any]], memory: int, threads: int | None
) -> Forms | None:
    """What makes chains for certain sizes, if a method has sizes that vary and they can be foreseen."""
    steps = [step for chain in chains for step in chain]
    tensors = [values[i] for i in plan.inputs]
    if not all(isinstance(v, TensorSlot) for v in tensors) or not any(v.dynamic for v in tensors):
        return None
    worth = any(isinstance(s, DelegateStep) or (isinstance(s, KernelStep) and s.kernel.key in PRODUCTS) for s in steps)
    seen = {i for s in steps if isinstance(s, KernelStep) and s.name == VIEW for i in (*s.inputs, *s.outputs)}
    written = {i for s in steps for i in getattr(s, "changed", ())}
    if not (worth and native_available() and all(map(foreseen, steps)) and calls_fit(steps)) or seen & written:
        return None
    return Forms(plan, values, chains, memory, threads)


class Forms:
    """Chains of a method, by the sizes of its inputs."""

    def __init__(
        self, plan: schema.ExecutionPlan, values: Values, chains: list[list[Any]], memory: int, threads: int | None
    ) -> None:
        self.plan, self.values, self.chains, self.memory, self.threads = plan, values, chains, memory, threads
        self.turned: Turned = {}
        self._made: OrderedDict[tuple[Shape, ...], list[list[Any]]] = OrderedDict()
        self.engines: dict[tuple[int, int], EngineForms] = defaultdict(self._engine)  # by where segments start

    def _engine(self) -> EngineForms:
        from edgewright.engine.jit.shape_specialization import Specializer as EngineForms

        return EngineForms(self.threads, XNNPACK, self.memory)

    def find(self, values: Values) -> list[list[Any]]:
        """The chains for inputs as they are now."""
        slots = [values[i] for i in self.plan.inputs]
        if any(slot.array is None for slot in slots):
            return self.chains
        key = tuple(slot.array.shape for slot in slots)
        if key not in self._made:
            self._made[key] = self._make(dict(zip(self.plan.inputs, key, strict=True)))
            while len(self._made) > _KEEP:
                self._made.popitem(last=False)
        self._made.move_to_end(key)
        return self._made[key]

    def _make(self, given: dict[int, Shape]) -> list[list[Any]]:
        sizes = Sizes(self.values, given)
        try:
            with np.errstate(all="ignore"):
                sizes.follow([step for chain in self.chains for step in chain])
                joiner = _FormJoiner(self, sizes)
                chains = [list(chain) for chain in self.chains]
                for at, chain in enumerate(chains):
                    joiner.at = at
                    joiner.run(chain)
                return chains
        except _BROKEN as error:
            log.info("calls stay with numpy for inputs of sizes %s: %s", list(given.values()), error)
            return self.chains


class _FormJoiner(Joiner):
    """Joins calls as if the sizes of tensors were fixed."""

    at = 0  # of the chain

    def __init__(self, forms: Forms, sizes: Sizes) -> None:
        self.forms, self.sizes, self.originals = forms, sizes, forms.values
        values = [self._fixed(i, value) for i, value in enumerate(forms.values)]
        steps = [step for chain in forms.chains for step in chain]
        super().__init__(forms.plan, values, steps, forms.memory, forms.threads)
        self.turned = forms.turned

    def _fixed(self, index: int, value: Any) -> Any:
        if isinstance(value, TensorSlot) and value.dynamic and index in self.sizes.shapes:
            shape = self.sizes.shapes[index]
            value.check_shape(shape)
            return TensorSlot(value.scalar_type, shape, value.dim_order)
        return self.sizes.numbers.get(index, value)

    def worth(self, chain: list[Any], start: int, end: int, maker: Maker) -> bool:
        return maker.macs >= WORTH and end > start + 1

    def join(self, step: Any, maker: Maker, before: Sequence[Any]) -> bool:
        if of_sizes(step):
            return True
        if isinstance(step, DelegateStep):
            return self.inline(step, self.sizes.graphs[step], maker, before)
        if step.name == VIEW:
            return self._view(step, maker)
        return self.take(step, maker, before)

    def _view(self, step: KernelStep, maker: Maker) -> bool:
        """Another shape of a tensor, as it lies in memory."""
        source, out = self.values[step.inputs[0]], self.values[step.outputs[0]]
        plain = all(s.dim_order == tuple(range(len(s.bound))) for s in (source, out))
        if not plain or not maker.usable(source, out) or maker.constant(source) is not None:
            return False
        maker.add("view", out, {"self": maker.planes(source), "size": list(out.bound)})
        return True

    def replace(self, chain: list[Any], start: int, end: int, maker: Maker) -> None:
        seen = self.seen(chain[start:end])
        try:
            maker.graph.outputs = [maker.output(self.values[i]) for i in seen]
            form = self.forms.engines[self.at, start].make(maker.graph)
        except EdgewrightError as error:
            log.info("calls %d to %d stay with numpy: %s", start, end - 1, error)
            return
        views = {s.outputs[0] for s in chain[start:end] if isinstance(s, KernelStep) and s.name == VIEW}
        outputs = [(self.originals[i], self.sizes.shape(i), i in views) for i in seen]
        numbers = {s.result: self.sizes.numbers[s.result] for s in chain[start:end] if of_sizes(s)}
        original = {slot: self.originals[i] for i, slot in enumerate(self.values) if isinstance(slot, TensorSlot)}
        inputs = [original[slot] for slot in maker.given]
        guards = [(original[slot], size, wrap) for slot, size, wrap in maker.guards]
        chain[start] = FormStep(form, inputs, outputs, chain[start:end], end, guards, numbers)


class FormStep(SegmentStep):
    """Several calls for certain sizes. Outputs that views make are wherever the engine leaves them."""

    def __init__(
        self, form: CompiledGraph, inputs: list[TensorSlot], outputs: list[tuple[TensorSlot, Shape, bool]],
        calls: list[Any], end: int, guards: Sequence[tuple[TensorSlot, int, bool]], numbers: dict[int, Any],
    ) -> None:  # fmt: skip
        super().__init__(_Form(form), inputs, [slot for slot, *_ in outputs], calls, end, guards)
        self._made, self._numbers = outputs, numbers

    def tells(self, table: Values, parts: list[Part] | None) -> int:
        if not self.inside(table):
            return self.one_by_one(table)
        table_numbers = self._numbers
        for index, number in table_numbers.items():
            table[index] = number
        given = [slot.array.transpose(slot.dim_order) for slot in self.inputs]  # type: ignore[union-attr]
        targets = [None if view else self._target(slot, shape) for slot, shape, view in self._made]
        profile = None if parts is None else engine_profile()
        made = self.runner.run(given, targets, profile)
        if parts is not None and profile is not None:
            parts += parts_of(profile)
        for (slot, _, view), array, target in zip(self._made, made, targets, strict=True):
            back = array.transpose([slot.dim_order.index(d) for d in range(array.ndim)])
            if view:
                slot.alias(back)
            elif array is not target:
                slot.store(back)
        return self.end

    @staticmethod
    def _target(slot: TensorSlot, shape: Shape) -> Any:
        slot.resize(shape)
        return None if slot.array is None else slot.array.transpose(slot.dim_order)


class _Form:
    """A compiled graph, as segments run it."""

    def __init__(self, form: CompiledGraph) -> None:
        from edgewright.engine.isa import host_isa

        self.form, self.input_count = form, len(form.plan.inputs)
        self.how = f"engine, {host_isa().name}, {form.threads} thread{'s' if form.threads > 1 else ''}, for these sizes"

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any] | None = None, profile: Any = None) -> list[Any]:
        from edgewright.engine.runner import usable_outputs

        made = None if outputs is None else usable_outputs(outputs, self.form.plan.outputs)
        return self.form.run(inputs, made, profile)
