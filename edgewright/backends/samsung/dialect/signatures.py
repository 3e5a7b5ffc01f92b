"""Type signatures of ENN operators: floating point, or integers of 8 or 16 bits quantized per tensor.

Inputs and outputs are both floating point or both quantized, except for QUANTIZE and DEQUANTIZE. Data movement keeps
types and quantization parameters. Weights may be quantized per output channel.
"""

from __future__ import annotations

from edgewright.backends.samsung.dialect.elementwise import BINARY, UNARY
from edgewright.errors import FormatError
from edgewright.ir.graph import Op
from edgewright.ir.signatures import Signatures

_QUANTIZED = "qi8 qu8 qi16 qu16"
_PLAIN = "f32 f16 i8 u8 i16 u16 i32 i64"
_CLASSES = {
    "real": "f32 f16",
    "Q": _QUANTIZED,
    "quantized": _QUANTIZED,
    "weight": f"{_QUANTIZED} ci8 cu8 ci16 cu16",
    "factor": f"f32 f16 {_QUANTIZED}",
    "plain": _PLAIN,
    "M": f"{_PLAIN} {_QUANTIZED}",
    "index": "i32 i64",
}
_ONE = "real -> real | Q -> Q"
_FILTERED = "real real real? -> real | Q weight# real#? -> Q"
SIGNATURES = Signatures(_CLASSES, {
    " ".join(BINARY): "real real -> real | Q Q -> Q",
    " ".join(UNARY): _ONE,
    "CONV2D DWCONV2D DECONV2D DWDECONV2D FC": _FILTERED,
    "BATCH_MATMUL": "real real -> real | Q Q -> Q",
    "AVGPOOL2D MAXPOOL2D REDUCEMEAN REDUCESUM CLIP SOFTMAX LOGSOFTMAX RESIZE_BILINEAR": _ONE,
    "PRELU": "real factor -> real | Q factor -> Q",
    "BatchNormalization": "real factor factor factor factor -> real | Q factor factor factor factor -> Q",
    "LAYERNORM GROUPNORM": "real factor factor -> real | Q factor factor -> Q",
    "RMSNORM": "real factor -> real | Q factor -> Q",
    "CONCAT": "M=* -> M=",
    "RESHAPE TRANSPOSE STRIDEDSLICE PAD DEPTH_TO_SPACE RESIZE_NEAREST_NEIGHBOR": "M= -> M=",
    "SPLIT": "M= -> M=?*",
    "GATHER": "M= index -> M=",
    "TopK": "M= -> M=? index?",
    "CAST": "plain -> plain",
    "QUANTIZE": "real -> quantized",
    "DEQUANTIZE": "quantized -> real",
})  # fmt: skip


def check_types(op: Op, name: str) -> None:
    """Raise ``FormatError`` unless an operator's element types are those of its row."""
    inputs = op.args["inputs"]
    SIGNATURES.check(name, [(f"inputs[{i}]", value) for i, value in enumerate(inputs)], op)
    if len(inputs) > 1 and inputs[1].q is not None and inputs[1].q.axis not in (None, 0):
        raise FormatError("must have a scale for each slice of dimension 0", where="inputs[1]", value=inputs[1].q.axis)
