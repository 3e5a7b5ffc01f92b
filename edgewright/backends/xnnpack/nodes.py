"""Node table of the XNNPACK graph format, which drives ``blob_writer`` and ``blob_reader``; and the graph table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgewright.backends.xnnpack.tables import (
    MAX_EXTERNS,
    ArgMaxPool,
    Attention,
    Binary,
    Cat,
    ConstantPad,
    Conv,
    FullyConnected,
    Pool,
    Reshape,
    ResizeBilinear,
    Slice,
    Transpose,
    Unary,
    UnaryWithParam,
    XValue,
)
from edgewright.formats.flatbuffer import F32, STRING, U8, U32, U64, Buffer, Bytes, UnionField, Vector, slot, table


@dataclass(frozen=True)
class NodeDef:
    """One node type: its flatbuffer table, the core operator it represents, and the field of each operator argument.

    ``ids``: tensor arguments by field (``out`` is the result; ``tensors[i]`` is one element of a list argument).
    ``attrs``: other arguments by field, with the index into a list argument. All other fields are derived from shapes.
    """

    name: str
    table: type
    kind: str
    ids: Mapping[str, str]
    attrs: Mapping[str, tuple[str, int | None]] = field(default_factory=dict)
    flags: int = 0
    clamps: bool = False  # honours output_min_max


_UNARY_IDS = {"input_id": "self", "output_id": "out"}
_BINARY_IDS = {"input1_id": "self", "input2_id": "other", "output_id": "out"}
_CAT_IDS = {f"input{i}_id": f"tensors[{i - 1}]" for i in range(1, 6)} | {"output_id": "out"}
_FILTER_IDS = {"input1_id": "input", "filter_id": "weight", "bias_id": "bias", "output_id": "out"}
_PADS: dict[str, tuple[str, int | None]] = {
    "padding_top": ("padding", 0), "padding_bottom": ("padding", 1), "padding_left": ("padding", 2),
    "padding_right": ("padding", 3),
}  # fmt: skip
_CONV: dict[str, tuple[str, int | None]] = {
    **_PADS, "subsampling_height": ("stride", 0), "subsampling_width": ("stride", 1),
    "dilation_height": ("dilation", 0), "dilation_width": ("dilation", 1), "groups": ("groups", None),
    "adjustment_height": ("output_padding", 0), "adjustment_width": ("output_padding", 1),
}  # fmt: skip
_POOL: dict[str, tuple[str, int | None]] = {
    **_PADS, "pooling_height": ("kernel_size", 0), "pooling_width": ("kernel_size", 1),
    "stride_height": ("stride", 0), "stride_width": ("stride", 1),
}  # fmt: skip
_DILATION: dict[str, tuple[str, int | None]] = {"dilation_height": ("dilation", 0), "dilation_width": ("dilation", 1)}
KEEP_DIMS, ALIGN_CORNERS, TRANSPOSED = 64, 8, 1


def _unary(name: str, kind: str = "", **fields: Any) -> NodeDef:
    """``kind``: unless core has the operator under XNNPACK's name."""
    return NodeDef(name, Unary, kind or f"core.{name.lower()}", _UNARY_IDS, **fields)


def _binary(name: str, kind: str = "", **fields: Any) -> NodeDef:
    return NodeDef(name, Binary, kind or f"core.{name.lower()}", _BINARY_IDS, **fields)


# Every node type of the format, in order of the schema's union: the type number is the index in this list plus 1.
NODES: tuple[NodeDef, ...] = (
    _binary("Add", clamps=True),
    NodeDef("FullyConnected", FullyConnected, "core.linear", _FILTER_IDS, clamps=True),
    _unary("Softmax"),
    _unary("Sigmoid"),
    NodeDef("StaticTranspose", Transpose, "core.permute", _UNARY_IDS, {"perm": ("dims", None)}),
    _unary("Clamp", clamps=True),
    NodeDef("Conv2d", Conv, "core.conv2d", _FILTER_IDS, _CONV, clamps=True),
    _binary("Div", clamps=True),
    NodeDef("StaticResizeBilinear2D", ResizeBilinear, "core.upsample_bilinear2d", {"input_id": "input",
         "output_id": "out"}, {"new_height": ("output_size", 0), "new_width": ("output_size", 1)}),
    NodeDef("StaticConstantPad", ConstantPad, "core.pad", _UNARY_IDS,
         {"pre_paddings": ("before", None), "post_paddings": ("after", None), "padding_value": ("value", None)}),
    NodeDef("AvgPooling2d", Pool, "core.avg_pool2d", _UNARY_IDS, _POOL, flags=KEEP_DIMS, clamps=True),
    _binary("Minimum"),
    NodeDef("DepthwiseConv2d", Conv, "core.depthwise_conv2d", _FILTER_IDS, _CONV, clamps=True),
    NodeDef("MaxPooling2d", Pool, "core.max_pool2d", _UNARY_IDS, {**_POOL, **_DILATION}, flags=KEEP_DIMS, clamps=True),
    _binary("Multiply", "core.mul", clamps=True),
    _binary("Subtract", "core.sub", clamps=True),
    _unary("Floor"),
    _unary("Convert"),
    _unary("GlobalAvgPooling2d", "core.global_avg_pool2d", flags=KEEP_DIMS, clamps=True),
    NodeDef("StaticReshape", Reshape, "core.view", _UNARY_IDS, {"new_shape": ("size", None)}),
    NodeDef("ArgMaxPooling2d", ArgMaxPool, "core.argmax_pool2d",
         {"input_id": "self", "output_id": "out", "output_index_id": "index"},
         {**_PADS, "pooling_height": ("kernel_size", 0), "pooling_width": ("kernel_size", 1)}),
    _unary("SquareRoot", "core.sqrt"),
    _unary("Ceiling", "core.ceil"),
    _unary("Hardswish"),
    NodeDef("LeakyReLU", UnaryWithParam, "core.leaky_relu", _UNARY_IDS, {"parameter": ("negative_slope", None)}),
    _binary("Maximum"),
    _unary("Negate", "core.neg"),
    _unary("Square"),
    NodeDef("ELU", UnaryWithParam, "core.elu", _UNARY_IDS, {"parameter": ("alpha", None)}),
    _unary("Abs"),
    NodeDef("PReLU", Binary, "core.prelu", {"input1_id": "self", "input2_id": "weight", "output_id": "out"}),
    NodeDef("Concatenate2", Cat, "core.cat", _CAT_IDS, {"axis": ("dim", None)}),
    NodeDef("Concatenate3", Cat, "core.cat", _CAT_IDS, {"axis": ("dim", None)}),
    NodeDef("Concatenate4", Cat, "core.cat", _CAT_IDS, {"axis": ("dim", None)}),
    NodeDef("StaticSlice", Slice, "core.slice", _UNARY_IDS, {"offsets": ("start", None), "sizes": ("length", None)}),
    NodeDef("ScaledDotProductAttention", Attention, "core.scaled_dot_product_attention",
         {"query_id": "query", "key_id": "key", "value_id": "value", "scale_id": "scale", "mask_id": "attn_mask",
          "output_id": "out"}),
    _binary("BatchMatrixMultiply", "core.bmm"),
    NodeDef("Concatenate5", Cat, "core.cat", _CAT_IDS, {"axis": ("dim", None)}),
    NodeDef("ConvTranspose2d", Conv, "core.conv_transpose2d", _FILTER_IDS, _CONV, clamps=True),
    _unary("ReciprocalSquareRoot", "core.rsqrt"),
    _unary("Log"),
    _unary("Gelu"),
    _unary("Tanh"),
    _unary("Exp"),
    _unary("Sin"),
    _unary("Copy", "core.clone"),
    _unary("Cos"),
)  # fmt: skip
NODE_TYPE = {node.name: number for number, node in enumerate(NODES, 1)}


@table
class OutputMinMax:
    output_min: float = slot(0, F32, default=0.0)
    output_max: float = slot(1, F32, default=0.0)


@table
class XNode:
    type: int = slot(0, U8, default=0)
    node: Any = slot(1, UnionField("type", {n: node.table for n, node in enumerate(NODES, 1)}), required=True)
    debug_handle: int = slot(2, U32, default=0)
    output_min_max: OutputMinMax | None = slot(3, OutputMinMax, default=None)

    @property
    def row(self) -> NodeDef:
        return NODES[self.type - 1]


# -------------------------------------------------------------------------------------------------------- graph


@table
class LegacyBuffer:
    storage: Buffer | None = slot(0, Bytes(align=16), default=None)


@table
class ConstantData:
    """Location of a constant: a range of the blob's constant area, or a key of the named data."""

    offset: int = slot(0, U64, default=0)
    size: int = slot(1, U64, default=0)
    named_key: str | None = slot(2, STRING, default=None)


@table
class XNNGraph:
    version: str | None = slot(0, STRING, default=None)
    xnodes: list[XNode] = slot(1, Vector(XNode), required=True)
    xvalues: list[XValue] = slot(2, Vector(XValue), required=True)
    num_externs: int = slot(3, U32, default=0, hi=MAX_EXTERNS)
    input_ids: Sequence[int] | None = slot(4, Vector(U32), default=None)
    output_ids: Sequence[int] | None = slot(5, Vector(U32), default=None)
    constant_buffer: list[LegacyBuffer] | None = slot(6, Vector(LegacyBuffer), default=None)
    mem_buffer_sizes: Sequence[int] | None = slot(7, Vector(U32), default=None)
    constant_data: list[ConstantData] | None = slot(8, Vector(ConstantData), default=None)
