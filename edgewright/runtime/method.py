"""A method ready to run: steps over a value table in planned memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from edgewright.errors import (
    EdgewrightError,
    ExecutionError,
    FormatError,
    LimitError,
)
from edgewright.formats import schema
from edgewright.formats.layer_table import MethodLayers, read_layers
from edgewright.ir.graph import Origin
from edgewright.ir.layer_names import summarize_layers
from edgewright.logs import log_message
from edgewright.runtime.arguments import check_instance
from edgewright.runtime.binding import KernelStep
from edgewright.runtime.delegate_calls import DelegateStep
from edgewright.runtime.fast_path import FastPath, find_fast_path
from edgewright.runtime.input_aliasing import has_state, mark_aliasable_inputs
from edgewright.runtime.kernel import Kernel
from edgewright.runtime.metadata import MethodMetadata, describe
from edgewright.runtime.method_io import copy_output, store_inputs
from edgewright.runtime.requirements import (
    constant_arguments,
    find_kernels,
    load_delegates,
    replaced_values,
    require_delegates,
)
from edgewright.runtime.shared_state import Guard, SharedState
from edgewright.runtime.step import FreeStep, JumpFalseStep, MoveStep, Step, Values
from edgewright.runtime.tensor import RAISE_MEMORY, TensorSlot
from edgewright.runtime.values import Limits, TensorItems, ValueTable

if TYPE_CHECKING:
    from edgewright.engine.profile import Profile
    from edgewright.files import Source
    from edgewright.formats.ptd import PtdEntry
    from edgewright.runtime.shape_variants import ShapeSpecializer
    from edgewright.runtime.variant_cache import VariantCache


class Method:
    """One method of a program. Calls are serialized; use one Method per thread to run in parallel.

    Memory is planned once and reused; outputs are copies and safe to keep. State (mutable buffers) lives as long
    as the Method does, or as the program if methods share it (``share_mutable_buffers``); ``reset`` puts it back.
    """

    def __init__(
        self, program: schema.Program, plan: schema.ExecutionPlan, data: Mapping[str, PtdEntry], limits: Limits,
        twin: Source | None = None, threads: int | None = None, shared: SharedState | None = None,
        variants: VariantCache | None = None,
    ) -> None:  # fmt: skip
        check_instance("program", program, schema.Program, "Runtime.get().load_program(path).load_method() loads one.")
        self._program = program
        self._plan = plan
        self._limits = limits
        self._guard = Guard() if shared is None else shared.guard
        self.metadata: MethodMetadata = describe(plan)
        kernels = find_kernels(plan)
        require_delegates(plan)
        self._table = ValueTable(program, plan, data, limits, shared)
        self._replaced = replaced_values(plan, kernels)
        constants = constant_arguments(plan, self._table.values, self._replaced)
        # With specializations on disk, delegates are loaded when a call needs them.
        stock = all(kernel.stock for kernel in kernels)
        known = variants.delegates() if variants is not None and stock else None
        known = known if known is not None and len(known) == len(plan.delegates) else None
        self._layers = read_layers(program).get(plan.name, MethodLayers())
        self._delegates = load_delegates(
            program, plan, data, limits.memory, twin, threads, constants, self._layers, known
        )
        self._chains = [self._bind(index, chain, kernels) for index, chain in enumerate(plan.chains)]
        self._steps = [step for chain in self._chains for step in chain]
        mark_aliasable_inputs(plan, self._table.values, self._steps)
        if plan.operators and known is None:
            from edgewright.runtime.jit.segments import compile_segments  # a program of delegates only needs none

            compile_segments(plan, self._table.values, self._chains, limits.memory, threads)
        self._specializer = self._find_specializer(threads, variants, known is not None)
        self._current_chains = self._chains  # those specialized to the current input shapes
        self._prepare()
        # A segment counts as the instructions it replaces; only straight chains have segments.
        jumps = any(isinstance(i, schema.JumpFalseCall) for chain in plan.chains for i in chain.instructions)
        self._over_budget = self.metadata.instructions > limits.instructions and not jumps
        self._fast_path = None if self._specializer is not None or self._over_budget else self._find_fast_path()
        self._closed = False
        log_message("debug", "runtime", "loaded %s: %d instructions, %d planned bytes", plan.name,
                    self.metadata.instructions, self.metadata.planned_bytes)  # fmt: skip

    def _find_specializer(
        self, threads: int | None, variants: VariantCache | None, known: bool
    ) -> ShapeSpecializer | None:
        """``known``: there are specializations on disk."""
        dynamic = any(isinstance(v, TensorSlot) and v.dynamic for v in self._table.values)
        if not dynamic or not self._plan.operators:
            return None
        from edgewright.runtime.shape_variants import ShapeSpecializer, can_specialize

        values, chains = self._table.values, self._chains
        if not known and not can_specialize(self._plan, values, chains):
            return None
        return ShapeSpecializer(self._plan, values, chains, self._limits.memory, threads, variants, self._delegates)

    def _find_fast_path(self) -> FastPath | None:
        values, plan = self._table.values, self._plan
        method_io = ([values[i] for i in plan.inputs], [values[i] for i in plan.outputs])
        return find_fast_path(*method_io, self._chains, values, self._limits.memory)

    def _prepare(self) -> None:
        """Compile the delegates that no segment has inlined."""
        for chain in self._chains:
            at = 0
            while at < len(chain):
                step = chain[at]
                if isinstance(step, DelegateStep):
                    step.delegate.prepare()
                at += step.length

    def _check_torn_state(self) -> None:
        """Raise if an execution interrupted by a fork may have left state half written."""
        shared = self._table.memory.shared is not None  # another method may have been writing what this one only reads
        if shared or has_state(self._plan, self._table.values, self._steps):
            rule = "was executing in another thread when this process was forked, and its state may be half written"
            remedy = "Call reset(), load it again, or fork while nothing executes."
            raise ExecutionError(f"method {self.name!r}", rule, remedy=remedy)
        self._guard.torn = False

    @property
    def name(self) -> str:
        return self._plan.name

    @property
    def plan(self) -> schema.ExecutionPlan:
        """The method as the file has it."""
        return self._plan

    @property
    def values(self) -> Values:
        """The value table that the steps refer to."""
        return self._table.values

    @property
    def bound_steps(self) -> list[Step]:
        """The instructions one by one, without the segments that were compiled from them."""
        return self._steps

    @property
    def memory_limit(self) -> int:
        return self._limits.memory

    @property
    def delegate_indices(self) -> dict[int, int]:
        """The index of each loaded delegate, by the identity of its object."""
        return {id(delegate): index for index, delegate in enumerate(self._delegates)}

    def execute(self, inputs: Sequence[Any] = (), *, profile: Profile | None = None) -> list[Any]:
        """Run once. Inputs are numpy arrays, torch tensors or numbers; outputs come as the inputs did."""
        if self._guard.torn:
            self._check_torn_state()
        if self._fast_path is not None and profile is None:
            with self._guard.lock:
                outputs = None if self._fast_path is None else self._fast_path.run(inputs)
            if outputs is not None:
                return outputs
        if profile is not None:
            _check_profile(profile)
        with self._guard.lock, np.errstate(all="ignore"):
            self._check_open()
            return self._execute(inputs, profile)

    def _execute(self, inputs: Sequence[Any], profile: Profile | None) -> list[Any]:
        values = list(self._table.values)
        as_torch = store_inputs(self.metadata, [values[i] for i in self._plan.inputs], inputs)
        if self._over_budget:
            self._fail_budget()
        if profile is not None:
            profile.begin(self.name)
        budget = self._limits.instructions
        self._current_chains = self._chains if self._specializer is None else self._specializer.chains_for(values)
        for index, steps in enumerate(self._current_chains):
            budget = self._run(index, steps, values, budget, profile)
        if profile is not None:
            profile.end()
        self._check_outputs(values)
        self._guard.torn = False  # it was this thread that forked, in a kernel
        outputs = enumerate(self._plan.outputs)
        return [copy_output(f"output {n} of {self.name!r}", values[i], values, as_torch) for n, i in outputs]

    def _check_open(self) -> None:
        if self._closed:
            remedy = "Load it again: program.load_method()."
            raise ExecutionError(f"method {self.name!r}", "must not be closed", remedy=remedy)

    def _check_outputs(self, values: Values) -> None:
        """Outputs are copies: limit them, because a file may name one large tensor many times."""
        outputs = [values[i] for i in self._plan.outputs]
        outputs += [values[i] for v in outputs if isinstance(v, TensorItems) for i in v.indices if i is not None]
        total = sum(v.array.nbytes for v in outputs if isinstance(v, TensorSlot) and v.array is not None)
        if total > self._limits.memory:
            rule = f"may return {self._limits.memory} bytes"
            raise LimitError(f"method {self.name!r}", rule, value=total, remedy=RAISE_MEMORY)

    def delegate_runners(self) -> list[tuple[str, str]]:
        """The backend of each delegate, and how this machine runs it: compiled, simulated, or emulated."""
        return [(d.id, loaded.how) for d, loaded in zip(self._plan.delegates, self._delegates, strict=False)]

    def reset(self) -> None:
        """Put mutable state back to what the file holds, also for the methods that share it."""
        with self._guard.lock:
            self._check_open()
            self._table.reset()
            self._guard.torn = False

    def close(self) -> None:
        """Close the delegates; the method cannot run afterwards. Waits for a call that runs, and may be repeated."""
        with self._guard.lock:
            self._closed = True
            delegates, self._delegates, self._fast_path = self._delegates, [], None
            for delegate in delegates:
                delegate.close()

    def _run(self, chain: int, steps: list[Step], values: Values, budget: int, profile: Profile | None) -> int:
        at = 0
        while at < len(steps):
            budget -= 1
            if budget < 0:
                self._fail_budget()
            try:
                jump = steps[at](values) if profile is None else self._run_timed(chain, at, steps[at], values, profile)
            except Exception as error:
                self._fail(chain, at, error)
            at = at + 1 if jump is None else jump
        return budget

    def _fail_budget(self) -> NoReturn:
        rule = f"may execute at most {self._limits.instructions} instructions"
        remedy = "Does a loop in it ever end? Limits(instructions=...) allows more."
        raise ExecutionError(f"method {self.name!r}", rule, remedy=remedy)

    def _run_timed(self, chain: int, at: int, step: Step, values: Values, profile: Profile) -> int | None:
        with profile.step(chain, at, step.label, self._layer(chain, at, step.length)) as parts:
            return step.run_profiled(values, parts)

    def _layer(self, chain: int, at: int, length: int) -> str:
        """The layers of the user's model that ``length`` instructions compute."""
        origins: list[Origin] = []
        for index in range(at, at + length):
            instruction = self._plan.chains[chain].instructions[index]
            if isinstance(instruction, schema.DelegateCall):
                origins += self._layers.delegate(instruction.delegate_index).origins
            else:
                origins.append(self._layers.instruction(chain, index))
        return summarize_layers(origins)

    def _fail(self, chain: int, at: int, error: Exception) -> NoReturn:
        """Raise a typed error with the failing instruction, the cause, and its source line."""
        subject = f"method {self.name!r}, instruction {at} ({self._current_chains[chain][at].label})"
        rule = f"{error.subject}: {error.rule}" if isinstance(error, EdgewrightError) else str(error) or repr(error)
        if isinstance(error, MemoryError):
            rule = "does not fit in memory"
        value = {"value": error.value} if isinstance(error, EdgewrightError) and error.value is not None else {}
        remedy = self._source_line(chain, at) or (error.remedy if isinstance(error, EdgewrightError) else "")
        kind = LimitError if isinstance(error, LimitError) else ExecutionError
        raise kind(subject, rule, remedy=remedy, **value) from error

    def _source_line(self, chain: int, at: int) -> str:
        trace = self._plan.chains[chain].stacktrace
        frames = (trace[at].items if trace else None) or []
        return f"From {frames[-1].filename}:{frames[-1].lineno}: {frames[-1].context}" if frames else ""

    # ------------------------------------------------------------------------------------------------- binding

    def _bind(self, index: int, chain: schema.Chain, kernels: list[Kernel]) -> list[Step]:
        steps = []
        for position, instruction in enumerate(chain.instructions):
            try:
                steps.append(self._step(instruction, kernels))
                steps[-1].origin = self._layers.instruction(index, position)
            except EdgewrightError as error:
                where = f"chains[{index}].instructions[{position}]"
                if isinstance(error, FormatError):
                    error.inside(where)
                    raise
                raise FormatError(error.rule, value=error.value, where=where) from error
        return steps

    def _step(self, instruction: schema.InstructionType, kernels: list[Kernel]) -> Step:
        values = self._table.values
        if isinstance(instruction, schema.KernelCall):
            return KernelStep(kernels[instruction.op_index], instruction.args, values, self._replaced)
        if isinstance(instruction, schema.DelegateCall):
            index = instruction.delegate_index
            backend = self._plan.delegates[index].id
            return DelegateStep(self._delegates[index], backend, instruction.args, values, self._replaced)
        if isinstance(instruction, schema.MoveCall):
            return MoveStep(instruction.move_from, instruction.move_to)
        if isinstance(instruction, schema.JumpFalseCall):
            return JumpFalseStep(instruction.cond_value_index, instruction.destination_instruction)
        return FreeStep(instruction.value_index)


def _check_profile(profile: object) -> None:
    from edgewright.engine.profile import Profile  # only if profiling

    check_instance("profile", profile, Profile, "Write profile=Profile().")
