"""Container of an XNNPACK delegate blob: reader, writer and verifier.

A blob consists of a header (``XH00``), a flatbuffer with the graph (``XN01``; schema ``runtime_schema.fbs`` in
ExecuTorch's ``backends/xnnpack/serialization``) and an optional constant area, each aligned to 16 bytes. The header
stores offset and size of both sections. A constant is a range of the constant area or, in files written here, a key
into the program's named data, so that delegates and methods share one copy of a weight. Blobs are untrusted input:
``verify`` checks every id, offset and size before anything is allocated.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from edgewright.backends.xnnpack.nodes import XNNGraph
from edgewright.backends.xnnpack.tables import INPUT, NONE, OUTPUT, PerChannelGroupQuant, PerChannelQuant, XValue
from edgewright.errors import FormatError
from edgewright.formats import checked_int
from edgewright.formats.flatbuffer import Buffer
from edgewright.formats.flatbuffer_reader import read_root
from edgewright.formats.flatbuffer_writer import FlatWriter

NAMED_OFFSET = 0xFFFFFFFFFFFFFFFF  # offset of a constant that is stored in the named data
_IDENTIFIERS = (b"XN01", b"XN00")
_HEADER = struct.Struct("<4x4sHIIIQ2x")
_MAGIC = b"XH00"


@dataclass
class Blob:
    """A serialized graph and its constant area."""

    graph: XNNGraph
    constants: Buffer = field(default=b"", repr=False)


def read_blob(data: Buffer) -> Blob:
    """Parse and verify a blob. Files older than ExecuTorch 0.4 have no header."""
    view = memoryview(data).cast("B")
    try:
        graph_view, constants = _split_sections(view)
        if len(graph_view) < 8 or bytes(graph_view[4:8]) not in _IDENTIFIERS:
            raise FormatError("a graph has the identifier 'XN01' at byte 4", value=bytes(graph_view[4:8]), offset=4)
        graph = read_root(XNNGraph, graph_view)
        verify(graph, len(constants))
    except FormatError as error:
        raise error.inside("XNNPACK blob") from None
    return Blob(graph, constants)


def _split_sections(view: memoryview) -> tuple[memoryview, memoryview]:
    if bytes(view[4:8]) != _MAGIC:
        return view, view[:0]
    if len(view) < _HEADER.size:
        raise FormatError(f"the header has {_HEADER.size} bytes", value=len(view))
    _, _, start, size, constant_start, constant_size = _HEADER.unpack_from(view)
    checked_int.check_range(start, size, len(view), "the graph")
    checked_int.check_range(constant_start, constant_size, len(view), "the constant area")
    if constant_start < checked_int.add(start, size):
        raise FormatError("constants must come after the graph", value=constant_start, where="header")
    return view[start : start + size], view[constant_start : constant_start + constant_size]


def write_blob(blob: Blob) -> bytes:
    """Verify a blob and serialize it."""
    verify(blob.graph, len(blob.constants))
    graph = FlatWriter().finish(blob.graph, _IDENTIFIERS[0])
    start = checked_int.align(_HEADER.size, 16)
    constants = start + checked_int.align(len(graph), 16)
    header = _HEADER.pack(_MAGIC, _HEADER.size - 2, start, len(graph), constants, len(blob.constants))
    return b"".join((header.ljust(start, b"\0"), graph.ljust(constants - start, b"\0"), bytes(blob.constants)))


# --------------------------------------------------------------------------------------------------------- checks

_OPTIONAL_IDS = {"bias_id", "input3_id", "input4_id", "input5_id", "mask_id", "scale_id"}


def node_ids(node: Any) -> tuple[list[int], list[int]]:
    """Ids of the values a node reads and writes, without absent optional operands."""
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
    """Raise ``FormatError`` unless every id, index and size is valid and every value is defined before use."""
    constants = len(graph.constant_data or graph.constant_buffer or ())
    declared, defined = set(), set()
    externs: set[int] = set()
    for index, value in enumerate(graph.xvalues):
        where = f"xvalues[{index}]"
        tensor = value.tensor
        if tensor.id_out in declared:
            raise FormatError("ids must differ", where=f"{where}.id_out", value=tensor.id_out)
        declared.add(tensor.id_out)
        _verify_value(graph, value, constants, where)
        if tensor.constant_buffer_idx or tensor.flags & INPUT:
            defined.add(tensor.id_out)
        if tensor.external_id != NONE:
            if tensor.external_id in externs:
                raise FormatError("external ids must differ", where=f"{where}.external_id", value=tensor.external_id)
            externs.add(tensor.external_id)
    _verify_constants(graph, constant_size)
    for index, node in enumerate(graph.xnodes):
        reads, writes = node_ids(node.node)
        for value_id in (*reads, *writes):
            if value_id not in declared:
                raise FormatError("must be a value of the graph", where=f"xnodes[{index}]", value=value_id)
        for value_id in reads:
            if value_id not in defined:
                raise FormatError("reads a value before its definition", where=f"xnodes[{index}]", value=value_id)
        for value_id in writes:
            if value_id in defined:
                raise FormatError("writes a value twice", where=f"xnodes[{index}]", value=value_id)
        defined.update(writes)


def _verify_value(graph: XNNGraph, value: XValue, constants: int, where: str) -> None:
    tensor = value.tensor
    checked_int.product(tensor.dims or ())
    if tensor.constant_buffer_idx and not tensor.constant_buffer_idx < constants:
        rule = f"must be one of the {constants} constants"
        raise FormatError(rule, where=f"{where}.constant_buffer_idx", value=tensor.constant_buffer_idx)
    external = tensor.external_id != NONE
    if external and not tensor.external_id < graph.num_externs:
        rule = f"must be one of the {graph.num_externs} externals"
        raise FormatError(rule, where=f"{where}.external_id", value=tensor.external_id)
    if external != bool(tensor.flags) or tensor.flags == INPUT | OUTPUT:
        raise FormatError("an external value is an input or an output", where=f"{where}.flags", value=tensor.flags)
    scales = value.quant.scale_buffer_idx if isinstance(value.quant, PerChannelQuant | PerChannelGroupQuant) else 0
    if scales and not scales < constants:
        raise FormatError(f"must be one of the {constants} constants", where=f"{where}.scale_buffer_idx", value=scales)


def _verify_constants(graph: XNNGraph, constant_size: int) -> None:
    for index, constant in enumerate(graph.constant_data or ()):
        if index and constant.named_key is None:
            try:
                checked_int.check_range(constant.offset, constant.size, constant_size, "the constant area")
            except FormatError as error:
                raise error.inside(f"constant_data[{index}]") from None
        if index and constant.named_key == "":
            raise FormatError("a key must not be empty", where=f"constant_data[{index}].named_key")
