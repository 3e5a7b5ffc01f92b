"""Cost of a kernel call, in multiply-accumulates: decides whether compiling a segment is worth its time."""

from __future__ import annotations

import math
from typing import Any

from edgewright.ir.aten.ops import OPS
from edgewright.ir.aten.table import OpClass
from edgewright.ir.graph import Op, Value
from edgewright.lowering.aten_to_core.elementwise import FLOAT_FUNCTIONS
from edgewright.lowering.aten_to_core.operands import FLOATS
from edgewright.lowering.aten_to_core.reduce import LOWERINGS as REDUCTIONS

_TRANSCENDENTAL = 10  # an element of a function that takes a polynomial, or several passes
# Operators that numpy computes as fast as memory delivers the elements, if all tensors are floats of one type.
_CHEAP = {
    "add", "sub", "mul", "div", "maximum", "minimum", "relu", "hardtanh", "clamp", "sigmoid", "tanh", "exp", "sqrt",
    "abs", "neg", "log", "rsqrt", "floor", "ceil", "sum", "mean", "amax", "amin",
}  # fmt: skip
_COSTS = {
    **dict.fromkeys(("clone", "copy", "fill", "tril", "pad", "reflection_pad", "replication_pad", "upsample_nearest2d",
                     "embedding", "index_put", "slice_scatter", "select_scatter"), 0),
    **dict.fromkeys(("gather", "scatter", "scatter_value", "scatter_add"), 1),
    **dict.fromkeys(("avg_pool2d", "adaptive_avg_pool2d", "upsample_bilinear2d", "upsample_bilinear2d_aa",
                     "embedding_byte", "embedding_4bit", "embedding_2bit", "quantize_per_tensor",
                     "quantize_per_channel"), 4),
    **dict.fromkeys(("softmax", "log_softmax", "layer_norm", "native_group_norm", "batch_norm_no_stats", "gelu",
                     "leaky_relu", "elu", "logit", "glu", "var", "var_mean", "atan2", "pow", *FLOAT_FUNCTIONS),
                    _TRANSCENDENTAL),
    "grid_sampler_2d": 16,
}  # fmt: skip
_MOVEMENT = {
    OpClass.RESHAPE, OpClass.TRANSPOSE, OpClass.BROADCAST, OpClass.SLICE, OpClass.JOIN, OpClass.GATHER, OpClass.CAST,
}  # fmt: skip


def call_cost(op: Op) -> int:
    """The cost of an operator of the ATen dialect."""
    tensors = [v for v in (*op.inputs(), *op.outputs) if v is not None]
    op_class = OPS[op.kind].op_class if op.kind in OPS else OpClass.OTHER
    if op_class is OpClass.PRODUCT:
        return _product_cost(op, *(v.bound for v in tensors))
    one_float_type = tensors[0].dtype in FLOATS and len({v.dtype for v in tensors}) == 1
    if one_float_type and (op.kind in _CHEAP or (op.kind == "pow" and _is_two(op.args["exponent"]))):
        return 0
    if op.kind == "max_pool2d":
        return math.prod(tensors[-1].bound) * int(math.prod(op.args["kernel_size"]))
    measured: Value = op.args["self"] if op.kind in REDUCTIONS else tensors[-1]
    return math.prod(measured.bound) * _COSTS.get(op.kind, 0 if op_class in _MOVEMENT else 1)


def _is_two(exponent: Any) -> bool:
    return not isinstance(exponent, Value) and bool(exponent == 2)


def _product_cost(op: Op, *shapes: tuple[int, ...]) -> int:
    if op.kind.startswith("conv"):
        return math.prod(shapes[-1]) * math.prod(shapes[1][1:])
    first = shapes[1 if op.kind == "addmm" else 0]
    return math.prod(first) * shapes[-1][-1]
