"""Verifier of programs, beyond the well-formedness of the flatbuffer.

Checks every index, size and offset that the runtime uses, so that later stages need no checks of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from edgewright.errors import FormatError, VersionError
from edgewright.formats import checked_int
from edgewright.formats.schema import (
    BackendDelegate,
    Chain,
    DataLocation,
    DelegateCall,
    Dynamism,
    ExecutionPlan,
    IntList,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    Null,
    OptionalTensorList,
    Program,
    SubsegmentOffsets,
    Tensor,
    TensorList,
)

SCHEMA_VERSION = 0
_RANK = [tuple(range(rank)) for rank in range(17)]


def verify_program(program: Program) -> None:
    """Raise ``FormatError`` unless every index, size and offset in ``program`` is valid."""
    if program.version > SCHEMA_VERSION:
        rule = f"this release reads schema version {SCHEMA_VERSION}"
        raise VersionError(rule, where="version", value=program.version, remedy="Upgrade edgewright to read this file.")
    _segments(program)
    if not program.execution_plan:
        raise FormatError("a program has at least one method", where="execution_plan")
    names: set[str] = set()
    for index, plan in enumerate(program.execution_plan):
        where = f"execution_plan[{index}]"
        if plan.name in names:
            raise FormatError("method names must differ", where=f"{where}.name", value=plan.name)
        names.add(plan.name)
        try:
            _plan(program, plan)
        except FormatError as error:
            raise error.inside(where) from None


def _index(value: int, count: int, plural: str, where: str) -> None:
    if not 0 <= value < count:
        raise FormatError(f"must be one of the {count} {plural}", where=where, value=value)


# ----------------------------------------------------------------------------------------------------- segments


def _segments(program: Program) -> None:
    if program.constant_segment is None or not program.constant_segment.offsets:
        old = any(b.storage for b in program.constant_buffer or ())
        remedy = "The file stores constants as releases before 0.3 did: export it again." if old else ""
        raise FormatError(
            "must hold at least the placeholder offset 0", where="constant_segment.offsets", remedy=remedy
        )
    segments = program.segments or []
    if len(program.constant_segment.offsets) > 1:
        if program.constant_buffer:
            raise FormatError("must be empty when constants are in a segment", where="constant_buffer")
        _subsegments(program.constant_segment, segments, "constant_segment")
    for index, subsegments in enumerate(program.mutable_data_segments or ()):
        _subsegments(subsegments, segments, f"mutable_data_segments[{index}]")
    keys: set[str] = set()
    for index, entry in enumerate(program.named_data or ()):
        _index(entry.segment_index, len(segments), "segments", f"named_data[{index}].segment_index")
        if entry.key in keys:
            raise FormatError("keys must differ", where=f"named_data[{index}].key", value=entry.key)
        keys.add(entry.key)


def _subsegments(subsegments: SubsegmentOffsets, segments: Sequence[Any], where: str) -> None:
    _index(subsegments.segment_index, len(segments), "segments", f"{where}.segment_index")
    size = segments[subsegments.segment_index].size
    for index, offset in enumerate(subsegments.offsets or ()):
        if offset > size:
            raise FormatError(
                f"must lie within the segment's {size} bytes", where=f"{where}.offsets[{index}]", value=offset
            )


# ------------------------------------------------------------------------------------------------------ methods


def _plan(program: Program, plan: ExecutionPlan) -> None:
    if not plan.non_const_buffer_sizes:
        raise FormatError("must hold at least the reserved element 0", where="non_const_buffer_sizes")
    checks: dict[type, Callable[[Program, ExecutionPlan, Any, int], None]] = {
        Tensor: _tensor, IntList: _int_list, TensorList: _tensor_list, OptionalTensorList: _tensor_list,
    }  # fmt: skip
    for index, value in enumerate(plan.values):
        check = checks.get(type(value))
        if check is not None:
            try:
                check(program, plan, value, index)
            except FormatError as error:
                raise error.inside(f"values[{index}]") from None
    count = len(plan.values)
    for field in ("inputs", "outputs"):
        for index, value_index in enumerate(getattr(plan, field)):
            _index(value_index, count, "values", f"{field}[{index}]")
    for index, delegate in enumerate(plan.delegates):
        _delegate(program, delegate, f"delegates[{index}]")
    for index, device in enumerate(plan.non_const_buffer_device or ()):
        where = f"non_const_buffer_device[{index}].buffer_idx"
        _index(device.buffer_idx, len(plan.non_const_buffer_sizes), "buffers", where)
    if not plan.chains:
        raise FormatError("a method has at least one chain", where="chains")
    for index, chain in enumerate(plan.chains):
        _chain(plan, chain, f"chains[{index}]")


def _tensor(program: Program, plan: ExecutionPlan, tensor: Tensor, index: int) -> None:
    order = tuple(tensor.dim_order)
    if order != _RANK[len(tensor.sizes)] and tuple(sorted(order)) != _RANK[len(tensor.sizes)]:
        raise FormatError(f"must be an order of {len(tensor.sizes)} dimensions", where="dim_order", value=list(order))
    if tensor.shape_dynamism == Dynamism.DYNAMIC_UNBOUND:
        remedy = "Export with an upper bound for every dynamic dimension."
        raise FormatError("unbounded tensors cannot be planned", where="shape_dynamism", value=2, remedy=remedy)
    allocation = tensor.allocation_info
    borrowed = allocation is None and not tensor.data_buffer_idx and not tensor.external
    if borrowed and tensor.shape_dynamism:
        return  # the caller provides the memory, so the size may be unbounded
    size = checked_int.tensor_bytes(tensor.scalar_type, tensor.sizes)
    if allocation is not None:
        arenas = plan.non_const_buffer_sizes
        if not 1 <= allocation.memory_id < len(arenas):
            where = "allocation_info.memory_id"
            raise FormatError(f"must be 1..{len(arenas) - 1}", where=where, value=allocation.memory_id)
        try:
            checked_int.check_range(allocation.offset, size, arenas[allocation.memory_id], "the tensor's arena")
        except FormatError as error:
            raise error.inside("allocation_info") from None
    if tensor.external:
        if not tensor.extra_tensor_info or not tensor.extra_tensor_info.fully_qualified_name:
            raise FormatError("an external tensor must be named", where="extra_tensor_info.fully_qualified_name")
    elif tensor.data_buffer_idx:
        _check_data(program, tensor.data_buffer_idx, size, mutable=allocation is not None)


def _check_data(program: Program, index: int, size: int, *, mutable: bool) -> None:
    """Check that entry ``index`` of the constants (or initial values) has ``size`` bytes in the file."""
    source = next(iter(program.mutable_data_segments or ()), None) if mutable else program.constant_segment
    offsets = (source.offsets if source else None) or ()
    if source is None or index >= len(offsets):
        subject = "initial values" if mutable else "constants"
        raise FormatError(f"must be one of the {len(offsets)} {subject}", where="data_buffer_idx", value=index)
    segment = (program.segments or [])[source.segment_index]
    try:
        checked_int.check_range(offsets[index], size, segment.size, "the constant segment")
    except FormatError as error:
        raise error.inside("data_buffer_idx") from None


def _int_list(program: Program, plan: ExecutionPlan, value: IntList, index: int) -> None:
    for position, item in enumerate(value.items):
        _index(item, len(plan.values), "values", f"items[{position}]")


def _tensor_list(program: Program, plan: ExecutionPlan, value: TensorList | OptionalTensorList, index: int) -> None:
    optional = isinstance(value, OptionalTensorList)
    for position, item in enumerate(value.items):
        if optional and item == -1:
            continue
        where = f"items[{position}]"
        if not 0 <= item < index:
            raise FormatError(f"must be a value before this one (0..{index - 1})", where=where, value=item)
        member = plan.values[item]
        if not (isinstance(member, Tensor) or (optional and isinstance(member, Null))):
            raise FormatError("must be a tensor", where=where, value=type(member).__name__)


def _delegate(program: Program, delegate: BackendDelegate, where: str) -> None:
    reference = delegate.processed
    inline = reference.location == DataLocation.INLINE
    count = len((program.backend_delegate_data if inline else program.segments) or ())
    _index(reference.index, count, "inline blobs" if inline else "segments", f"{where}.processed.index")


def _chain(plan: ExecutionPlan, chain: Chain, where: str) -> None:
    values, length = len(plan.values), len(chain.instructions)
    for index, instruction in enumerate(chain.instructions):
        at = f"{where}.instructions[{index}]"
        if isinstance(instruction, KernelCall):
            _index(instruction.op_index, len(plan.operators or ()), "operators", f"{at}.op_index")
            _arguments(instruction.args, values, at)
        elif isinstance(instruction, DelegateCall):
            _index(instruction.delegate_index, len(plan.delegates), "delegates", f"{at}.delegate_index")
            _arguments(instruction.args, values, at)
        elif isinstance(instruction, MoveCall):
            _arguments((instruction.move_from, instruction.move_to), values, at)
        elif isinstance(instruction, JumpFalseCall):
            _arguments((instruction.cond_value_index,), values, at)
            destination = instruction.destination_instruction
            if not 0 <= destination <= length:
                rule = f"must be one of the chain's {length} instructions or its end"
                raise FormatError(rule, where=f"{at}.destination_instruction", value=destination)
        else:
            _arguments((instruction.value_index,), values, at)
    if chain.stacktrace and len(chain.stacktrace) != length:
        raise FormatError(
            f"must match the {length} instructions", where=f"{where}.stacktrace", value=len(chain.stacktrace)
        )


def _arguments(indices: Sequence[int], count: int, where: str) -> None:
    if indices and not 0 <= min(indices) <= max(indices) < count:
        bad = next(i for i in indices if not 0 <= i < count)
        raise FormatError(f"must be one of the {count} values", where=f"{where}.args", value=bad)
