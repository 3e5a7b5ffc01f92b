"""Device graph to blob, driven by the node table."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from edgewright.backends.xnnpack.blob import NAMED_OFFSET, Blob
from edgewright.backends.xnnpack.nodes import (
    ALIGN_CORNERS,
    NODE_TYPE,
    NODES,
    TRANSPOSED,
    ConstantData,
    NodeDef,
    OutputMinMax,
    XNNGraph,
    XNode,
)
from edgewright.backends.xnnpack.tables import (
    DTYPES,
    INPUT,
    INT4_TYPES,
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
from edgewright.formats.flatbuffer import Buffer
from edgewright.ir.dtypes import bfloat16
from edgewright.ir.graph import Graph, Op, QParams, Value


def to_blob(graph: Graph) -> tuple[Blob, dict[str, Buffer]]:
    """Encode a device graph; returns the blob and its constants by key."""
    writer = _Writer(graph)
    return writer.run(), writer.named_data


class _Writer:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.ids: dict[Value, int] = {}
        self.xvalues: list[XValue] = []
        self.constants = [ConstantData()]
        self.named_data: dict[str, Buffer] = {}
        externals = [*graph.inputs, *graph.outputs]
        self.external = {v: i for i, v in enumerate(externals)}

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
        if value not in self.ids:
            self.ids[value] = len(self.xvalues)
            self.xvalues.append(self._value(value, len(self.xvalues)))
        return self.ids[value]

    def _value(self, value: Value, number: int) -> XValue:
        inputs = set(self.graph.inputs)
        external = self.external.get(value, NONE)
        flags = 0 if external == NONE else INPUT if value in inputs else OUTPUT
        tensor = TensorValue(
            datatype=_datatype(value), num_dims=len(value.shape), dims=value.bound or (1,), external_id=external,
            flags=flags, id_out=number,
        )  # fmt: skip
        if value.data is not None:
            tensor.constant_buffer_idx = self._store(_constant_bytes(value))
        quant = self._quant(value.q)
        if quant is None:
            return XValue(type=1, value=tensor)
        kind = {PerChannelQuant: 1, PerTensorQuant: 2, PerTokenDynamicQuant: 3, PerChannelGroupQuant: 4}[type(quant)]
        return XValue(
            type=2, value=QuantizedTensorValue(tensor_value=tensor, quant_params_type=kind, quant_params=quant)
        )

    def _quant(self, q: QParams | None) -> Any:
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
        """Keys are content hashes, so equal constants are stored once across delegates and methods."""
        key = prefix + hashlib.sha256(data).hexdigest()
        index = next((i for i, c in enumerate(self.constants) if c.named_key == key), None)
        if index is not None:
            return index
        self.named_data[key] = data
        self.constants.append(ConstantData(offset=NAMED_OFFSET, size=len(data), named_key=key))
        return len(self.constants) - 1

    def _node(self, op: Op) -> XNode:
        row = _node_def(op)
        fields: dict[str, Any] = {}
        outputs = iter(op.outputs)
        for name, argument in row.ids.items():
            value = next(outputs) if name.startswith("output") else _argument(op, argument)
            fields[name] = NONE if value is None else self._id(value)
        for name, (argument, position) in row.attrs.items():
            argument_value = op.args[argument]
            fields[name] = argument_value if position is None else argument_value[position]
        fields.update(_shape_fields(op))
        fields["flags"] = row.flags | _flags(op)
        node = XNode(type=NODE_TYPE[row.name], node=row.table(**fields), debug_handle=65535)
        if row.clamps and op.args.get("limits"):
            node.output_min_max = OutputMinMax(output_min=op.args["limits"][0], output_max=op.args["limits"][1])
        return node


def _node_def(op: Op) -> NodeDef:
    if op.kind == "core.cat":
        return NODES[NODE_TYPE[f"Concatenate{len(op.args['tensors'])}"] - 1]
    return next(row for row in NODES if row.kind == op.kind)


def _argument(op: Op, argument: str) -> Any:
    name, _, position = argument.partition("[")
    if not position:
        return op.args.get(name)
    items = op.args[name]
    index = int(position[:-1])
    return items[index] if index < len(items) else None


def _flags(op: Op) -> int:
    return ALIGN_CORNERS * bool(op.args.get("align_corners")) + TRANSPOSED * bool(op.args.get("transposed"))


def _shape_fields(op: Op) -> dict[str, Any]:
    """Node fields that are derived from tensor shapes."""
    if op.kind in ("core.conv2d", "core.depthwise_conv2d", "core.conv_transpose2d"):
        weight, groups = op.args["weight"].bound, op.args["groups"]
        channels = weight[3] if op.kind == "core.depthwise_conv2d" else weight[0]
        inputs = 1 if op.kind == "core.depthwise_conv2d" else weight[3]
        return {"kernel_height": weight[1], "kernel_width": weight[2], "group_input_channels": inputs,
                "group_output_channels": channels // groups}  # fmt: skip
    key = {"core.permute": "dims", "core.view": "size", "core.slice": "start"}.get(op.kind)
    return {} if key is None else {"num_dims": len(op.args[key])}


def _datatype(value: Value) -> int:
    q = value.q
    if q is None:
        return next(number for number, dtype in DTYPES.items() if dtype == value.dtype and number not in _QUANTIZED)
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


def _constant_bytes(value: Value) -> Buffer:
    """Serialized constant, int4 packed two per byte; a contiguous array is not copied."""
    assert value.data is not None
    if _datatype(value) not in INT4_TYPES:
        flat: Any = np.ascontiguousarray(value.data).reshape(-1).view(np.uint8)
        return memoryview(flat).toreadonly()
    biased = (value.data.astype(np.int16) + 8).astype(np.uint8)
    if biased.shape[-1] % 2:
        biased = np.concatenate((biased, np.full((*biased.shape[:-1], 1), 8, np.uint8)), axis=-1)
    return (biased[..., 0::2] | biased[..., 1::2] << 4).tobytes()
