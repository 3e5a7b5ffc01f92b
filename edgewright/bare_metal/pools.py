"""Pools of a method on a board: their sizes, and which of them are upper bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgewright.backends.registry import all_backends, find_provider
from edgewright.bare_metal.runtime_memory import ABIS, method_allocator_bytes, temp_allocator_bytes
from edgewright.errors import MissingDataError, UsageError
from edgewright.formats import schema
from edgewright.formats.layer_table import delegate_layers
from edgewright.formats.ptd import PtdEntry
from edgewright.program import manifest
from edgewright.runtime.device_memory import DeviceBlob, DeviceMemory


@dataclass(frozen=True)
class Pools:
    """Memory that firmware provides for a method, in bytes.

    ``planned``: one per planned buffer. ``method`` and ``temp``: of the runtime's two allocators, by the bits of a
    pointer. ``scratch`` is the NPU's part of ``temp``; ``fast_scratch`` is separate.
    """

    planned: tuple[int, ...]
    method: Mapping[int, int]
    temp: Mapping[int, int]
    scratch: int = 0
    fast_scratch: int = 0
    fast_scratch_exact: bool = True
    delegates: Sequence[DeviceMemory] = field(default_factory=tuple)

    @property
    def method_exact(self) -> bool:
        """False if the method allocator's size holds an upper bound for the handles of delegates."""
        return not self.delegates


def find_method(program: schema.Program, name: str | None, subject: str) -> schema.ExecutionPlan:
    """The method to export: the only one that computes something, unless a name is given."""
    plans = {plan.name: plan for plan in program.execution_plan}
    if name is None:
        computing = [n for n, plan in plans.items() if any(chain.instructions for chain in plan.chains)]
        if len(computing) != 1:
            remedy = f"Choose one with --method: {', '.join(sorted(plans))}."
            raise UsageError(
                subject, "must have one method, or one must be chosen", value=len(computing), remedy=remedy
            )
        name = computing[0]
    if name not in plans:
        remedy = f"The file has {', '.join(sorted(plans))}."
        raise UsageError("--method", "must be a method of the file", value=name, remedy=remedy)
    return plans[name]


def measure_pools(
    program: schema.Program, plan: schema.ExecutionPlan, data: Mapping[str, PtdEntry] | None = None
) -> Pools:
    """The pools of a method. Raises for what ExecuTorch's bare-metal runtime cannot execute from one array of bytes."""
    _check_values(plan)
    named: dict[str, Any] = {item.key: program.segment(item.segment_index) for item in program.named_data or ()}
    named.update({key: entry.data for key, entry in (data or {}).items()})
    delegates = [delegate_memory(program, d, i, named) for i, d in enumerate(plan.delegates)]
    fast, exact = fast_scratch(program, delegates)
    return Pools(
        planned=tuple(plan.non_const_buffer_sizes[1:]),
        method={bits: method_allocator_bytes(plan, abi, delegates) for bits, abi in ABIS.items()},
        temp={bits: temp_allocator_bytes(plan, abi, delegates) for bits, abi in ABIS.items()},
        scratch=max((d.scratch for d in delegates), default=0),
        fast_scratch=fast,
        fast_scratch_exact=exact,
        delegates=delegates,
    )


def _check_values(plan: schema.ExecutionPlan) -> None:
    for value in plan.values:
        if isinstance(value, schema.Tensor) and value.external:
            remedy = "Compile it without --external-constants."
            raise MissingDataError(f"method {plan.name!r}", "must not have weights in a .ptd file", remedy=remedy)
    for kind, indices in (("input", plan.inputs), ("output", plan.outputs)):
        for number, index in enumerate(indices):
            value = plan.values[index]
            if not isinstance(value, schema.Tensor):
                got = type(value).__name__.lower()
                raise UsageError(f"{kind} {number} of {plan.name!r}", "must be a tensor on a board", value=got)
            if value.shape_dynamism != schema.Dynamism.STATIC:
                remedy = "Compile the model without dynamic_shapes, at the size that the board uses."
                subject = f"{kind} {number} of {plan.name!r}"
                raise UsageError(subject, "must have a fixed shape on a board", value=list(value.sizes), remedy=remedy)


def delegate_memory(
    program: schema.Program, delegate: schema.BackendDelegate, index: int, named: Mapping[str, Any]
) -> DeviceMemory:
    """What a delegate takes of the board."""
    info = find_provider(delegate.id, lambda info: info.device_memory)
    if info is None:
        known = ", ".join(sorted({i.title for i in all_backends() if i.device_memory}))
        remedy = (
            f"Compile for {known}, or without delegates: --backend is then left out. A program for XNNPACK can be an "
            "object file without a runtime: edgewright export m.pte --object FOLDER --cpu cortex-m55."
        )
        rule = "must be one that ExecuTorch's bare-metal runtime executes"
        raise UsageError(f"delegate {index}", rule, value=delegate.id, remedy=remedy)
    memory: DeviceMemory = info.load_function(info.device_memory)(device_blob(program, delegate, named))
    return memory


def device_blob(program: schema.Program, delegate: schema.BackendDelegate, named: Mapping[str, Any]) -> DeviceBlob:
    """A delegate as the functions of backends about devices take it."""
    specs = {spec.key: bytes(spec.value) for spec in delegate.compile_specs or ()}
    return DeviceBlob(program.blob(delegate), specs, named, delegate_layers(program)(delegate))


def fast_scratch(program: schema.Program, delegates: Sequence[DeviceMemory]) -> tuple[int, bool]:
    """The fast scratch of the largest delegate, and whether that is exact: blobs do not record it, but the manifest has
    what the vendor's compiler used in total."""
    if all(d.fast_scratch_exact for d in delegates):
        return max((d.fast_scratch for d in delegates), default=0), True
    limit = max(d.fast_scratch for d in delegates)
    estimates = (manifest.read(program) or {}).get("estimates")
    if not isinstance(estimates, list) or len(estimates) != len(delegates):
        return limit, False
    used = []
    for estimate, delegate in zip(estimates, delegates, strict=True):
        total = estimate.get("scratch") if isinstance(estimate, Mapping) else None
        if not isinstance(total, int) or not 0 <= total - delegate.scratch <= delegate.fast_scratch:
            return limit, False
        used.append(total - delegate.scratch)
    return max(used), True
