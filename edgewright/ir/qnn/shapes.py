"""Shape inference of a host twin's operators; inconsistent parameters are rejected."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewright.ir.graph import Op
from edgewright.ir.qnn import shapes_conv as products
from edgewright.ir.qnn import shapes_move as moves
from edgewright.ir.qnn.elementwise import BINARY, UNARY
from edgewright.ir.qnn.shape_checks import Rule, Shape, axes_of, need
from edgewright.ir.qnn.table import PREFIX


def shapes_of(op: Op) -> list[Shape]:
    """The shapes of the results. A scalar has a dimension in QNN; it stays a scalar in element-wise operators."""
    given = [v.bound if elementwise(op) else v.bound or (1,) for v in op.args["inputs"]]
    return [tuple(int(n) for n in s) for s in RULES[op.kind.removeprefix(PREFIX)](op, given)]


def elementwise(op: Op) -> bool:
    return op.kind.removeprefix(PREFIX) in ELEMENTWISE


def _same(op: Op, given: list[Shape]) -> list[Shape]:
    return [given[0]]


def _broadcast(op: Op, given: list[Shape]) -> list[Shape]:
    return [np.broadcast_shapes(*given)]


def _onto_first(op: Op, given: list[Shape]) -> list[Shape]:
    """Constants fit the last dimension of what they are applied to."""
    for shape in given[1:]:
        need(np.broadcast_shapes(given[0], shape) == given[0], "must fit the last dimension", shape)
    return [given[0]]


def _numbered(count: int) -> Rule:
    def rule(op: Op, given: list[Shape]) -> list[Shape]:
        need(op.args["operation"] < count, f"must be below {count}", op.args["operation"])
        return _broadcast(op, given)

    return rule


def _reduced(op: Op, given: list[Shape]) -> list[Shape]:
    axes, kept = axes_of(op, given), bool(op.args["keep_dims"])
    return [tuple(1 if i in axes else n for i, n in enumerate(given[0]) if kept or i not in axes)]


def _along(op: Op, given: list[Shape]) -> list[Shape]:
    axes_of(op, given)
    return _onto_first(op, given)


def _grouped(op: Op, given: list[Shape]) -> list[Shape]:
    need(len(given[0]) > 2 and given[0][-1] % op.args["group"] == 0, "groups must be alike", given[0])
    return _onto_first(op, given)


def _power_of_two(op: Op, given: list[Shape]) -> list[Shape]:
    size = given[0][-1]
    need(size > 0 and size & (size - 1) == 0, "must be a power of two", size)
    return [given[0]]


def _each(rule: Rule, names: Sequence[str]) -> dict[str, Rule]:
    return dict.fromkeys(names, rule)


SINGLE = ("Relu", "Relu6", "ReluMinMax", "Sigmoid", "Tanh", "Gelu", "HardSwish", "Elu", "IsNan", "IsInf", "Cast",
          "Convert", "Quantize", "Dequantize")  # fmt: skip
ELEMENTWISE: dict[str, Rule] = {
    **_each(_same, [*(f"ElementWise{n}" for n in UNARY), *SINGLE]),
    **_each(_broadcast, [*(f"ElementWise{n}" for n in BINARY), "ElementWiseSelect"]),
    "ElementWiseUnary": _numbered(16), "ElementWiseBinary": _numbered(20), "ElementWiseNeuron": _numbered(9),
}  # fmt: skip
RULES: dict[str, Rule] = {
    **ELEMENTWISE,
    **_each(_onto_first, ["Prelu", "Batchnorm", "InstanceNorm"]),
    **_each(products.convolution, ["Conv2d", "Conv3d", "DepthWiseConv2d"]),
    **_each(products.grown, ["TransposeConv2d", "TransposeConv3d"]),
    **_each(products.pool, ["PoolMax2d", "PoolAvg2d", "PoolAvg3d"]),
    **_each(products.resized, ["ResizeNearestNeighbor", "ResizeBilinear", "Resize"]),
    **_each(_reduced, ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "Argmax", "Argmin"]),
    **_each(_along, ["CumulativeSum", "Softmax", "LogSoftmax", "LayerNorm", "RmsNorm", "L2Norm"]),
    "FullyConnected": products.fully_connected, "MatMul": products.matmul, "GridSample": products.grid,
    "GroupNorm": _grouped, "HadamardTransform": _power_of_two, "Reshape": moves.reshape,
    "Transpose": moves.transpose, "Concat": moves.concat, "Pack": moves.pack, "UnPack": moves.split,
    "Split": moves.split, "StridedSlice": moves.sliced, "Tile": moves.tile, "Pad": moves.pad,
    "ChannelShuffle": moves.shuffled, "DepthToSpace": moves.blocks(False), "SpaceToDepth": moves.blocks(True),
    "Gather": moves.gather, "GatherElements": moves.gather_elements, "ScatterElements": moves.scatter_elements,
    "ScatterNd": moves.scatter_nd, "TopK": moves.top,
}  # fmt: skip
