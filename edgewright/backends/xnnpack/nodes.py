"""The nodes of an XNNPACK graph, one row each, which emitter and reader interpret; and the graph that holds them."""

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
    Sloped,
    Transpose,
    Unary,
    XValue,
)
from edgewright.formats.flatbuffer import F32, STRING, U8, U32, U64, Buffer, Bytes, UnionField, Vector, slot, table


@dataclass(frozen=True)
class Node:
    """One node type: its table, the operator it is, and where each of the operator's arguments is kept.

    ``ids``: tensor arguments by field (``out`` is the result; a list is spread over several fields). ``attrs``: other
    arguments by field, with the position in a list argument. What is in neither follows from the tensors' shapes.
    """

    name: str
    table: type
    op: str
    ids: Mapping[str, str]
    attrs: Mapping[str, tuple[str, int | None]] = field(default_factory=dict)
    flags: int = 0
    clamps: bool = False  # honours output_min_max


_UNARY = {"input_id": "self", "output_id": "out"}
_BINARY = {"input1_id": "self", "input2_id": "other", "output_id": "out"}
_CAT = {f"input{i}_id": f"tensors[{i - 1}]" for i in range(1, 6)} | {"output_id": "out"}
_FILTERED = {"input1_id": "input", "filter_id": "weight", "bias_id": "bias", "output_id": "out"}
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
_DILATED: dict[str, tuple[str, int | None]] = {"dilation_height": ("dilation", 0), "dilation_width": ("dilation", 1)}
KEEP_DIMS, ALIGN_CORNERS, TRANSPOSED = 64, 8, 1


def _unary(name: str, op: str, **fields: Any) -> Node:
    return Node(name, Unary, op, _UNARY, **fields)


def _binary(name: str, op: str, **fields: Any) -> Node:
    return Node(name, Binary, op, _BINARY, **fields)


# Every node the format has: its number is its place in this list, counted from 1.
NODES: tuple[Node, ...] = (
    _binary("Add", "add", clamps=True),
    Node("FullyConnected", FullyConnected, "linear", _FILTERED, clamps=True),
    _unary("Softmax", "softmax"),
    _unary("Sigmoid", "sigmoid"),
    Node("StaticTranspose", Transpose, "permute", _UNARY, {"perm": ("dims", None)}),
    _unary("Clamp", "clamp", clamps=True),
    Node("Conv2d", Conv, "conv2d", _FILTERED, _CONV, clamps=True),
    _binary("Div", "div", clamps=True),
    Node("StaticResizeBilinear2D", ResizeBilinear, "upsample_bilinear2d", {"input_id": "input", "output_id": "out"},
         {"new_height": ("output_size", 0), "new_width": ("output_size", 1)}),
    Node("StaticConstantPad", ConstantPad, "pad", _UNARY,
         {"pre_paddings": ("before", None), "post_paddings": ("after", None), "padding_value": ("value", None)}),
    Node("AvgPooling2d", Pool, "avg_pool2d", _UNARY, _POOL, flags=KEEP_DIMS, clamps=True),
    _binary("Minimum", "minimum"),
    Node("DepthwiseConv2d", Conv, "depthwise_conv2d", _FILTERED, _CONV, clamps=True),
    Node("MaxPooling2d", Pool, "max_pool2d", _UNARY, {**_POOL, **_DILATED}, flags=KEEP_DIMS, clamps=True),
    _binary("Multiply", "mul", clamps=True),
    _binary("Subtract", "sub", clamps=True),
    _unary("Floor", "floor"),
    _unary("Convert", "convert"),
    _unary("GlobalAvgPooling2d", "global_avg_pool2d", flags=KEEP_DIMS, clamps=True),
    Node("StaticReshape", Reshape, "view", _UNARY, {"new_shape": ("size", None)}),
    Node("ArgMaxPooling2d", ArgMaxPool, "argmax_pool2d",
         {"input_id": "self", "output_id": "out", "output_index_id": "index"},
         {**_PADS, "pooling_height": ("kernel_size", 0), "pooling_width": ("kernel_size", 1)}),
    _unary("SquareRoot", "sqrt"),
    _unary("Ceiling", "ceil"),
    _unary("Hardswish", "hardswish"),
    Node("LeakyReLU", Sloped, "leaky_relu", _UNARY, {"parameter": ("negative_slope", None)}),
    _binary("Maximum", "maximum"),
    _unary("Negate", "neg"),
    _unary("Square", "square"),
    Node("ELU", Sloped, "elu", _UNARY, {"parameter": ("alpha", None)}),
    _unary("Abs", "abs"),
    Node("PReLU", Binary, "prelu", {"input1_id": "self", "input2_id": "weight", "output_id": "out"}),
    Node("Concatenate2", Cat, "cat", _CAT, {"axis": ("dim", None)}),
    Node("Concatenate3", Cat, "cat", _CAT, {"axis": ("dim", None)}),
    Node("Concatenate4", Cat, "cat", _CAT, {"axis": ("dim", None)}),
    Node("StaticSlice", Slice, "slice", _UNARY, {"offsets": ("start", None), "sizes": ("length", None)}),
    Node("ScaledDotProductAttention", Attention, "scaled_dot_product_attention",
         {"query_id": "query", "key_id": "key", "value_id": "value", "scale_id": "scale", "mask_id": "attn_mask",
          "output_id": "out"}),
    _binary("BatchMatrixMultiply", "bmm"),
    Node("Concatenate5", Cat, "cat", _CAT, {"axis": ("dim", None)}),
    Node("ConvTranspose2d", Conv, "conv_transpose2d", _FILTERED, _CONV, clamps=True),
    _unary("ReciprocalSquareRoot", "rsqrt"),
    _unary("Log", "log"),
    _unary("Gelu", "gelu"),
    _unary("Tanh", "tanh"),
    _unary("Exp", "exp"),
    _unary("Sin", "sin"),
    _unary("Copy", "clone"),
    _unary("Cos", "cos"),
)  # fmt: skip
NUMBER = {node.name: number for number, node in enumerate(NODES, 1)}


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
    def row(self) -> Node:
        return NODES[self.type - 1]


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
    num_externs: int = slot(3, U32, default=0, hi=MAX_EXTERNS)
    input_ids: Sequence[int] | None = slot(4, Vector(U32), default=None)
    output_ids: Sequence[int] | None = slot(5, Vector(U32), default=None)
    constant_buffer: list[LegacyBuffer] | None = slot(6, Vector(LegacyBuffer), default=None)
    mem_buffer_sizes: Sequence[int] | None = slot(7, Vector(U32), default=None)
    constant_data: list[ConstantData] | None = slot(8, Vector(ConstantData), default=None)
