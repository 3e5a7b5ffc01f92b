"""Operator table of the QNN dialect: operands, parameters and reference of every emitted operator.

In a host twin an operator is called ``qnn.<name>``; its arguments are ``inputs``, which lists all tensors, and its
parameters: numbers, or nested lists of numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.dialect import conv, dtypes, image, move, norm, reduce
from edgewright.backends.qualcomm.dialect import elementwise as el
from edgewright.backends.qualcomm.dialect.elementwise import ADD_SUB_MUL, BINARY, UNARY
from edgewright.errors import FormatError
from edgewright.ir.graph import Op, Value
from edgewright.ir.signatures import Signatures

PREFIX = "qnn."
REAL, STORED, OPERATOR = "real", "stored", "operator"
_LOWEST, _HIGHEST = (float(f(np.finfo(np.float32).max)) for f in (np.negative, np.positive))


@dataclass(frozen=True)
class Param:
    """A parameter: integers of at least ``low``, or floats if ``real``, in ``dims`` levels of nested lists."""

    dims: int = 0
    low: int = 0
    default: Any = None
    real: bool = False


@dataclass(frozen=True)
class QnnOp:
    """``domain``: what ``reference`` takes: dequantized arrays (REAL), stored arrays in the output's scale (STORED), or
    the operator and its stored arrays (OPERATOR). ``reference`` is not used where ``int_rules.py`` has a definition;
    without one, the translation to core runs. ``operands``: fewest and most (0: any number). ``elementwise``: a
    function of one operand, element by element."""

    reference: Callable[..., Any] | None
    operands: tuple[int, int] = (1, 1)
    domain: str = REAL
    params: dict[str, Param] = field(default_factory=dict)
    elementwise: bool = False


def _flag(default: bool | None = None) -> Param:
    return Param(default=default)


def _f32(default: float | None = None) -> Param:
    return Param(default=default, real=True)


_STEPS, _COUNT, _AXIS = Param(1, 1), Param(0), Param(0)
_PAIRS, _AXES = Param(2), Param(1)
_REDUCE = {"axes": _AXES, "keep_dims": _flag(False)}
_CONV = {"stride": _STEPS, "pad_amount": _PAIRS, "dilation": _STEPS, "group": Param(0, 1, 1)}
_CONV_TRANSPOSE = {"stride": _STEPS, "pad_amount": _PAIRS, "output_padding": Param(1), "group": Param(0, 1, 1)}
_POOL = {"filter_size": _STEPS, "stride": _STEPS, "pad_amount": _PAIRS, "rounding_mode": Param(default=0)}
_AVERAGE = {**_POOL, "count_pad_for_edges": _flag(True)}
_RESIZE_2D = {"align_corners": _flag(False), "half_pixel_centers": _flag(False)}
_BLOCKS = {"block_size": _STEPS, "mode": Param(default=0)}
_NEURON = {
    "operation": _COUNT, "alpha": _f32(1.0), "beta": _f32(1.0), "threshold": _f32(20.0), "min_value": _f32(_LOWEST),
    "max_value": _f32(_HIGHEST),
}  # fmt: skip
_LIMITS = {"min_value": _f32(), "max_value": _f32()}
_EPSILON = _f32(1e-6)
_SLICE = {
    "ranges": Param(2, -(1 << 31)),
    **dict.fromkeys(("begin_mask", "end_mask", "shrink_axes"), Param(0, 0, 0)),
}
_PAD = {"scheme": _COUNT, "pad_amount": _PAIRS, "pad_constant_value": _f32(0.0)}
_GRID = {"align_corners": _flag(False), "mode": Param(default=0), "padding_mode": Param(default=0)}
_RESIZE = {
    "exclude_outside": _flag(False), "cubic_coeff": _f32(-0.75),
    **dict.fromkeys(("transformation_mode", "interpolation_mode", "nearest_mode"), Param(default=0)),
}  # fmt: skip
_MATMUL = {"transpose_in0": _flag(False), "transpose_in1": _flag(False)}
_SOFTMAX = {"axis": _AXIS, "beta": _f32(1.0)}
_CUMSUM = {"axis": _AXIS, "exclusive": _flag(False), "reverse": _flag(False)}
_NORM = {"epsilon": _EPSILON, "axes": _AXES}
_REDUCTION = Param(default=0)
_INSTANCE = {
    "epsilon": _EPSILON, "mode": Param(default=0), "normalize_variance": _flag(True), "region": Param(default=0),
}  # fmt: skip

QNN: dict[str, QnnOp] = {
    **{f"ElementWise{name}": QnnOp(reference, elementwise=True) for name, reference in el.UNARY.items()},
    **{f"ElementWise{name}": QnnOp(reference, (2, 2)) for name, reference in el.BINARY.items()},
    **{f"ElementWise{name}": QnnOp(el.add_sub_mul, (2, 2), OPERATOR) for name in el.ADD_SUB_MUL},
    "ElementWiseUnary": QnnOp(el.unary, params={"operation": _COUNT}, elementwise=True),
    "ElementWiseBinary": QnnOp(el.binary, (2, 2), params={"operation": _COUNT}),
    "ElementWiseNeuron": QnnOp(el.neuron, params=_NEURON, elementwise=True),
    "ElementWiseSelect": QnnOp(el.select, (3, 3)),
    "Relu": QnnOp(dtypes.clamp, domain=OPERATOR, elementwise=True),
    "Relu6": QnnOp(dtypes.clamp, domain=OPERATOR, elementwise=True),
    "ReluMinMax": QnnOp(dtypes.clamp, domain=OPERATOR, params=_LIMITS, elementwise=True),
    "Sigmoid": QnnOp(el.sigmoid, elementwise=True),
    "Tanh": QnnOp(el.tanh, elementwise=True),
    "Gelu": QnnOp(el.gelu, elementwise=True),
    "HardSwish": QnnOp(el.hard_swish, elementwise=True),
    "Elu": QnnOp(el.elu, params={"alpha": _f32(1.0)}, elementwise=True),
    "Prelu": QnnOp(el.prelu, (2, 2)),
    "IsNan": QnnOp(el.is_nan, elementwise=True),
    "IsInf": QnnOp(
        el.is_inf, params={"detect_negative": _flag(True), "detect_positive": _flag(True)}, elementwise=True
    ),
    "Cast": QnnOp(el.cast, elementwise=True),
    "Convert": QnnOp(dtypes.convert, domain=OPERATOR, elementwise=True),
    "Quantize": QnnOp(conv.quantize, domain=OPERATOR),
    "Dequantize": QnnOp(conv.dequantize, domain=OPERATOR),
    **{name: QnnOp(conv.convolution, (2, 3), OPERATOR, _CONV) for name in ("Conv2d", "Conv3d")},
    "DepthWiseConv2d": QnnOp(conv.convolution, (2, 3), OPERATOR, {n: p for n, p in _CONV.items() if n != "group"}),
    **{
        name: QnnOp(conv.conv_transpose, (2, 3), OPERATOR, _CONV_TRANSPOSE)
        for name in ("TransposeConv2d", "TransposeConv3d")
    },
    "FullyConnected": QnnOp(conv.fully_connected, (2, 3), OPERATOR, {"keep_dims": _flag(False)}),
    "MatMul": QnnOp(conv.matmul, (2, 3), OPERATOR, _MATMUL),
    "PoolMax2d": QnnOp(image.max_pool, domain=STORED, params=_POOL),
    **{name: QnnOp(reduce.average_pool, domain=OPERATOR, params=_AVERAGE) for name in ("PoolAvg2d", "PoolAvg3d")},
    "ResizeNearestNeighbor": QnnOp(None, domain=STORED, params=_RESIZE_2D),
    "ResizeBilinear": QnnOp(image.bilinear, params=_RESIZE_2D),
    "Resize": QnnOp(image.resize, params=_RESIZE),
    "GridSample": QnnOp(image.grid_sample, (2, 2), params=_GRID),
    "ReduceMean": QnnOp(reduce.sum_or_mean, domain=OPERATOR, params=_REDUCE),
    "ReduceSum": QnnOp(reduce.sum_or_mean, domain=OPERATOR, params=_REDUCE),
    "ReduceMax": QnnOp(reduce.min_or_max(np.max), domain=OPERATOR, params=_REDUCE),
    "ReduceMin": QnnOp(reduce.min_or_max(np.min), domain=OPERATOR, params=_REDUCE),
    "CumulativeSum": QnnOp(reduce.cumulative_sum, domain=OPERATOR, params=_CUMSUM),
    "Argmax": QnnOp(image.arg_reduce(np.argmax), params={"axis": _AXIS, "keep_dims": _flag(False)}),
    "Argmin": QnnOp(image.arg_reduce(np.argmin), params={"axis": _AXIS, "keep_dims": _flag(False)}),
    **{name: QnnOp(norm.softmax_op, domain=OPERATOR, params=_SOFTMAX) for name in ("Softmax", "LogSoftmax")},
    "Batchnorm": QnnOp(norm.batch_norm, (2, 3)),
    "LayerNorm": QnnOp(norm.normalize, (1, 3), OPERATOR, _NORM),
    "RmsNorm": QnnOp(norm.normalize, (1, 3), OPERATOR, _NORM),
    "GroupNorm": QnnOp(norm.normalize, (1, 3), OPERATOR, {"epsilon": _EPSILON, "group": Param(0, 1)}),
    "InstanceNorm": QnnOp(norm.normalize, (1, 3), OPERATOR, _INSTANCE),
    "L2Norm": QnnOp(norm.l2_norm, params={"axis": _AXIS, "epsilon": _f32(1e-12)}),
    "HadamardTransform": QnnOp(norm.hadamard, params={"scale": _f32(1.0)}),
    "Reshape": QnnOp(None, domain=STORED),
    "Transpose": QnnOp(None, domain=STORED, params={"perm": _AXES}),
    "Concat": QnnOp(None, (1, 0), STORED, {"axis": _AXIS}),
    "Pack": QnnOp(None, (1, 0), STORED, {"axis": _AXIS}),
    "UnPack": QnnOp(None, domain=STORED, params={"axis": _AXIS}),
    "Split": QnnOp(None, domain=STORED, params={"axis": _AXIS, "split_index": _AXES}),
    "StridedSlice": QnnOp(None, domain=STORED, params=_SLICE),
    "Tile": QnnOp(None, domain=STORED, params={"multiples": _STEPS}),
    "Pad": QnnOp(None, domain=STORED, params=_PAD),
    "ChannelShuffle": QnnOp(None, domain=STORED, params={"num_groups": Param(0, 1), "axis": _AXIS}),
    "DepthToSpace": QnnOp(None, domain=STORED, params=_BLOCKS),
    "SpaceToDepth": QnnOp(None, domain=STORED, params=_BLOCKS),
    "Gather": QnnOp(move.gather, (2, 2), STORED, {"axis": _AXIS}),
    "GatherElements": QnnOp(move.gather_elements, (2, 2), STORED, {"axis": _AXIS}),
    "ScatterElements": QnnOp(move.scatter_elements, (3, 3), OPERATOR, {"axis": _AXIS, "reduction": _REDUCTION}),
    "ScatterNd": QnnOp(move.scatter_nd, (3, 3), OPERATOR, {"reduction": _REDUCTION}),
    "TopK": QnnOp(move.top_k, domain=STORED, params={"k": Param(0, 1), "largest": _flag(True)}),
}


# ------------------------------------------------------------------------------------------------------- element types

# ``real`` is floating point (fp16, whatever the declared type) or 8 or 16 bits quantized per tensor; arithmetic may mix
# them. Data movement keeps element types, but may requantize. Integers and booleans are plain.
_QUANTIZED = "qu8 qi8 qu16 qi16"
_INTEGER = "i32 u32 i64 u8 i8 u16 i16 bool"
_CLASSES = {
    "real": f"f32 f16 {_QUANTIZED}",
    "number": f"f32 f16 {_QUANTIZED} i32 bool",
    "quantized": _QUANTIZED,
    "Q": _QUANTIZED,
    "M": f"f32 f16 {_INTEGER}",
    "W": "i32 bool",
    "any": f"f32 f16 {_QUANTIZED} {_INTEGER}",
    "index": "i32 u32 i64",
    "float": "f32 f16",
    "weight": f"{_QUANTIZED} ci8 cu8 ci16 cu16 bi8",
    "bias": "qi32 ci32 i32 f32 f16",
    "factor": f"f32 f16 {_QUANTIZED} qi32",
}
_COMPARISONS = ("Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual")
_LOGIC = ("And", "Or", "Xor")
_INTEGER_UNARY = ("Abs", "Ceil", "Floor", "Neg", "Round", "Sign")  # also defined on integers


def _elementwise_names(*names: str) -> str:
    return " ".join(f"ElementWise{name}" for name in names)


_ARITHMETIC = [name for name in dict.fromkeys((*BINARY, *ADD_SUB_MUL)) if name not in (*_COMPARISONS, *_LOGIC)]
_FUNCTIONS = [name for name in UNARY if name not in (*_INTEGER_UNARY, "Not")]
SIGNATURES = Signatures(_CLASSES, {
    _elementwise_names(*_FUNCTIONS): "number -> real",
    _elementwise_names(*_INTEGER_UNARY): "number -> real | W -> W",
    _elementwise_names("Not"): "bool -> bool",
    _elementwise_names(*_ARITHMETIC): "number number -> real | W W -> W",
    _elementwise_names(*_COMPARISONS): "number number -> bool",
    _elementwise_names(*_LOGIC): "bool bool -> bool",
    _elementwise_names("Unary"): "number -> real | W -> W",
    _elementwise_names("Binary"): "number number -> real | number number -> bool | W W -> W",
    _elementwise_names("Neuron"): "number -> real",
    _elementwise_names("Select"): "bool number number -> real | bool W W -> W",
    "Relu Relu6 ReluMinMax": "number -> real | W -> W",
    "Sigmoid Tanh": "number -> real",
    "Gelu HardSwish Elu": "real -> real",
    "Prelu": "real real -> real",
    "IsNan IsInf": "float -> bool",
    "Cast": "any -> any",
    "Convert": "real -> real",
    "Quantize": "float -> quantized",
    "Dequantize": "quantized -> float",
    "Conv2d Conv3d DepthWiseConv2d TransposeConv2d TransposeConv3d FullyConnected":
        "float float float? -> float | quantized weight bias? -> quantized",
    "MatMul": "float float float? -> float | quantized weight bias? -> quantized | i32 i32 i32? -> i32",
    "PoolMax2d ReduceMax ReduceMin ResizeNearestNeighbor": "quantized -> quantized | M -> M",
    "PoolAvg2d PoolAvg3d ReduceMean ReduceSum CumulativeSum": "number -> real | W -> W",
    "ResizeBilinear Resize L2Norm HadamardTransform Softmax LogSoftmax": "real -> real",
    "GridSample": "real real -> real",
    "Argmax Argmin": "number -> index",
    "Batchnorm LayerNorm RmsNorm GroupNorm InstanceNorm": "real factor? factor? -> real",
    "Reshape Transpose StridedSlice Tile Pad ChannelShuffle DepthToSpace SpaceToDepth":
        "quantized -> quantized | M -> M",
    "Concat Pack": "quantized* -> quantized | M* -> M",
    "UnPack Split": "quantized -> Q=?* | M -> M?*",
    "Gather GatherElements": "quantized index -> quantized | M index -> M",
    "ScatterElements ScatterNd": "quantized index quantized -> quantized | M index M -> M",
    "TopK": "quantized -> quantized index? | M -> M index?",
})  # fmt: skip


def check_types(op: Op, name: str) -> None:
    """Raise ``FormatError`` unless an operator's element types are those of its row."""
    SIGNATURES.check(name, [(f"inputs[{i}]", value) for i, value in enumerate(op.args["inputs"])], op)
    weight = op.args["inputs"][1] if len(op.args["inputs"]) > 1 else None
    if weight is not None and weight.q is not None and weight.q.axis is not None:
        _check_axis(op, name, weight)


def _check_axis(op: Op, name: str, weight: Value) -> None:
    """Check that the quantized dimension of weights is the output channels."""
    rank = len(weight.bound)
    transposed = name == "MatMul" and bool(op.args["transpose_in1"])
    axis = 0 if name == "FullyConnected" else rank - 2 if transposed else rank - 1
    assert weight.q is not None
    if weight.q.axis != axis:
        rule = f"must have a scale for each slice of dimension {axis}, the output channels"
        raise FormatError(rule, where="inputs[1]", value=weight.q.axis)
