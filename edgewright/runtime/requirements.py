"""Resolution of what a method needs to run: kernels, and delegates with their blobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from edgewright.backends.registry import available_delegates, describe_backend, find_delegate
from edgewright.errors import MissingDelegateError, MissingOperatorError
from edgewright.formats import schema
from edgewright.formats.executorch_releases import NEWEST, OLDEST
from edgewright.formats.layer_table import MethodLayers
from edgewright.runtime.binding import written_values
from edgewright.runtime.delegates import Delegate, DelegateBlob, make_delegate
from edgewright.runtime.kernel import Kernel
from edgewright.runtime.lazy_delegate import LazyDelegate
from edgewright.runtime.registry import all_kernels
from edgewright.runtime.step import Values
from edgewright.runtime.tensor import Array, TensorSlot
from edgewright.runtime.twin_delegate import Twins

if TYPE_CHECKING:
    from edgewright.files import Source
    from edgewright.formats.ptd import PtdEntry

_STOCK_NAMESPACES = ("aten", "dim_order_ops", "et_copy", "executorch_prim", "quantized_decomposed")
_MIN_DELEGATES_TO_INLINE = 4  # delegates in a method: from here on, segments that inline them repay compilation


def find_kernels(plan: schema.ExecutionPlan) -> list[Kernel]:
    operators = [operator.key for operator in plan.operators or ()]
    kernels = all_kernels() if operators else {}
    missing = sorted({key for key in operators if key not in kernels})
    if missing:
        remedy = "A module that calls edgewright.runtime.register_kernel adds kernels: --import it, or import it first."
        newer = [key for key in missing if key.partition("::")[0] in _STOCK_NAMESPACES]
        if newer:
            remedy = (
                f"ExecuTorch {OLDEST} to {NEWEST} has no {newer[0]}: the file is of a newer release. Update Edgewright,"
                f" or export with one of those. {remedy}"
            )
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
    threads: int | None, constants: Sequence[Mapping[int, Array]],
    layers: MethodLayers, known: Sequence[tuple[int, Sequence[int]]] | None = None,
) -> list[Delegate]:  # fmt: skip
    """The delegates of a plan. ``constants``: the arguments of each one's calls that are constants, by position.
    ``known``: each one's number of inputs and the positions of bound ones, if delegates shall be loaded when they are
    used."""
    named_data = {item.key: program.segment(item.segment_index) for item in program.named_data or ()}
    named_data.update({key: entry.data for key, entry in data.items()})
    twins = Twins(named_data, twin, memory)
    dynamic = any(isinstance(v, schema.Tensor) and v.shape_dynamism != schema.Dynamism.STATIC for v in plan.values)
    deferred = not dynamic and bool(plan.operators) and len(plan.delegates) >= _MIN_DELEGATES_TO_INLINE
    loaded: list[Delegate] = []
    for at, (delegate, arguments) in enumerate(zip(plan.delegates, constants, strict=True)):
        specs = {spec.key: bytes(spec.value) for spec in delegate.compile_specs or ()}
        blob = DelegateBlob(
            delegate.id, program.blob(delegate), specs, named_data, memory, twins.find, threads=threads,
            dynamic=dynamic, method=plan.name or "forward", deferred=deferred, twins_digest=lambda: twins.digest,
            constants=arguments, layers=layers.delegate(at),
        )  # fmt: skip
        loaded.append(make_delegate(blob) if known is None else LazyDelegate(partial(make_delegate, blob), *known[at]))
    return loaded


def constant_arguments(plan: schema.ExecutionPlan, values: Values, replaced: set[int]) -> list[dict[int, Array]]:
    """For each delegate, the arguments that are the same constant of the file in all its calls: by position, in memory
    order."""
    calls: list[list[Sequence[int]]] = [[] for _ in plan.delegates]
    for chain in plan.chains:
        for instruction in chain.instructions:
            if isinstance(instruction, schema.DelegateCall):
                calls[instruction.delegate_index].append(instruction.args)
    arguments: list[dict[int, Array]] = []
    for args in calls:
        agreed = [index if len(set(column)) == 1 else -1 for column in zip(*args, strict=False) for index in column[:1]]
        arrays = {at: None if i in replaced else _constant(values, i) for at, i in enumerate(agreed)}
        arguments.append({at: array for at, array in arrays.items() if array is not None})
    return arguments


def _constant(values: Values, index: int) -> Array | None:
    slot = values[index] if index >= 0 else None
    if not isinstance(slot, TensorSlot) or slot.memory is None or slot.memory.flags.writeable or slot.array is None:
        return None
    return slot.array.transpose(slot.dim_order)


def replaced_values(plan: schema.ExecutionPlan, kernels: list[Kernel]) -> set[int]:
    calls: list[tuple[Kernel | None, Sequence[int]]] = []
    for chain in plan.chains:
        for instruction in chain.instructions:
            if isinstance(instruction, schema.KernelCall):
                calls.append((kernels[instruction.op_index], instruction.args))
            elif isinstance(instruction, schema.MoveCall):
                calls.append((None, [instruction.move_to]))
    return written_values(calls)
