"""Resolution of what a method needs to run: kernels, and delegates with their blobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edgewright.backends.registry import available_delegates, describe_backend, find_delegate
from edgewright.errors import MissingDelegateError, MissingOperatorError
from edgewright.formats import schema
from edgewright.runtime.binding import written_values
from edgewright.runtime.delegates import Delegate, DelegateBlob, make_delegate
from edgewright.runtime.kernel import Kernel
from edgewright.runtime.registry import all_kernels
from edgewright.runtime.twin_delegate import Twins

if TYPE_CHECKING:
    from edgewright.files import Source
    from edgewright.formats.ptd import PtdEntry

_MIN_DELEGATES_TO_INLINE = 4  # delegates in a method: from here on, segments that inline them repay compilation


def find_kernels(plan: schema.ExecutionPlan) -> list[Kernel]:
    operators = [operator.key for operator in plan.operators or ()]
    kernels = all_kernels() if operators else {}
    missing = sorted({key for key in operators if key not in kernels})
    if missing:
        remedy = "A module that calls edgewright.runtime.register_kernel adds kernels: --import it, or import it first."
        rule = f"needs operators that have no kernel here: {', '.join(missing)}"
        error = MissingOperatorError(f"method {plan.name!r}", rule, remedy=remedy)
        error.operators = tuple(missing)
        raise error
    return [kernels[key] for key in operators]


def require_delegates(plan: schema.ExecutionPlan) -> None:
    missing = sorted({d.id for d in plan.delegates if find_delegate(d.id) is None})
    if missing:
        installed = ", ".join(available_delegates()) or "none"
        remedy = (
            f"Installed here: {installed}. Install a package that provides the delegate (entry point group"
            " 'edgewright.backends') or register one with edgewright.runtime.register_delegate."
        )
        rule = f"needs delegates that are not installed: {', '.join(map(describe_backend, missing))}"
        error = MissingDelegateError(f"method {plan.name!r}", rule, remedy=remedy)
        error.backends = tuple(missing)
        raise error


def load_delegates(
    program: schema.Program, plan: schema.ExecutionPlan, data: Mapping[str, PtdEntry], memory: int, twin: Source | None,
    threads: int | None,
) -> list[Delegate]:  # fmt: skip
    named_data = {item.key: program.segment(item.segment_index) for item in program.named_data or ()}
    named_data.update({key: entry.data for key, entry in data.items()})
    twins = Twins(named_data, twin, memory)
    dynamic = any(isinstance(v, schema.Tensor) and v.shape_dynamism != schema.Dynamism.STATIC for v in plan.values)
    deferred = not dynamic and bool(plan.operators) and len(plan.delegates) >= _MIN_DELEGATES_TO_INLINE
    loaded = []
    for delegate in plan.delegates:
        specs = {spec.key: bytes(spec.value) for spec in delegate.compile_specs or ()}
        blob = DelegateBlob(
            delegate.id, program.blob(delegate), specs, named_data, memory, twins.find, threads=threads,
            dynamic=dynamic, method=plan.name or "forward", deferred=deferred, twins_digest=lambda: twins.digest,
        )  # fmt: skip
        loaded.append(make_delegate(blob))
    return loaded


def replaced_values(plan: schema.ExecutionPlan, kernels: list[Kernel]) -> set[int]:
    calls: list[tuple[Kernel | None, Sequence[int]]] = []
    for chain in plan.chains:
        for instruction in chain.instructions:
            if isinstance(instruction, schema.KernelCall):
                calls.append((kernels[instruction.op_index], instruction.args))
            elif isinstance(instruction, schema.MoveCall):
                calls.append((None, [instruction.move_to]))
    return written_values(calls)
