"""The XNNPACK delegate's blob: its tables, its node union as one list of rows, its header and its checks."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from edgewright.errors import FormatError
from edgewright.pte import numbers
from edgewright.pte.flat import F32, I16, I32, STRING, U8, U32, U64, Buffer, Bytes, Choice, Vector, slot, table
from edgewright.pte.flat_reader import read_root
from edgewright.pte.flat_writer import FlatWriter

NONE = 0xFFFFFFFF  # no value, no external
NAMED = 0xFFFFFFFFFFFFFFFF  # the offset of a constant that is looked up by name
INPUT, OUTPUT = 1, 2  # flags of external values
MAX_RANK = 6
_MAX_EXTERNS = 4096
_IDENTIFIERS = (b"XN01", b"XN00")
_HEADER = struct.Struct("<4x4sHIIIQ2x")
_MAGIC = b"XH00"


class Datatype:
    """Numbers of element types."""

    FP32, FP16, QINT8, QUINT8, QINT32, QCINT8, QCINT32, QCINT4, QDINT8, QBINT4, QPINT8, INT32, PFP32, BF16 = range(
        1, 15
    )


# ------------------------------------------------------------------------------------------------------- values


@table
class PerTensorQuant:
    scale: float = slot(0, F32, default=0.0)
    zero_point: int = slot(1, I32, default=0)


@table
class PerChannelQuant:
    scale: Sequence[float] | None = slot(0, Vector(F32), default=None)
    channel_dim: int = slot(1, I32, default=0)
    scale_buffer_idx: int = slot(2, U32, default=0)
    num_scales: int = slot(3, U32, default=0)


@table
class PerTokenDynamicQuant:
    num_nonbatch_dims: int = slot(0, I32, default=0, lo=0, hi=MAX_RANK)


@table
class PerChannelGroupQuant:
    scale: Sequence[float] | None = slot(0, Vector(F32), default=None)
    channel_dim: int = slot(1, I32, default=0)
    group_size: int = slot(2, I32, default=1, lo=1)
    scale_buffer_idx: int = slot(4, U32, default=0)
    num_scales: int = slot(5, U32, default=0)


@table
class TensorValue:
    datatype: int = slot(0, I16, default=0, lo=1, hi=14)
    num_dims: int = slot(1, U32, default=0)
    dims: Sequence[int] | None = slot(2, Vector(U32, MAX_RANK), default=None)
    constant_buffer_idx: int = slot(3, U32, default=0)
    external_id: int = slot(4, U32, default=0)
    flags: int = slot(5, U32, default=0, hi=INPUT | OUTPUT)
    id_out: int = slot(6, U32, default=0)
    dq_datatype: int = slot(7, I16, default=0, lo=0, hi=14)


QUANT = {1: PerChannelQuant, 2: PerTensorQuant, 3: PerTokenDynamicQuant, 4: PerChannelGroupQuant}


@table
class QuantizedTensorValue:
    tensor_value: TensorValue = slot(0, TensorValue, required=True)
    quant_params_type: int = slot(1, U8, default=0)
    quant_params: Any = slot(2, Choice("quant_params_type", QUANT), required=True)


@table
class XValue:
    type: int = slot(0, U8, default=0)
    value: Any = slot(1, Choice("type", {1: TensorValue, 2: QuantizedTensorValue}), required=True)

    @property
    def tensor(self) -> TensorValue:
        tensor: TensorValue = self.value if self.type == 1 else self.value.tensor_value
        return tensor

    @property
    def quant(self) -> Any:
        return None if self.type == 1 else self.value.quant_params


# -------------------------------------------------------------------------------------------------------- nodes


@table
class Unary:
    input_id: int = slot(0, U32, default=0)
    output_id: int = slot(1, U32, default=0)
    flags: int = slot(2, U32, default=0)


@table
class Binary:
    input1_id: int = slot(0, U32, default=0)
    input2_id: int = slot(1, U32, default=0)
    output_id: int = slot(2, U32, default=0)
    flags: int = slot(3, U32, default=0)


@table
class Cat:
    axis: int = slot(0, U32, default=0)
    input1_id: int = slot(1, U32, default=0)
    input2_id: int = slot(2, U32, default=0)
    input3_id: int = slot(3, U32, default=0)
    input4_id: int = slot(4, U32, default=0)
    output_id: int = slot(5, U32, default=0)
    flags: int = slot(6, U32, default=0)
    input5_id: int = slot(7, U32, default=0)


@table
class FullyConnected:
    input1_id: int = slot(0, U32, default=0)
    filter_id: int = slot(1, U32, default=0)
    bias_id: int = slot(2, U32, default=0)
    output_id: int = slot(3, U32, default=0)
    flags: int = slot(4, U32, default=0)


@table
class Conv:
    padding_top: int = slot(0, U32, default=0)
    padding_right: int = slot(1, U32, default=0)
    padding_bottom: int = slot(2, U32, default=0)
    padding_left: int = slot(3, U32, default=0)
    kernel_height: int = slot(4, U32, default=0)
    kernel_width: int = slot(5, U32, default=0)
    subsampling_height: int = slot(6, U32, default=0)
    subsampling_width: int = slot(7, U32, default=0)
    dilation_height: int = slot(8, U32, default=0)
    dilation_width: int = slot(9, U32, default=0)
    group_input_channels: int = slot(10, U32, default=0)
    group_output_channels: int = slot(11, U32, default=0)
    groups: int = slot(12, U32, default=0)
    adjustment_height: int = slot(13, U32, default=0)
    adjustment_width: int = slot(14, U32, default=0)
    input1_id: int = slot(15, U32, default=0)
    filter_id: int = slot(16, U32, default=0)
    bias_id: int = slot(17, U32, default=0)
    output_id: int = slot(18, U32, default=0)
    flags: int = slot(19, U32, default=0)


@table
class Pool:
    padding_top: int = slot(0, U32, default=0)
    padding_right: int = slot(1, U32, default=0)
    padding_bottom: int = slot(2, U32, default=0)
    padding_left: int = slot(3, U32, default=0)
    pooling_height: int = slot(4, U32, default=0)
    pooling_width: int = slot(5, U32, default=0)
    stride_height: int = slot(6, U32, default=0)
    stride_width: int = slot(7, U32, default=0)
    dilation_height: int = slot(8, U32, default=0)
    dilation_width: int = slot(9, U32, default=0)
    input_id: int = slot(10, U32, default=0)
    output_id: int = slot(11, U32, default=0)
    flags: int = slot(12, U32, default=0)


@table
class ArgMaxPool:
    padding_top: int = slot(0, U32, default=0)
    padding_right: int = slot(1, U32, default=0)
    padding_bottom: int = slot(2, U32, default=0)
    padding_left: int = slot(3, U32, default=0)
    pooling_height: int = slot(4, U32, default=0)
    pooling_width: int = slot(5, U32, default=0)
    input_id: int = slot(6, U32, default=0)
    output_id: int = slot(7, U32, default=0)
    output_index_id: int = slot(8, U32, default=0)
    flags: int = slot(9, U32, default=0)


@table
class Transpose:
    num_dims: int = slot(0, U32, default=0)
    perm: Sequence[int] = slot(1, Vector(U32, MAX_RANK), required=True)
    input_id: int = slot(2, U32, default=0)
    output_id: int = slot(3, U32, default=0)
    flags: int = slot(4, U32, default=0)


@table
class Reshape:
    num_dims: int = slot(0, U32, default=0)
    new_shape: Sequence[int] = slot(1, Vector(U32, MAX_RANK), required=True)
    input_id: int = slot(2, U32, default=0)
    output_id: int = slot(3, U32, default=0)
    flags: int = slot(4, U32, default=0)


@table
class Slice:
    num_dims: int = slot(0, U32, default=0)
    offsets: Sequence[int] = slot(1, Vector(U32, MAX_RANK), required=True)
    sizes: Sequence[int] = slot(2, Vector(U32, MAX_RANK), required=True)
    input_id: int = slot(3, U32, default=0)
    output_id: int = slot(4, U32, default=0)
    flags: int = slot(5, U32, default=0)


@table
class ConstantPad:
    pre_paddings: Sequence[int] = slot(0, Vector(U32, MAX_RANK), required=True)
    post_paddings: Sequence[int] = slot(1, Vector(U32, MAX_RANK), required=True)
    padding_value: float = slot(2, F32, default=0.0)
    input_id: int = slot(3, U32, default=0)
    output_id: int = slot(4, U32, default=0)
    flags: int = slot(5, U32, default=0)


@table
class ResizeBilinear:
    new_height: int = slot(0, U32, default=0)
    new_width: int = slot(1, U32, default=0)
    input_id: int = slot(2, U32, default=0)
    output_id: int = slot(3, U32, default=0)
    flags: int = slot(4, U32, default=0)


@table
class Sloped:
    """A unary node with one parameter: the slope of LeakyReLU, the alpha of ELU."""

    parameter: float = slot(0, F32, default=0.0)
    input_id: int = slot(1, U32, default=0)
    output_id: int = slot(2, U32, default=0)
    flags: int = slot(3, U32, default=0)


@table
class Attention:
    query_id: int = slot(0, U32, default=0)
    key_id: int = slot(1, U32, default=0)
    value_id: int = slot(2, U32, default=0)
    scale_id: int = slot(3, U32, default=0)
    mask_id: int = slot(4, U32, default=0)
    output_id: int = slot(5, U32, default=0)
    flags: int = slot(6, U32, default=0)


# Every node: its number is its place in this list, counted from 1.
NODES: tuple[tuple[str, type], ...] = (
    ("Add", Binary), ("FullyConnected", FullyConnected), ("Softmax", Unary), ("Sigmoid", Unary),
    ("StaticTranspose", Transpose), ("Clamp", Unary), ("Conv2d", Conv), ("Div", Binary),
    ("StaticResizeBilinear2D", ResizeBilinear), ("StaticConstantPad", ConstantPad), ("AvgPooling2d", Pool),
    ("Minimum", Binary), ("DepthwiseConv2d", Conv), ("MaxPooling2d", Pool), ("Multiply", Binary),
    ("Subtract", Binary), ("Floor", Unary), ("Convert", Unary), ("GlobalAvgPooling2d", Unary),
    ("StaticReshape", Reshape), ("ArgMaxPooling2d", ArgMaxPool), ("SquareRoot", Unary), ("Ceiling", Unary),
    ("Hardswish", Unary), ("LeakyReLU", Sloped), ("Maximum", Binary), ("Negate", Unary), ("Square", Unary),
    ("ELU", Sloped), ("Abs", Unary), ("PReLU", Binary), ("Concatenate2", Cat), ("Concatenate3", Cat),
    ("Concatenate4", Cat), ("StaticSlice", Slice), ("ScaledDotProductAttention", Attention),
    ("BatchMatrixMultiply", Binary), ("Concatenate5", Cat), ("ConvTranspose2d", Conv),
    ("ReciprocalSquareRoot", Unary), ("Log", Unary), ("Gelu", Unary), ("Tanh", Unary), ("Exp", Unary),
    ("Sin", Unary), ("Copy", Unary), ("Cos", Unary),
)  # fmt: skip
NUMBER = {name: number for number, (name, _) in enumerate(NODES, 1)}


@table
class OutputMinMax:
    output_min: float = slot(0, F32, default=0.0)
    output_max: float = slot(1, F32, default=0.0)


@table
class XNode:
    type: int = slot(0, U8, default=0)
    node: Any = slot(1, Choice("type", {n: cls for n, (_, cls) in enumerate(NODES, 1)}), required=True)
    debug_handle: int = slot(2, U32, default=0)
    output_min_max: OutputMinMax | None = slot(3, OutputMinMax, default=None)

    @property
    def name(self) -> str:
        return NODES[self.type - 1][0]


# -------------------------------------------------------------------------------------------------------- graph


@table
class LegacyBuffer:
    storage: Buffer | None = slot(0, Bytes(align=16), default=None)


@table
class ConstantData:
    """Where a constant is: bytes of the blob's constant area, or an entry of the named data."""

    offset: int = slot(0, U64, default=0)
    size: int = slot(1, U64, default=0)
    named_key: str | None = slot(2, STRING, default=None)


@table
class XNNGraph:
    version: str | None = slot(0, STRING, default=None)
    xnodes: list[XNode] = slot(1, Vector(XNode), required=True)
    xvalues: list[XValue] = slot(2, Vector(XValue), required=True)
    num_externs: int = slot(3, U32, default=0, hi=_MAX_EXTERNS)
    input_ids: Sequence[int] | None = slot(4, Vector(U32), default=None)
    output_ids: Sequence[int] | None = slot(5, Vector(U32), default=None)
    constant_buffer: list[LegacyBuffer] | None = slot(6, Vector(LegacyBuffer), default=None)
    mem_buffer_sizes: Sequence[int] | None = slot(7, Vector(U32), default=None)
    constant_data: list[ConstantData] | None = slot(8, Vector(ConstantData), default=None)


@dataclass
class Blob:
    """A graph and the constants that travel with it."""

    graph: XNNGraph
    constants: Buffer = field(default=b"", repr=False)


def read_blob(data: Buffer) -> Blob:
    """Read and verify a blob (with or without the header of files before 0.4)."""
    view = memoryview(data).cast("B")
    try:
        graph_view, constants = _parts(view)
        if len(graph_view) < 8 or bytes(graph_view[4:8]) not in _IDENTIFIERS:
            raise FormatError("a graph has the identifier 'XN01' at byte 4", value=bytes(graph_view[4:8]), offset=4)
        graph = read_root(XNNGraph, graph_view)
        verify(graph, len(constants))
    except FormatError as error:
        raise error.inside("XNNPACK blob") from None
    return Blob(graph, constants)


def _parts(view: memoryview) -> tuple[memoryview, memoryview]:
    if bytes(view[4:8]) != _MAGIC:
        return view, view[:0]
    if len(view) < _HEADER.size:
        raise FormatError(f"the header has {_HEADER.size} bytes", value=len(view))
    _, _, start, size, constant_start, constant_size = _HEADER.unpack_from(view)
    numbers.inside(start, size, len(view), "the graph")
    numbers.inside(constant_start, constant_size, len(view), "the constant area")
    if constant_start < numbers.add(start, size):
        raise FormatError("constants must come after the graph", value=constant_start, where="header")
    return view[start : start + size], view[constant_start : constant_start + constant_size]


def write_blob(blob: Blob) -> bytes:
    """The bytes of a blob, checked."""
    verify(blob.graph, len(blob.constants))
    graph = FlatWriter().finish(blob.graph, _IDENTIFIERS[0])
    start = numbers.align(_HEADER.size, 16)
    constants = start + numbers.align(len(graph), 16)
    header = _HEADER.pack(_MAGIC, _HEADER.size - 2, start, len(graph), constants, len(blob.constants))
    return b"".join((header.ljust(start, b"\0"), graph.ljust(constants - start, b"\0"), bytes(blob.constants)))


# --------------------------------------------------------------------------------------------------------- checks

_OPTIONAL_IDS = {"bias_id", "input3_id", "input4_id", "input5_id", "mask_id", "scale_id"}


def node_ids(node: Any) -> tuple[list[int], list[int]]:
    """The values a node reads and writes; absent ones left out."""
    reads: list[int] = []
    writes: list[int] = []
    for name in node.__slots__:
        if name.endswith("_id"):
            value = getattr(node, name)
            if value == NONE and name in _OPTIONAL_IDS:
                continue
            (writes if name.startswith("output") else reads).append(value)
    return reads, writes


def verify(graph: XNNGraph, constant_size: int) -> None:
    """Raise ``FormatError`` unless every id, index and size is sound and every value is made before it is read."""
    constants = len(graph.constant_data or graph.constant_buffer or ())
    known, made = set(), set()
    externs: set[int] = set()
    for index, value in enumerate(graph.xvalues):
        where = f"xvalues[{index}]"
        tensor = value.tensor
        if tensor.id_out in known:
            raise FormatError("ids must differ", where=f"{where}.id_out", value=tensor.id_out)
        known.add(tensor.id_out)
        _verify_value(graph, value, constants, where)
        if tensor.constant_buffer_idx or tensor.flags & INPUT:
            made.add(tensor.id_out)
        if tensor.external_id != NONE:
            if tensor.external_id in externs:
                raise FormatError("external ids must differ", where=f"{where}.external_id", value=tensor.external_id)
            externs.add(tensor.external_id)
    _verify_constants(graph, constant_size)
    for index, node in enumerate(graph.xnodes):
        reads, writes = node_ids(node.node)
        for value_id in (*reads, *writes):
            if value_id not in known:
                raise FormatError("must be a value of the graph", where=f"xnodes[{index}]", value=value_id)
        for value_id in reads:
            if value_id not in made:
                raise FormatError("reads a value before it is made", where=f"xnodes[{index}]", value=value_id)
        for value_id in writes:
            if value_id in made:
                raise FormatError("writes a value again", where=f"xnodes[{index}]", value=value_id)
        made.update(writes)


def _verify_value(graph: XNNGraph, value: XValue, constants: int, where: str) -> None:
    tensor = value.tensor
    numbers.product(tensor.dims or ())
    if tensor.constant_buffer_idx and not tensor.constant_buffer_idx < constants:
        rule = f"must be one of the {constants} constants"
        raise FormatError(rule, where=f"{where}.constant_buffer_idx", value=tensor.constant_buffer_idx)
    external = tensor.external_id != NONE
    if external and not tensor.external_id < graph.num_externs:
        rule = f"must be one of the {graph.num_externs} externals"
        raise FormatError(rule, where=f"{where}.external_id", value=tensor.external_id)
    if external != bool(tensor.flags) or tensor.flags == INPUT | OUTPUT:
        raise FormatError("an external value is an input or an output", where=f"{where}.flags", value=tensor.flags)
    scales = getattr(value.quant, "scale_buffer_idx", 0)
    if scales and not scales < constants:
        raise FormatError(f"must be one of the {constants} constants", where=f"{where}.scale_buffer_idx", value=scales)


def _verify_constants(graph: XNNGraph, constant_size: int) -> None:
    for index, constant in enumerate(graph.constant_data or ()):
        if index and constant.named_key is None:
            try:
                numbers.inside(constant.offset, constant.size, constant_size, "the constant area")
            except FormatError as error:
                raise error.inside(f"constant_data[{index}]") from None
        if index and constant.named_key == "":
            raise FormatError("a key must not be empty", where=f"constant_data[{index}].named_key")
