"""Flatbuffer tables of a TFLite file: the subset that the converter's input and output use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgewright.formats.flatbuffer import (
    BOOL,
    F32,
    I8,
    I32,
    I64,
    STRING,
    U8,
    U32,
    Bytes,
    UnionField,
    Vector,
    slot,
    table,
)

IDENTIFIER = b"TFL3"
TYPES = {"float32": 0, "int32": 2, "uint8": 3, "int8": 9}
CUSTOM = 32
_LIMIT = 1 << 20  # maximum number of tensors, operators and operands


@table
class Conv2DOptions:
    padding: int = slot(0, I8, default=0)
    stride_w: int = slot(1, I32, default=0)
    stride_h: int = slot(2, I32, default=0)
    dilation_w: int = slot(4, I32, default=1)
    dilation_h: int = slot(5, I32, default=1)


@table
class DepthwiseConv2DOptions:
    padding: int = slot(0, I8, default=0)
    stride_w: int = slot(1, I32, default=0)
    stride_h: int = slot(2, I32, default=0)
    depth_multiplier: int = slot(3, I32, default=0)
    dilation_w: int = slot(5, I32, default=1)
    dilation_h: int = slot(6, I32, default=1)


@table
class TransposeConvOptions:
    padding: int = slot(0, I8, default=0)
    stride_w: int = slot(1, I32, default=0)
    stride_h: int = slot(2, I32, default=0)


@table
class FullyConnectedOptions:
    keep_num_dims: bool = slot(2, BOOL, default=False)


@table
class Pool2DOptions:
    padding: int = slot(0, I8, default=0)
    stride_w: int = slot(1, I32, default=0)
    stride_h: int = slot(2, I32, default=0)
    filter_w: int = slot(3, I32, default=0)
    filter_h: int = slot(4, I32, default=0)


@table
class ConcatenationOptions:
    axis: int = slot(0, I32, default=0)


@table
class ReshapeOptions:
    new_shape: Sequence[int] | None = slot(0, Vector(I32), default=None)


@table
class ReducerOptions:
    keep_dims: bool = slot(0, BOOL, default=False)


@table
class ResizeBilinearOptions:
    align_corners: bool = slot(2, BOOL, default=False)
    half_pixel_centers: bool = slot(3, BOOL, default=False)


@table
class ResizeNearestNeighborOptions:
    align_corners: bool = slot(0, BOOL, default=False)
    half_pixel_centers: bool = slot(1, BOOL, default=False)


@table
class SoftmaxOptions:
    beta: float = slot(0, F32, default=0.0)


@table
class LeakyReluOptions:
    alpha: float = slot(0, F32, default=0.0)


@table
class MirrorPadOptions:
    mode: int = slot(0, I8, default=0)


def _empty(name: str) -> Any:
    return table(type(name, (), {"__annotations__": {}}))


OPTIONS: dict[int, Any] = {
    1: Conv2DOptions,
    2: DepthwiseConv2DOptions,
    5: Pool2DOptions,
    8: FullyConnectedOptions,
    9: SoftmaxOptions,
    10: ConcatenationOptions,
    11: _empty("AddOptions"),
    15: ResizeBilinearOptions,
    17: ReshapeOptions,
    21: _empty("MulOptions"),
    26: _empty("TransposeOptions"),
    27: ReducerOptions,
    28: _empty("SubOptions"),
    33: _empty("ExpOptions"),
    39: _empty("MaximumMinimumOptions"),
    43: _empty("PadV2Options"),
    48: _empty("SliceOptions"),
    49: TransposeConvOptions,
    74: ResizeNearestNeighborOptions,
    75: LeakyReluOptions,
    77: MirrorPadOptions,
    78: _empty("AbsOptions"),
    91: _empty("HardSwishOptions"),
    101: _empty("BatchMatMulOptions"),
}


@table
class QuantizationParameters:
    scale: Sequence[float] | None = slot(2, Vector(F32), default=None)
    zero_point: Sequence[int] | None = slot(3, Vector(I64), default=None)
    quantized_dimension: int = slot(6, I32, default=0)


@table
class Tensor:
    shape: Sequence[int] | None = slot(0, Vector(I32, 16), default=None, lo=0)
    type: int = slot(1, I8, default=0)
    buffer: int = slot(2, U32, default=0)
    name: str | None = slot(3, STRING, default=None)
    quantization: QuantizationParameters | None = slot(4, QuantizationParameters, default=None)


@table
class Operator:
    opcode_index: int = slot(0, U32, default=0)
    inputs: Sequence[int] | None = slot(1, Vector(I32, _LIMIT), default=None)
    outputs: Sequence[int] | None = slot(2, Vector(I32, _LIMIT), default=None)
    options_type: int = slot(3, U8, default=0)
    options: Any = slot(4, UnionField("options_type", OPTIONS), default=None)


@table
class OperatorCode:
    deprecated_builtin_code: int = slot(0, I8, default=0)
    custom_code: str | None = slot(1, STRING, default=None)
    version: int = slot(2, I32, default=1)
    builtin_code: int = slot(3, I32, default=0)


@table
class SubGraph:
    tensors: Sequence[Tensor] | None = slot(0, Vector(Tensor, _LIMIT), default=None)
    inputs: Sequence[int] | None = slot(1, Vector(I32, _LIMIT), default=None)
    outputs: Sequence[int] | None = slot(2, Vector(I32, _LIMIT), default=None)
    operators: Sequence[Operator] | None = slot(3, Vector(Operator, _LIMIT), default=None)
    name: str | None = slot(4, STRING, default=None)


@table
class FileBuffer:
    data: Any = slot(0, Bytes(16), default=None)


@table
class Model:
    version: int = slot(0, U32, default=0)
    operator_codes: Sequence[OperatorCode] | None = slot(1, Vector(OperatorCode, _LIMIT), default=None)
    subgraphs: Sequence[SubGraph] | None = slot(2, Vector(SubGraph, _LIMIT), default=None)
    description: str | None = slot(3, STRING, default=None)
    buffers: Sequence[FileBuffer] | None = slot(4, Vector(FileBuffer, _LIMIT), default=None)
