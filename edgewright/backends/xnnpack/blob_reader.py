"""Blob to device graph, driven by the node table."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from edgewright.backends.xnnpack.blob import Blob
from edgewright.backends.xnnpack.nodes import (
    ALIGN_CORNERS,
    TRANSPOSED,
    XNode,
)
from edgewright.backends.xnnpack.tables import (
    DTYPES,
    INPUT,
    INT4_TYPES,
    NONE,
    QUANT_RANGES,
    PerChannelGroupQuant,
    PerChannelQuant,
    PerTensorQuant,
    PerTokenDynamicQuant,
    TensorValue,
    XValue,
)
from edgewright.errors import FormatError, MissingDataError
from edgewright.formats.flatbuffer import Buffer
from edgewright.ir.dtypes import DType, bfloat16
from edgewright.ir.graph import Array, Graph, Op, QParams, Value


def from_blob(blob: Blob, named_data: Mapping[str, Buffer]) -> Graph:
    """Decode a verified blob; external values become the graph's inputs and outputs, ordered by external id."""
    return _Reader(blob, named_data).run()


class _Reader:
    def __init__(self, blob: Blob, named_data: Mapping[str, Buffer]) -> None:
        self.blob = blob
        self.named_data = named_data
        self.values: dict[int, Value] = {}

    def run(self) -> Graph:
        graph = Graph("xnnpack")
        externals: list[tuple[int, int, Value]] = []
        for xvalue in self.blob.graph.xvalues:
            value = self._value(xvalue)
            self.values[xvalue.tensor.id_out] = value
            if xvalue.tensor.external_id != NONE:
                externals.append((xvalue.tensor.external_id, xvalue.tensor.flags, value))
        for _, flags, value in sorted(externals, key=lambda e: e[0]):
            (graph.inputs if flags & INPUT else graph.outputs).append(value)
        graph.ops = [self._op(node) for node in self.blob.graph.xnodes]
        return graph

    def _value(self, xvalue: XValue) -> Value:
        tensor = xvalue.tensor
        if tensor.datatype not in DTYPES:
            raise FormatError("element type is not supported", where=f"value {tensor.id_out}", value=tensor.datatype)
        shape = tuple(tensor.dims or ())
        value = Value(f"v{tensor.id_out}", DTYPES[tensor.datatype], shape, tuple(range(len(shape))))
        value.q = self._quant(xvalue)
        if tensor.constant_buffer_idx:
            value.data = self._constant(tensor)
        return value

    def _quant(self, xvalue: XValue) -> QParams | None:
        quant, datatype = xvalue.quant, xvalue.tensor.datatype
        if quant is None:
            return None
        dtype = DTYPES[datatype]
        qmin, qmax = QUANT_RANGES.get(datatype, (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)))
        if isinstance(quant, PerTensorQuant):
            return QParams(quant.scale, quant.zero_point, dtype, qmin, qmax)
        if isinstance(quant, PerTokenDynamicQuant):
            return QParams(1.0, 0, dtype, qmin, qmax, axis=-quant.num_nonbatch_dims, dynamic="per_token")
        grouped = isinstance(quant, PerChannelGroupQuant)
        scales = self._scales(quant, bfloat16 if grouped else np.dtype(np.float32))
        block = quant.group_size if isinstance(quant, PerChannelGroupQuant) else None
        return QParams(scales, 0, dtype, qmin, qmax, axis=quant.channel_dim, block=block)

    def _scales(self, quant: PerChannelQuant | PerChannelGroupQuant, dtype: DType) -> tuple[float, ...]:
        if not quant.scale_buffer_idx:
            return tuple(quant.scale or ())
        data = np.frombuffer(self._bytes(quant.scale_buffer_idx), np.uint8)
        size = quant.num_scales * dtype.itemsize
        if data.size < size:
            raise FormatError(f"scales need {size} bytes", value=data.size)
        if dtype == bfloat16:  # many, of few different numbers: one object for each of those
            return tuple(map(_bfloat16_numbers().__getitem__, data[:size].view(np.uint16).tolist()))
        return tuple(data[:size].view(dtype).astype(np.float32).tolist())

    def _bytes(self, index: int) -> Any:
        legacy = self.blob.graph.constant_buffer
        if not self.blob.graph.constant_data and legacy:
            return legacy[index].storage or b""
        entry = (self.blob.graph.constant_data or [])[index]
        if entry.named_key is None:
            return memoryview(self.blob.constants)[entry.offset : entry.offset + entry.size]
        if entry.named_key not in self.named_data:
            remedy = "Pass the .ptd file that was written with this program."
            raise MissingDataError("XNNPACK constant", f"needs the data named {entry.named_key!r}", remedy=remedy)
        return self.named_data[entry.named_key]

    def _constant(self, tensor: TensorValue) -> Array:
        data = np.frombuffer(self._bytes(tensor.constant_buffer_idx), np.uint8)
        shape, dtype = tuple(tensor.dims or ()), DTYPES[tensor.datatype]
        if tensor.datatype in INT4_TYPES:
            return _unpack_int4(data, shape, tensor.id_out)
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize if shape else dtype.itemsize
        if data.size < size:
            raise FormatError(f"value {tensor.id_out} needs {size} bytes", value=data.size)
        array: Array = data[:size].view(dtype).reshape(shape)
        return array

    def _op(self, xnode: XNode) -> Op:
        row, node = xnode.row, xnode.node
        args: dict[str, Any] = {}
        outputs: list[Value | None] = []
        for name, argument in row.ids.items():
            value = None if getattr(node, name) == NONE else self.values[getattr(node, name)]
            if name.startswith("output"):
                outputs.append(value)
            elif argument.endswith("]"):
                if value is not None:
                    args.setdefault(argument.partition("[")[0], []).append(value)
            else:
                args[argument] = value
        for name, (argument, position) in row.attrs.items():
            number = getattr(node, name)
            if position is None:
                args[argument] = list(number) if isinstance(number, tuple | list) else number
            else:
                args.setdefault(argument, []).append(number)
        if row.kind == "core.upsample_bilinear2d":
            args["align_corners"] = bool(node.flags & ALIGN_CORNERS)
        if row.kind == "core.linear":
            args["transposed"] = bool(node.flags & TRANSPOSED)
        limits = xnode.output_min_max
        if row.clamps and limits is not None:
            args["limits"] = (limits.output_min, limits.output_max)
        return Op(row.kind, args, outputs)


@cache
def _bfloat16_numbers() -> list[float]:
    """The numbers of all bit patterns of bfloat16."""
    numbers: list[float] = np.arange(1 << 16, dtype=np.uint16).view(bfloat16).astype(np.float32).tolist()
    return numbers


def _unpack_int4(data: Array, shape: tuple[int, ...], name: int) -> Array:
    """Unpack two int4 values per byte: even index in the low nibble, biased by 8, rows padded to full bytes."""
    columns = shape[-1] + shape[-1] % 2 if shape else 0
    size = int(np.prod(shape[:-1], dtype=object)) * columns // 2
    if data.size < size:
        raise FormatError(f"value {name} needs {size} bytes", value=data.size)
    packed = data[:size].reshape(*shape[:-1], columns // 2)
    values = np.stack((packed & 15, packed >> 4), axis=-1).reshape(*shape[:-1], columns)
    return np.asarray(values[..., : shape[-1]].astype(np.int8) - np.int8(8))
