"""Element types of QNN's operators on the HTP.

``real`` is floating point (fp16, whatever the declared type) or 8 or 16 bits quantized per tensor; arithmetic may mix
them. Data movement keeps element types, but may requantize. Integers and booleans are plain.
"""

from __future__ import annotations

from edgewright.backends.qualcomm.dialect.binary import ADD_SUB_MUL
from edgewright.backends.qualcomm.dialect.elementwise import BINARY, UNARY
from edgewright.errors import FormatError
from edgewright.ir.graph import Op, Value
from edgewright.ir.signatures import Signatures

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
