"""Between blobs and device graphs, both ways, as the node rows say."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from edgewright.backends.xnnpack.blob import NAMED, Blob
from edgewright.backends.xnnpack.nodes import (
    ALIGN_CORNERS,
    NODES,
    NUMBER,
    TRANSPOSED,
    ConstantData,
    Node,
    OutputMinMax,
    XNNGraph,
    XNode,
)
from edgewright.backends.xnnpack.tables import (
    INPUT,
    NONE,
    OUTPUT,
    Datatype,
    PerChannelGroupQuant,
    PerChannelQuant,
    PerTensorQuant,
    PerTokenDynamicQuant,
    QuantizedTensorValue,
    TensorValue,
    XValue,
)
from edgewright.errors import FormatError, MissingDataError
from edgewright.ir.dtypes import DType, bfloat16
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from edgewright.pte.flat import Buffer

_DTYPES: dict[int, DType] = {
    Datatype.FP32: np.dtype(np.float32), Datatype.FP16: np.dtype(np.float16), Datatype.BF16: bfloat16,
    Datatype.QINT8: np.dtype(np.int8), Datatype.QUINT8: np.dtype(np.uint8), Datatype.QINT32: np.dtype(np.int32),
    Datatype.QCINT8: np.dtype(np.int8), Datatype.QCINT32: np.dtype(np.int32), Datatype.QCINT4: np.dtype(np.int8),
    Datatype.QDINT8: np.dtype(np.int8), Datatype.QBINT4: np.dtype(np.int8), Datatype.INT32: np.dtype(np.int32),
}  # fmt: skip
_RANGES = {Datatype.QCINT4: (-8, 7), Datatype.QBINT4: (-8, 7), Datatype.QUINT8: (0, 255)}
_FOUR_BIT = (Datatype.QCINT4, Datatype.QBINT4)


# ------------------------------------------------------------------------------------------------ blob to graph


def from_blob(blob: Blob, named_data: Mapping[str, Buffer]) -> Graph:
    """The device graph of a verified blob; externals become its inputs and outputs, in order of their ids."""
    return _Reader(blob, named_data).run()


class _Reader:
    def __init__(self, blob: Blob, named_data: Mapping[str, Buffer]) -> None:
        self.blob = blob
        self.named_data = named_data
        self.values: dict[int, Value] = {}

    def run(self) -> Graph:
        graph = Graph("xnnpack")
        externals: list[tuple[int, int, Value]] = []
        for stored in self.blob.graph.xvalues:
            value = self._value(stored)
            self.values[stored.tensor.id_out] = value
            if stored.tensor.external_id != NONE:
                externals.append((stored.tensor.external_id, stored.tensor.flags, value))
        for _, flags, value in sorted(externals, key=lambda e: e[0]):
            (graph.inputs if flags & INPUT else graph.outputs).append(value)
        graph.ops = [self._op(node) for node in self.blob.graph.xnodes]
        return graph

    def _value(self, stored: XValue) -> Value:
        tensor = stored.tensor
        if tensor.datatype not in _DTYPES:
            raise FormatError("element type is not supported", where=f"value {tensor.id_out}", value=tensor.datatype)
        shape = tuple(tensor.dims or ())
        value = Value(f"v{tensor.id_out}", _DTYPES[tensor.datatype], shape, tuple(range(len(shape))))
        value.q = self._quant(stored)
        if tensor.constant_buffer_idx:
            value.data = self._constant(tensor)
        return value

    def _quant(self, stored: XValue) -> QParams | None:
        quant, datatype = stored.quant, stored.tensor.datatype
        if quant is None:
            return None
        dtype = _DTYPES[datatype]
        qmin, qmax = _RANGES.get(datatype, (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)))
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
        stored = np.frombuffer(self._bytes(quant.scale_buffer_idx), np.uint8)
        size = quant.num_scales * dtype.itemsize
        if stored.size < size:
            raise FormatError(f"scales need {size} bytes", value=stored.size)
        return tuple(stored[:size].view(dtype).astype(np.float32).tolist())

    def _bytes(self, index: int) -> Any:
        legacy = self.blob.graph.constant_buffer
        if not self.blob.graph.constant_data and legacy:
            return legacy[index].storage or b""
        entry = (self.blob.graph.constant_data or [])[index]
        if entry.named_key is None:
            return memoryview(self.blob.constants)[entry.offset : entry.offset + entry.size]
        if entry.named_key not in self.named_data:
            remedy = "Give the .ptd written with this program."
            raise MissingDataError("XNNPACK constant", f"needs the data named {entry.named_key!r}", remedy=remedy)
        return self.named_data[entry.named_key]

    def _constant(self, tensor: TensorValue) -> Array:
        data = np.frombuffer(self._bytes(tensor.constant_buffer_idx), np.uint8)
        shape, dtype = tuple(tensor.dims or ()), _DTYPES[tensor.datatype]
        if tensor.datatype in _FOUR_BIT:
            return _unpack(data, shape, tensor.id_out)
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize if shape else dtype.itemsize
        if data.size < size:
            raise FormatError(f"value {tensor.id_out} needs {size} bytes", value=data.size)
        array: Array = data[:size].view(dtype).reshape(shape)
        return array

    def _op(self, stored: XNode) -> Op:
        row, node = stored.row, stored.node
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
        if row.op == "upsample_bilinear2d":
            args["align_corners"] = bool(node.flags & ALIGN_CORNERS)
        if row.op == "linear":
            args["transposed"] = bool(node.flags & TRANSPOSED)
        limits = stored.output_min_max
        if row.clamps and limits is not None:
            args["limits"] = (limits.output_min, limits.output_max)
        return Op(row.op, args, outputs)


def _unpack(data: Array, shape: tuple[int, ...], name: int) -> Array:
    """Two 4-bit values per byte, the even one low, stored plus 8."""
    columns = shape[-1] + shape[-1] % 2 if shape else 0
    size = int(np.prod(shape[:-1], dtype=object)) * columns // 2
    if data.size < size:
        raise FormatError(f"value {name} needs {size} bytes", value=data.size)
    packed = data[:size].reshape(*shape[:-1], columns // 2)
    values = np.stack((packed & 15, packed >> 4), axis=-1).reshape(*shape[:-1], columns)
    return np.asarray(values[..., : shape[-1]].astype(np.int8) - np.int8(8))


# ------------------------------------------------------------------------------------------------ graph to blob


def to_blob(graph: Graph) -> tuple[Blob, dict[str, Buffer]]:
    """The blob of a device graph, and its constants by name."""
    writer = _Writer(graph)
    return writer.run(), writer.named


class _Writer:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.ids: dict[int, int] = {}
        self.xvalues: list[XValue] = []
        self.constants = [ConstantData()]
        self.named: dict[str, Buffer] = {}
        externals = [*graph.inputs, *graph.outputs]
        self.external = {id(v): i for i, v in enumerate(externals)}

    def run(self) -> Blob:
        nodes = [self._node(op) for op in self.graph.ops]
        graph = XNNGraph(
            version="0",
            xnodes=nodes,
            xvalues=self.xvalues,
            num_externs=len(self.external),
            input_ids=[self._id(v) for v in self.graph.inputs],
            output_ids=[self._id(v) for v in self.graph.outputs],
            constant_data=self.constants,
        )
        return Blob(graph)

    def _id(self, value: Value) -> int:
        if id(value) not in self.ids:
            self.ids[id(value)] = len(self.xvalues)
            self.xvalues.append(self._value(value, len(self.xvalues)))
        return self.ids[id(value)]

    def _value(self, value: Value, number: int) -> XValue:
        inputs = {id(v) for v in self.graph.inputs}
        external = self.external.get(id(value), NONE)
        flags = 0 if external == NONE else INPUT if id(value) in inputs else OUTPUT
        tensor = TensorValue(
            datatype=_datatype(value), num_dims=len(value.shape), dims=value.bound or (1,), external_id=external,
            flags=flags, id_out=number,
        )  # fmt: skip
        if value.data is not None:
            tensor.constant_buffer_idx = self._store(_packed(value))
        quant = self._quant(value.q, tensor.datatype)
        if quant is None:
            return XValue(type=1, value=tensor)
        kind = {PerChannelQuant: 1, PerTensorQuant: 2, PerTokenDynamicQuant: 3, PerChannelGroupQuant: 4}[type(quant)]
        return XValue(
            type=2, value=QuantizedTensorValue(tensor_value=tensor, quant_params_type=kind, quant_params=quant)
        )

    def _quant(self, q: QParams | None, datatype: int) -> Any:
        if q is None:
            return None
        if q.dynamic:
            return PerTokenDynamicQuant(num_nonbatch_dims=-(q.axis or -1))
        if q.axis is None:
            assert isinstance(q.scale, int | float)
            assert isinstance(q.zero_point, int)
            return PerTensorQuant(scale=q.scale, zero_point=q.zero_point)
        dtype = bfloat16 if q.block else np.dtype(np.float32)
        scales = np.asarray(q.scale, np.float32).astype(dtype).tobytes()
        index, count = self._store(scales, "scale_"), len(np.atleast_1d(q.scale))
        fields: dict[str, Any] = {"scale": (), "channel_dim": q.axis, "scale_buffer_idx": index, "num_scales": count}
        return PerChannelGroupQuant(group_size=q.block, **fields) if q.block else PerChannelQuant(**fields)

    def _store(self, data: Buffer, prefix: str = "") -> int:
        """Constants go by the hash of their contents: equal ones are one, across graphs and methods too."""
        key = prefix + hashlib.sha256(data).hexdigest()
        known = next((i for i, c in enumerate(self.constants) if c.named_key == key), None)
        if known is not None:
            return known
        self.named[key] = data
        self.constants.append(ConstantData(offset=NAMED, size=len(data), named_key=key))
        return len(self.constants) - 1

    def _node(self, op: Op) -> XNode:
        row = _row(op)
        fields: dict[str, Any] = {}
        outputs = iter(op.outputs)
        for name, argument in row.ids.items():
            value = next(outputs) if name.startswith("output") else _argument(op, argument)
            fields[name] = NONE if value is None else self._id(value)
        for name, (argument, position) in row.attrs.items():
            given = op.args[argument]
            fields[name] = given if position is None else given[position]
        fields.update(_derived(row, op))
        fields["flags"] = row.flags | _flags(op)
        node = XNode(type=NUMBER[row.name], node=row.table(**fields), debug_handle=65535)
        if row.clamps and op.args.get("limits"):
            node.output_min_max = OutputMinMax(output_min=op.args["limits"][0], output_max=op.args["limits"][1])
        return node


def _row(op: Op) -> Node:
    if op.kind == "cat":
        return NODES[NUMBER[f"Concatenate{len(op.args['tensors'])}"] - 1]
    return next(row for row in NODES if row.op == op.kind)


def _argument(op: Op, argument: str) -> Any:
    name, _, position = argument.partition("[")
    if not position:
        return op.args.get(name)
    items = op.args[name]
    index = int(position[:-1])
    return items[index] if index < len(items) else None


def _flags(op: Op) -> int:
    return ALIGN_CORNERS * bool(op.args.get("align_corners")) + TRANSPOSED * bool(op.args.get("transposed"))


def _derived(row: Node, op: Op) -> dict[str, Any]:
    """Fields that follow from shapes."""
    if row.op in ("conv2d", "depthwise_conv2d", "conv_transpose2d"):
        weight, groups = op.args["weight"].bound, op.args["groups"]
        channels = weight[3] if row.op == "depthwise_conv2d" else weight[0]
        inputs = 1 if row.op == "depthwise_conv2d" else weight[3]
        return {"kernel_height": weight[1], "kernel_width": weight[2], "group_input_channels": inputs,
                "group_output_channels": channels // groups}  # fmt: skip
    if row.op in ("permute", "view", "slice"):
        key = {"permute": "dims", "view": "size", "slice": "start"}[row.op]
        return {"num_dims": len(op.args[key])}
    return {}


def _datatype(value: Value) -> int:
    q = value.q
    if q is None:
        return next(number for number, dtype in _DTYPES.items() if dtype == value.dtype and number not in _QUANTIZED)
    if q.dynamic:
        return Datatype.QDINT8
    if q.block:
        return Datatype.QBINT4
    if (q.qmin, q.qmax) == (-8, 7):
        return Datatype.QCINT4
    wide = q.dtype == np.dtype(np.int32)
    if q.axis is None:
        return Datatype.QINT32 if wide else Datatype.QUINT8 if q.dtype == np.dtype(np.uint8) else Datatype.QINT8
    return Datatype.QCINT32 if wide else Datatype.QCINT8


_QUANTIZED = set(range(Datatype.QINT8, Datatype.QPINT8 + 1))


def _packed(value: Value) -> Buffer:
    """A constant's bytes; those that lie in order are not copied."""
    assert value.data is not None
    if _datatype(value) not in _FOUR_BIT:
        flat: Any = np.ascontiguousarray(value.data).reshape(-1).view(np.uint8)
        return memoryview(flat).toreadonly()
    stored = (value.data.astype(np.int16) + 8).astype(np.uint8)
    if stored.shape[-1] % 2:
        stored = np.concatenate((stored, np.full((*stored.shape[:-1], 1), 8, np.uint8)), axis=-1)
    return (stored[..., 0::2] | stored[..., 1::2] << 4).tobytes()
