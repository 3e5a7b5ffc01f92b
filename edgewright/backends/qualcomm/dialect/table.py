"""Operator table of the QNN dialect: operands and parameters of every emitted operator, and the reference of what is
neither translated to core nor defined by ``int_rules.py``.

In a host twin an operator is called ``qnn.<name>``; its arguments are ``inputs``, which lists all tensors, and its
parameters: numbers, or nested lists of numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.dialect import elementwise as el
from edgewright.backends.qualcomm.dialect.elementwise import BINARY, UNARY
from edgewright.errors import FormatError
from edgewright.ir.graph import Op, Value
from edgewright.ir.signatures import Signatures

PREFIX = "qnn."
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
    """``reference``: of operands that are neither translated (``to_core``) nor have a definition (``int_rules.py``); it
    takes the parameters and dequantized arrays. ``operands``: fewest and most (0: any number). ``elementwise``: a
    function of one operand, element by element. ``moves``: the result has elements of the operands."""

    reference: Callable[..., Any] | None = None
    operands: tuple[int, int] = (1, 1)
    params: dict[str, Param] = field(default_factory=dict)
    elementwise: bool = False
    moves: bool = False


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
    "ElementWiseUnary": QnnOp(el.unary, params={"operation": _COUNT}, elementwise=True),
    "ElementWiseBinary": QnnOp(el.binary, (2, 2), params={"operation": _COUNT}),
    "ElementWiseNeuron": QnnOp(el.neuron, params=_NEURON, elementwise=True),
    "ElementWiseSelect": QnnOp(el.select, (3, 3)),
    "Relu": QnnOp(el.relu, elementwise=True),
    "Relu6": QnnOp(el.relu6, elementwise=True),
    "ReluMinMax": QnnOp(el.relu_min_max, params=_LIMITS, elementwise=True),
    **{name: QnnOp(reference, elementwise=True) for name, reference in el.ACTIVATIONS.items()},
    "Elu": QnnOp(el.elu, params={"alpha": _f32(1.0)}, elementwise=True),
    "Prelu": QnnOp(el.prelu, (2, 2)),
    "IsNan": QnnOp(elementwise=True),
    "IsInf": QnnOp(params={"detect_negative": _flag(True), "detect_positive": _flag(True)}, elementwise=True),
    "Cast": QnnOp(el.cast, elementwise=True),
    "Convert": QnnOp(elementwise=True),
    "Quantize": QnnOp(),
    "Dequantize": QnnOp(),
    "Conv2d": QnnOp(operands=(2, 3), params=_CONV),
    "Conv3d": QnnOp(operands=(2, 3), params=_CONV),
    "DepthWiseConv2d": QnnOp(operands=(2, 3), params={n: p for n, p in _CONV.items() if n != "group"}),
    "TransposeConv2d": QnnOp(operands=(2, 3), params=_CONV_TRANSPOSE),
    "TransposeConv3d": QnnOp(operands=(2, 3), params=_CONV_TRANSPOSE),
    "FullyConnected": QnnOp(operands=(2, 3), params={"keep_dims": _flag(False)}),
    "MatMul": QnnOp(el.int_matmul, (2, 2), _MATMUL),
    "PoolMax2d": QnnOp(params=_POOL, moves=True),
    "PoolAvg2d": QnnOp(params=_AVERAGE),
    "PoolAvg3d": QnnOp(params=_AVERAGE),
    "ResizeNearestNeighbor": QnnOp(params=_RESIZE_2D, moves=True),
    "ResizeBilinear": QnnOp(params=_RESIZE_2D),
    "Resize": QnnOp(params=_RESIZE),
    "GridSample": QnnOp(operands=(2, 2), params=_GRID),
    **{f"Reduce{name}": QnnOp(params=_REDUCE) for name in ("Mean", "Sum", "Max", "Min")},
    "CumulativeSum": QnnOp(params=_CUMSUM),
    "Argmax": QnnOp(params={"axis": _AXIS, "keep_dims": _flag(False)}),
    "Argmin": QnnOp(params={"axis": _AXIS, "keep_dims": _flag(False)}),
    "Softmax": QnnOp(params=_SOFTMAX),
    "LogSoftmax": QnnOp(params=_SOFTMAX),
    "Batchnorm": QnnOp(el.affine, (2, 3)),
    "LayerNorm": QnnOp(operands=(1, 3), params=_NORM),
    "RmsNorm": QnnOp(operands=(1, 3), params=_NORM),
    "GroupNorm": QnnOp(operands=(1, 3), params={"epsilon": _EPSILON, "group": Param(0, 1)}),
    "InstanceNorm": QnnOp(operands=(1, 3), params=_INSTANCE),
    "Reshape": QnnOp(moves=True),
    "Transpose": QnnOp(params={"perm": _AXES}, moves=True),
    "Concat": QnnOp(operands=(1, 0), params={"axis": _AXIS}, moves=True),
    "Pack": QnnOp(operands=(1, 0), params={"axis": _AXIS}, moves=True),
    "UnPack": QnnOp(params={"axis": _AXIS}, moves=True),
    "Split": QnnOp(params={"axis": _AXIS, "split_index": _AXES}, moves=True),
    "StridedSlice": QnnOp(params=_SLICE, moves=True),
    "Tile": QnnOp(params={"multiples": _STEPS}, moves=True),
    "Pad": QnnOp(params=_PAD, moves=True),
    "ChannelShuffle": QnnOp(params={"num_groups": Param(0, 1), "axis": _AXIS}, moves=True),
    "DepthToSpace": QnnOp(params=_BLOCKS, moves=True),
    "SpaceToDepth": QnnOp(params=_BLOCKS, moves=True),
    "Gather": QnnOp(operands=(2, 2), params={"axis": _AXIS}, moves=True),
    "GatherElements": QnnOp(operands=(2, 2), params={"axis": _AXIS}, moves=True),
    "ScatterElements": QnnOp(operands=(3, 3), params={"axis": _AXIS, "reduction": _REDUCTION}, moves=True),
    "ScatterNd": QnnOp(operands=(3, 3), params={"reduction": _REDUCTION}, moves=True),
    "TopK": QnnOp(params={"k": Param(0, 1), "largest": _flag(True)}, moves=True),
}


# ------------------------------------------------------------------------------------------------------- element types

# What the partitioner's rules accept: activations are fp16, stored as float32, or unsigned integers of 8 or 16 bits
# with one scale, and few operators mix them. Data movement keeps element types, but may requantize. Other integers and
# booleans are plain.
_QUANTIZED = "qu8 qu16"
_INTEGER = "i32 u32 i64 u8 i8 u16 i16 bool"
_CLASSES = {
    "real": f"f32 {_QUANTIZED}",
    "number": f"f32 {_QUANTIZED} i32 bool",
    "quantized": _QUANTIZED,
    "Q": _QUANTIZED,
    "M": f"f32 f16 {_INTEGER}",
    "E": f"f32 {_INTEGER}",
    "W": "i32 bool",
    "any": f"f32 f16 {_QUANTIZED} {_INTEGER}",
    "index": "i32 i64",
    "position": "i32 u32 i64",
    "float": "f32",
    "stored_float": "f32 f16",
    "weight": "qi8 ci8 bi8 qi16 ci16",
    "bias": "qi32 ci32 i32 f32",
    "factor": f"f32 {_QUANTIZED} qi8 qi16 qi32",
}
_COMPARISONS = ("Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual")
_LOGIC = ("And", "Or", "Xor")
_INTEGER_UNARY = ("Abs", "Ceil", "Floor", "Neg", "Round", "Sign")  # also defined on integers


def _elementwise_names(*names: str) -> str:
    return " ".join(f"ElementWise{name}" for name in names)


_ROUNDED_UP = ("Add", "Subtract", "Multiply")  # if they are quantized, so all operands are
_ARITHMETIC = [name for name in BINARY if name not in (*_COMPARISONS, *_LOGIC, *_ROUNDED_UP)]
_FUNCTIONS = [name for name in UNARY if name not in (*_INTEGER_UNARY, "Not")]
_SAME = "float -> float | quantized -> quantized"
_MOVED = "quantized -> quantized | M -> M"
SIGNATURES = Signatures(_CLASSES, {
    _elementwise_names(*_FUNCTIONS): "real -> real",
    _elementwise_names(*_INTEGER_UNARY): "real -> real | i32 -> i32",
    _elementwise_names("Not"): "bool -> bool",
    _elementwise_names(*_ROUNDED_UP): "float float -> float | quantized quantized -> quantized | W W -> W",
    _elementwise_names(*_ARITHMETIC): "number number -> real | W W -> W",
    _elementwise_names(*_COMPARISONS): "number number -> bool",
    _elementwise_names(*_LOGIC): "bool bool -> bool",
    _elementwise_names("Unary"): "real -> real | W -> W",
    _elementwise_names("Binary"): "number number -> real | number number -> bool | W W -> W",
    _elementwise_names("Neuron"): "real -> real",
    _elementwise_names("Select"): "bool number number -> real | bool W W -> W",
    "Relu Relu6 ReluMinMax": "real -> real | W -> W",
    "Sigmoid Tanh Gelu HardSwish Elu": "real -> real",
    "Prelu": "real real -> real",
    "IsNan IsInf": "stored_float -> bool",
    "Cast": "any -> any",
    "Convert": "real -> real",
    "Quantize": "float -> quantized",
    "Dequantize": "quantized -> float",
    "Conv2d Conv3d DepthWiseConv2d TransposeConv2d TransposeConv3d FullyConnected":
        "float float# float#? -> float | quantized weight#~ bias#? -> quantized",
    "MatMul": "float float -> float | quantized quantized -> quantized | i32 i32 -> i32",
    "ReduceMax ReduceMin": "quantized -> quantized | E -> E",
    "PoolAvg2d PoolAvg3d ReduceMean CumulativeSum ResizeBilinear Resize Softmax LogSoftmax": _SAME,
    "PoolMax2d ReduceSum": f"{_SAME} | i32 -> i32",
    "GridSample": "real real -> real",
    "Argmax Argmin": "number -> position",
    "Batchnorm": "real factor factor? -> real",
    "LayerNorm RmsNorm GroupNorm InstanceNorm": 
        "float factor#? factor#? -> float | quantized factor#? factor#? -> quantized",
    "Reshape Transpose StridedSlice Tile Pad ChannelShuffle DepthToSpace SpaceToDepth ResizeNearestNeighbor": _MOVED,
    "Concat Pack": "quantized* -> quantized | M* -> M",
    "UnPack Split": "quantized -> Q=?* | M -> M?*",
    "Gather GatherElements": "quantized index -> quantized | M index -> M",
    "ScatterElements ScatterNd": "quantized index quantized -> quantized | M index M -> M",
    "TopK": "quantized -> quantized position? | M -> M position?",
})  # fmt: skip


def check_types(op: Op, name: str) -> None:
    """Raise ``FormatError`` unless an operator's element types are those of its row."""
    SIGNATURES.check(name, [(f"inputs[{i}]", value) for i, value in enumerate(op.args["inputs"])], op)
    weight = op.args["inputs"][1] if len(op.args["inputs"]) > 1 else None
    if weight is not None and weight.q is not None and weight.q.axis is not None:
        _check_axis(op, name, weight)


def _check_axis(op: Op, name: str, weight: Value) -> None:
    """Check that the quantized dimension of weights is the output channels."""
    axis = 0 if name == "FullyConnected" else len(weight.bound) - 1
    assert weight.q is not None
    if weight.q.axis != axis:
        rule = f"must have a scale for each slice of dimension {axis}, the output channels"
        raise FormatError(rule, where="inputs[1]", value=weight.q.axis)
