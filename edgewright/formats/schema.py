"""The tables of a ``.pte`` program, each described once: slot, type, limits."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import field
from typing import Union

from edgewright.formats import checked_int
from edgewright.formats.container import SEGMENT_ALIGNMENT, FileLayout
from edgewright.formats.flatbuffer import (
    BOOL,
    F64,
    I8,
    I32,
    I64,
    STRING,
    U8,
    U32,
    U64,
    Buffer,
    Bytes,
    UnionTable,
    Vector,
    slot,
    table,
)
from edgewright.ir.dtypes import ScalarType

MAX_RANK = 16


class Dynamism(enum.IntEnum):
    STATIC = 0
    DYNAMIC_BOUND = 1
    DYNAMIC_UNBOUND = 2


class DataLocation(enum.IntEnum):
    """Where a delegate's blob is."""

    INLINE = 0
    SEGMENT = 1


class TensorDataLocation(enum.IntEnum):
    SEGMENT = 0
    EXTERNAL = 1


# ------------------------------------------------------------------------------------------------------- values


@table
class AllocationDetails:
    memory_id: int = slot(0, U32, default=0)
    memory_offset_low: int = slot(1, U32, default=0)
    memory_offset_high: int = slot(2, U32, default=0)

    @property
    def offset(self) -> int:
        return self.memory_offset_high << 32 | self.memory_offset_low


@table
class ExtraTensorInfo:
    mutable_data_segments_idx: int = slot(0, U64, default=0)
    fully_qualified_name: str | None = slot(1, STRING, default=None)
    location: int = slot(2, I8, default=0, lo=0, hi=1, enum=True)
    device_type: int = slot(3, I8, default=0, lo=0, hi=1, enum=True)
    device_index: int = slot(4, I8, default=0)


@table
class Tensor:
    scalar_type: int = slot(0, I8, default=0, lo=0, hi=max(ScalarType), enum=True)
    storage_offset: int = slot(1, I32, default=0, lo=0, hi=0)
    sizes: Sequence[int] = slot(2, Vector(I32, MAX_RANK), required=True, lo=0)
    dim_order: Sequence[int] = slot(3, Vector(U8, MAX_RANK), required=True, hi=MAX_RANK - 1)
    requires_grad: bool = slot(4, BOOL, default=False)
    data_buffer_idx: int = slot(5, U32, default=0)
    allocation_info: AllocationDetails | None = slot(6, AllocationDetails, default=None)
    layout: int = slot(7, I8, default=0)
    shape_dynamism: int = slot(8, I8, default=0, lo=0, hi=max(Dynamism), enum=True)
    extra_tensor_info: ExtraTensorInfo | None = slot(9, ExtraTensorInfo, default=None)

    @property
    def external(self) -> bool:
        """True if the data is looked up by name in a ``.ptd``."""
        extra = self.extra_tensor_info
        return extra is not None and extra.location == TensorDataLocation.EXTERNAL


@table
class Null:
    pass


@table
class Int:
    int_val: int = slot(0, I64, default=0)


@table
class Bool:
    bool_val: bool = slot(0, BOOL, default=False)


@table
class Double:
    double_val: float = slot(0, F64, default=0.0)


@table
class String:
    string_val: str = slot(0, STRING, required=True)


@table
class IntList:
    """``items`` are indices of Int values, so that a symbolic size can stand among them."""

    items: Sequence[int] = slot(0, Vector(I64), required=True)


@table
class DoubleList:
    items: Sequence[float] = slot(0, Vector(F64), required=True)


@table
class BoolList:
    items: Sequence[bool] = slot(0, Vector(BOOL), required=True)


@table
class TensorList:
    """``items`` are indices of Tensor values that come before this one."""

    items: Sequence[int] = slot(0, Vector(I32), required=True)


@table
class OptionalTensorList:
    """As TensorList, with -1 for an absent tensor."""

    items: Sequence[int] = slot(0, Vector(I32), required=True)


Value = Union[
    Null, Int, Bool, Double, Tensor, String, IntList, DoubleList, BoolList, TensorList, OptionalTensorList
]  # fmt: skip


def scalar(value: Value) -> int | bool | float | str | None:
    """The number or string that a value holds; None for tensors, lists and null."""
    if isinstance(value, Int):
        return value.int_val
    if isinstance(value, Bool):
        return value.bool_val
    if isinstance(value, Double):
        return value.double_val
    return value.string_val if isinstance(value, String) else None


EVALUE = UnionTable(
    "EValue",
    (Null, Int, Bool, Double, Tensor, String, IntList, DoubleList, BoolList, TensorList, OptionalTensorList),
    empty=Null,
)


# ------------------------------------------------------------------------------------------------- instructions


@table
class KernelCall:
    op_index: int = slot(0, I32, default=0, lo=0)
    args: Sequence[int] = slot(1, Vector(I32), required=True, lo=0)


@table
class DelegateCall:
    delegate_index: int = slot(0, I32, default=0, lo=0)
    args: Sequence[int] = slot(1, Vector(I32), required=True, lo=0)


@table
class MoveCall:
    move_from: int = slot(0, I32, default=0, lo=0)
    move_to: int = slot(1, I32, default=0, lo=0)


@table
class JumpFalseCall:
    cond_value_index: int = slot(0, I32, default=0, lo=0)
    destination_instruction: int = slot(1, I32, default=0, lo=0)


@table
class FreeCall:
    value_index: int = slot(0, I32, default=0, lo=0)


InstructionType = Union[KernelCall, DelegateCall, MoveCall, JumpFalseCall, FreeCall]
INSTRUCTION = UnionTable("Instruction", (KernelCall, DelegateCall, MoveCall, JumpFalseCall, FreeCall))


@table
class Frame:
    filename: str | None = slot(0, STRING, default=None)
    lineno: int = slot(1, I32, default=0)
    name: str | None = slot(2, STRING, default=None)
    context: str | None = slot(3, STRING, default=None)


@table
class FrameList:
    items: list[Frame] | None = slot(0, Vector(Frame), default=None)


@table
class Chain:
    inputs: Sequence[int] | None = slot(0, Vector(I32), default=None)
    outputs: Sequence[int] | None = slot(1, Vector(I32), default=None)
    instructions: list[InstructionType] = slot(2, Vector(INSTRUCTION), required=True)
    stacktrace: list[FrameList] | None = slot(3, Vector(FrameList), default=None)


@table
class Operator:
    name: str = slot(0, STRING, required=True)
    overload: str | None = slot(1, STRING, default=None)

    @property
    def key(self) -> str:
        """The name kernels are looked up by."""
        return f"{self.name}.{self.overload}" if self.overload else self.name


# ---------------------------------------------------------------------------------------------------- delegates


@table
class CompileSpec:
    key: str = slot(0, STRING, required=True)
    value: Buffer = slot(1, Bytes(), required=True)


@table
class BackendDelegateDataReference:
    location: int = slot(0, I8, default=0, lo=0, hi=1, enum=True)
    index: int = slot(1, U32, default=0)


@table
class BackendDelegate:
    id: str = slot(0, STRING, required=True)
    processed: BackendDelegateDataReference = slot(1, BackendDelegateDataReference, required=True)
    compile_specs: list[CompileSpec] | None = slot(2, Vector(CompileSpec), default=None)


@table
class BackendDelegateInlineData:
    data: Buffer = slot(0, Bytes(align=16), required=True)


# ------------------------------------------------------------------------------------------------------ methods


@table
class ContainerMetadata:
    encoded_inp_str: str | None = slot(0, STRING, default=None)
    encoded_out_str: str | None = slot(1, STRING, default=None)


@table
class NonConstBufferDevice:
    buffer_idx: int = slot(0, I32, default=0, lo=0)
    device_type: int = slot(1, I8, default=0, lo=0, hi=1, enum=True)
    device_index: int = slot(2, I8, default=0)


@table
class ExecutionPlan:
    name: str = slot(0, STRING, required=True)
    container_meta_type: ContainerMetadata | None = slot(1, ContainerMetadata, default=None)
    values: list[Value] = slot(2, Vector(EVALUE), required=True)
    inputs: Sequence[int] = slot(3, Vector(I32), required=True, lo=0)
    outputs: Sequence[int] = slot(4, Vector(I32), required=True, lo=0)
    chains: list[Chain] = slot(5, Vector(Chain), required=True)
    operators: list[Operator] | None = slot(6, Vector(Operator), default=None)
    delegates: list[BackendDelegate] = slot(7, Vector(BackendDelegate), required=True)
    non_const_buffer_sizes: Sequence[int] = slot(8, Vector(I64), required=True, lo=0)
    non_const_buffer_device: list[NonConstBufferDevice] | None = slot(9, Vector(NonConstBufferDevice), default=None)


# ------------------------------------------------------------------------------------------------------ program


@table
class ConstantBuffer:
    """Constants inside the flatbuffer: written by releases before 0.3 only."""

    storage: Buffer | None = slot(0, Bytes(align=16), default=None)


@table
class DataSegment:
    """A range of the file after the flatbuffer. ``data`` is a view of its bytes, not part of the table; neither is
    ``outer``, a segment that contains this one's bytes, which are then written once."""

    offset: int = slot(0, U64, default=0)
    size: int = slot(1, U64, default=0)
    data: Buffer = field(default=b"", repr=False)
    outer: DataSegment | None = field(default=None, compare=False, repr=False)


@table
class SubsegmentOffsets:
    segment_index: int = slot(0, U32, default=0)
    offsets: Sequence[int] | None = slot(1, Vector(U64), default=None)


@table
class NamedData:
    key: str = slot(0, STRING, required=True)
    segment_index: int = slot(1, U32, default=0)


@table
class Program:
    """A ``.pte`` program: methods, constants, delegates. ``segments`` contain their bytes."""

    version: int = slot(0, U32, default=0)
    execution_plan: list[ExecutionPlan] = slot(1, Vector(ExecutionPlan), required=True)
    constant_buffer: list[ConstantBuffer] | None = slot(2, Vector(ConstantBuffer), default=None)
    backend_delegate_data: list[BackendDelegateInlineData] | None = slot(
        3, Vector(BackendDelegateInlineData), default=None
    )
    segments: list[DataSegment] | None = slot(4, Vector(DataSegment), default=None)
    constant_segment: SubsegmentOffsets | None = slot(5, SubsegmentOffsets, default=None)
    mutable_data_segments: list[SubsegmentOffsets] | None = slot(6, Vector(SubsegmentOffsets), default=None)
    named_data: list[NamedData] | None = slot(7, Vector(NamedData), default=None)
    layout: FileLayout | None = field(default=None, compare=False, repr=False)  # of the file it was read from

    def add_segment(self, data: Buffer, alignment: int = SEGMENT_ALIGNMENT) -> int:
        """Append a segment at the next multiple of ``alignment``; its index."""
        self.segments = [] if self.segments is None else self.segments
        end = max((checked_int.add(s.offset, s.size) for s in self.segments), default=0)
        self.segments.append(DataSegment(offset=checked_int.align(end, alignment), size=len(data), data=data))
        return len(self.segments) - 1

    def add_part(self, outer: int, start: int, data: Buffer) -> int:
        """Append a segment for ``data``, which segment ``outer`` contains at ``start``; its index."""
        assert self.segments is not None
        whole = self.segments[outer]
        checked_int.check_range(start, len(data), whole.size, "a part of a segment")
        offset = checked_int.add(whole.offset, start)
        self.segments.append(DataSegment(offset=offset, size=len(data), data=data, outer=whole))
        return len(self.segments) - 1

    def segment(self, index: int) -> Buffer:
        """The bytes of segment ``index``."""
        return (self.segments or [])[index].data

    def blob(self, delegate: BackendDelegate) -> Buffer:
        """The bytes that a delegate is initialized with."""
        if delegate.processed.location == DataLocation.SEGMENT:
            return self.segment(delegate.processed.index)
        return (self.backend_delegate_data or [])[delegate.processed.index].data
