"""Shape inference of a host twin's operators; inconsistent parameters are rejected."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewright.ir.graph import Op
from edgewright.ir.qnn import shapes_conv as products
from edgewright.ir.qnn import shapes_move as moves
from edgewright.ir.qnn.elementwise import BINARY, UNARY
from edgewright.ir.qnn.shape_checks import Shape, ShapeRule, checked_axes, require
from edgewright.ir.qnn.table import PREFIX


def infer_shapes(op: Op) -> list[Shape]:
    """Infer output shapes. A scalar has rank 1 in QNN, but keeps rank 0 in elementwise operators."""
    shapes = [v.bound if is_elementwise(op) else v.bound or (1,) for v in op.args["inputs"]]
    return [tuple(int(n) for n in s) for s in RULES[op.kind.removeprefix(PREFIX)](op, shapes)]


def is_elementwise(op: Op) -> bool:
    return op.kind.removeprefix(PREFIX) in ELEMENTWISE


def _like_first(op: Op, shapes: list[Shape]) -> list[Shape]:
    return [shapes[0]]


def _broadcast(op: Op, shapes: list[Shape]) -> list[Shape]:
    return [np.broadcast_shapes(*shapes)]


def _onto_first(op: Op, shapes: list[Shape]) -> list[Shape]:
    """The first shape; further operands must broadcast to it."""
    for shape in shapes[1:]:
        require(np.broadcast_shapes(shapes[0], shape) == shapes[0], "must fit the last dimension", shape)
    return [shapes[0]]


def _by_code(count: int) -> ShapeRule:
    def rule(op: Op, shapes: list[Shape]) -> list[Shape]:
        require(op.args["operation"] < count, f"must be below {count}", op.args["operation"])
        return _broadcast(op, shapes)

    return rule


def _reduce(op: Op, shapes: list[Shape]) -> list[Shape]:
    axes, keep = checked_axes(op, shapes), bool(op.args["keep_dims"])
    return [tuple(1 if i in axes else n for i, n in enumerate(shapes[0]) if keep or i not in axes)]


def _along_axes(op: Op, shapes: list[Shape]) -> list[Shape]:
    checked_axes(op, shapes)
    return _onto_first(op, shapes)


def _group_norm(op: Op, shapes: list[Shape]) -> list[Shape]:
    require(len(shapes[0]) > 2 and shapes[0][-1] % op.args["group"] == 0, "must be divisible into groups", shapes[0])
    return _onto_first(op, shapes)


def _power_of_two(op: Op, shapes: list[Shape]) -> list[Shape]:
    size = shapes[0][-1]
    require(size > 0 and size & (size - 1) == 0, "must be a power of two", size)
    return [shapes[0]]


def _rule_for(rule: ShapeRule, names: Sequence[str]) -> dict[str, ShapeRule]:
    return dict.fromkeys(names, rule)


OTHER_UNARY = ("Relu", "Relu6", "ReluMinMax", "Sigmoid", "Tanh", "Gelu", "HardSwish", "Elu", "IsNan", "IsInf", "Cast",
          "Convert", "Quantize", "Dequantize")  # fmt: skip
ELEMENTWISE: dict[str, ShapeRule] = {
    **_rule_for(_like_first, [*(f"ElementWise{n}" for n in UNARY), *OTHER_UNARY]),
    **_rule_for(_broadcast, [*(f"ElementWise{n}" for n in BINARY), "ElementWiseSelect"]),
    "ElementWiseUnary": _by_code(16), "ElementWiseBinary": _by_code(20), "ElementWiseNeuron": _by_code(9),
}  # fmt: skip
RULES: dict[str, ShapeRule] = {
    **ELEMENTWISE,
    **_rule_for(_onto_first, ["Prelu", "Batchnorm", "InstanceNorm"]),
    **_rule_for(products.convolution, ["Conv2d", "Conv3d", "DepthWiseConv2d"]),
    **_rule_for(products.conv_transpose, ["TransposeConv2d", "TransposeConv3d"]),
    **_rule_for(products.pool, ["PoolMax2d", "PoolAvg2d", "PoolAvg3d"]),
    **_rule_for(products.resize, ["ResizeNearestNeighbor", "ResizeBilinear", "Resize"]),
    **_rule_for(_reduce, ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "Argmax", "Argmin"]),
    **_rule_for(_along_axes, ["CumulativeSum", "Softmax", "LogSoftmax", "LayerNorm", "RmsNorm", "L2Norm"]),
    "FullyConnected": products.fully_connected, "MatMul": products.matmul, "GridSample": products.grid_sample,
    "GroupNorm": _group_norm, "HadamardTransform": _power_of_two, "Reshape": moves.reshape,
    "Transpose": moves.transpose, "Concat": moves.concat, "Pack": moves.pack, "UnPack": moves.split,
    "Split": moves.split, "StridedSlice": moves.strided_slice, "Tile": moves.tile, "Pad": moves.pad,
    "ChannelShuffle": moves.channel_shuffle, "DepthToSpace": moves.block_shape(False),
    "SpaceToDepth": moves.block_shape(True),
    "Gather": moves.gather, "GatherElements": moves.gather_elements, "ScatterElements": moves.scatter_elements,
    "ScatterNd": moves.scatter_nd, "TopK": moves.top_k,
}  # fmt: skip
