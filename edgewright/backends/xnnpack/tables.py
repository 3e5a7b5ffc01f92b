"""Flatbuffer tables of an XNNPACK graph: values, quantization parameters and nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.formats.flatbuffer import F32, I16, I32, U8, U32, UnionField, Vector, slot, table
from edgewright.ir.dtypes import DType, bfloat16

NONE = 0xFFFFFFFF  # no value, no external
INPUT, OUTPUT = 1, 2  # flags of external values
MAX_RANK = 6
MAX_EXTERNS = 4096


class Datatype:
    """Element type numbers (enum ``XNNDatatype`` of the schema)."""

    FP32, FP16, QINT8, QUINT8, QINT32, QCINT8, QCINT32, QCINT4, QDINT8, QBINT4, QPINT8, INT32, PFP32, BF16 = range(
        1, 15
    )


DTYPES: dict[int, DType] = {
    Datatype.FP32: np.dtype(np.float32), Datatype.FP16: np.dtype(np.float16), Datatype.BF16: bfloat16,
    Datatype.QINT8: np.dtype(np.int8), Datatype.QUINT8: np.dtype(np.uint8), Datatype.QINT32: np.dtype(np.int32),
    Datatype.QCINT8: np.dtype(np.int8), Datatype.QCINT32: np.dtype(np.int32), Datatype.QCINT4: np.dtype(np.int8),
    Datatype.QDINT8: np.dtype(np.int8), Datatype.QBINT4: np.dtype(np.int8), Datatype.INT32: np.dtype(np.int32),
}  # fmt: skip
QUANT_RANGES = {Datatype.QCINT4: (-8, 7), Datatype.QBINT4: (-8, 7), Datatype.QUINT8: (0, 255)}
INT4_TYPES = (Datatype.QCINT4, Datatype.QBINT4)


# ------------------------------------------------------------------------------------------------------- values


@table
class PerTensorQuant:
    scale: float = slot(0, F32, default=0.0)
    zero_point: int = slot(1, I32, default=0)


@table
class PerChannelQuant:
    scale: Sequence[float] | None = slot(0, Vector(F32), default=None)
    channel_dim: int = slot(1, I32, default=0)
    scale_buffer_idx: int = slot(2, U32, default=0)
    num_scales: int = slot(3, U32, default=0)


@table
class PerTokenDynamicQuant:
    num_nonbatch_dims: int = slot(0, I32, default=0, lo=0, hi=MAX_RANK)


@table
class PerChannelGroupQuant:
    scale: Sequence[float] | None = slot(0, Vector(F32), default=None)
    channel_dim: int = slot(1, I32, default=0)
    group_size: int = slot(2, I32, default=1, lo=1)
    scale_buffer_idx: int = slot(4, U32, default=0)
    num_scales: int = slot(5, U32, default=0)


@table
class TensorValue:
    datatype: int = slot(0, I16, default=0, lo=1, hi=14, enum=True)
    num_dims: int = slot(1, U32, default=0)
    dims: Sequence[int] | None = slot(2, Vector(U32, MAX_RANK), default=None)
    constant_buffer_idx: int = slot(3, U32, default=0)
    external_id: int = slot(4, U32, default=0)
    flags: int = slot(5, U32, default=0, hi=INPUT | OUTPUT)
    id_out: int = slot(6, U32, default=0)
    dq_datatype: int = slot(7, I16, default=0, lo=0, hi=14, enum=True)


QUANT = {1: PerChannelQuant, 2: PerTensorQuant, 3: PerTokenDynamicQuant, 4: PerChannelGroupQuant}


@table
class QuantizedTensorValue:
    tensor_value: TensorValue = slot(0, TensorValue, required=True)
    quant_params_type: int = slot(1, U8, default=0)
    quant_params: Any = slot(2, UnionField("quant_params_type", QUANT), required=True)


@table
class XValue:
    type: int = slot(0, U8, default=0)
    value: Any = slot(1, UnionField("type", {1: TensorValue, 2: QuantizedTensorValue}), required=True)

    @property
    def tensor(self) -> TensorValue:
        tensor: TensorValue = self.value if self.type == 1 else self.value.tensor_value
        return tensor

    @property
    def quant(self) -> Any:
        return None if self.type == 1 else self.value.quant_params


# -------------------------------------------------------------------------------------------------------- nodes


@table
class Unary:
    input_id: int = slot(0, U32, default=0)
    output_id: int = slot(1, U32, default=0)
    flags: int = slot(2, U32, default=0)


@table
class Binary:
    input1_id: int = slot(0, U32, default=0)
    input2_id: int = slot(1, U32, default=0)
    output_id: int = slot(2, U32, default=0)
    flags: int = slot(3, U32, default=0)


@table
class Cat:
    axis: int = slot(0, U32, default=0)
    input1_id: int = slot(1, U32, default=0)
    input2_id: int = slot(2, U32, default=0)
    input3_id: int = slot(3, U32, default=0)
    input4_id: int = slot(4, U32, default=0)
    output_id: int = slot(5, U32, default=0)
    flags: int = slot(6, U32, default=0)
    input5_id: int = slot(7, U32, default=0)


@table
class FullyConnected:
    input1_id: int = slot(0, U32, default=0)
    filter_id: int = slot(1, U32, default=0)
    bias_id: int = slot(2, U32, default=0)
    output_id: int = slot(3, U32, default=0)
    flags: int = slot(4, U32, default=0)


@table
class Conv:
    padding_top: int = slot(0, U32, default=0)
    padding_right: int = slot(1, U32, default=0)
    padding_bottom: int = slot(2, U32, default=0)
    padding_left: int = slot(3, U32, default=0)
    kernel_height: int = slot(4, U32, default=0)
    kernel_width: int = slot(5, U32, default=0)
    subsampling_height: int = slot(6, U32, default=0)
    subsampling_width: int = slot(7, U32, default=0)
    dilation_height: int = slot(8, U32, default=0)
    dilation_width: int = slot(9, U32, default=0)
    group_input_channels: int = slot(10, U32, default=0)
    group_output_channels: int = slot(11, U32, default=0)
    groups: int = slot(12, U32, default=0)
    adjustment_height: int = slot(13, U32, default=0)
    adjustment_width: int = slot(14, U32, default=0)
    input1_id: int = slot(15, U32, default=0)
    filter_id: int = slot(16, U32, default=0)
    bias_id: int = slot(17, U32, default=0)
    output_id: int = slot(18, U32, default=0)
    flags: int = slot(19, U32, default=0)


@table
class Pool:
    padding_top: int = slot(0, U32, default=0)
    padding_right: int = slot(1, U32, default=0)
    padding_bottom: int = slot(2, U32, default=0)
    padding_left: int = slot(3, U32, default=0)
    pooling_height: int = slot(4, U32, default=0)
    pooling_width: int = slot(5, U32, default=0)
    stride_height: int = slot(6, U32, default=0)
    stride_width: int = slot(7, U32, default=0)
    dilation_height: int = slot(8, U32, default=0)
    dilation_width: int = slot(9, U32, default=0)
    input_id: int = slot(10, U32, default=0)
    output_id: int = slot(11, U32, default=0)
    flags: int = slot(12, U32, default=0)


@table
class ArgMaxPool:
    padding_top: int = slot(0, U32, default=0)
    padding_right: int = slot(1, U32, default=0)
    padding_bottom: int = slot(2, U32, default=0)
    padding_left: int = slot(3, U32, default=0)
    pooling_height: int = slot(4, U32, default=0)
    pooling_width: int = slot(5, U32, default=0)
    input_id: int = slot(6, U32, default=0)
    output_id: int = slot(7, U32, default=0)
    output_index_id: int = slot(8, U32, default=0)
    flags: int = slot(9, U32, default=0)


@table
class Transpose:
    num_dims: int = slot(0, U32, default=0)
    perm: Sequence[int] = slot(1, Vector(U32, MAX_RANK), required=True)
    input_id: int = slot(2, U32, default=0)
    output_id: int = slot(3, U32, default=0)
    flags: int = slot(4, U32, default=0)


@table
class Reshape:
    num_dims: int = slot(0, U32, default=0)
    new_shape: Sequence[int] = slot(1, Vector(U32, MAX_RANK), required=True)
    input_id: int = slot(2, U32, default=0)
    output_id: int = slot(3, U32, default=0)
    flags: int = slot(4, U32, default=0)


@table
class Slice:
    num_dims: int = slot(0, U32, default=0)
    offsets: Sequence[int] = slot(1, Vector(U32, MAX_RANK), required=True)
    sizes: Sequence[int] = slot(2, Vector(U32, MAX_RANK), required=True)
    input_id: int = slot(3, U32, default=0)
    output_id: int = slot(4, U32, default=0)
    flags: int = slot(5, U32, default=0)


@table
class ConstantPad:
    pre_paddings: Sequence[int] = slot(0, Vector(U32, MAX_RANK), required=True)
    post_paddings: Sequence[int] = slot(1, Vector(U32, MAX_RANK), required=True)
    padding_value: float = slot(2, F32, default=0.0)
    input_id: int = slot(3, U32, default=0)
    output_id: int = slot(4, U32, default=0)
    flags: int = slot(5, U32, default=0)


@table
class ResizeBilinear:
    new_height: int = slot(0, U32, default=0)
    new_width: int = slot(1, U32, default=0)
    input_id: int = slot(2, U32, default=0)
    output_id: int = slot(3, U32, default=0)
    flags: int = slot(4, U32, default=0)


@table
class UnaryWithParam:
    """A unary node with one parameter: the slope of LeakyReLU, the alpha of ELU."""

    parameter: float = slot(0, F32, default=0.0)
    input_id: int = slot(1, U32, default=0)
    output_id: int = slot(2, U32, default=0)
    flags: int = slot(3, U32, default=0)


@table
class Attention:
    query_id: int = slot(0, U32, default=0)
    key_id: int = slot(1, U32, default=0)
    value_id: int = slot(2, U32, default=0)
    scale_id: int = slot(3, U32, default=0)
    mask_id: int = slot(4, U32, default=0)
    output_id: int = slot(5, U32, default=0)
    flags: int = slot(6, U32, default=0)
