"""Operator table of the ENN dialect: operands, parameters, shape inference and reference of every emitted operator.

In a device graph an operator is called ``enn.<TYPE>``; its arguments are ``inputs``, in AI LiteCore's order, and its
parameters, in the order in which they are passed to AI LiteCore.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgewright.backends.samsung.dialect import conv, elementwise, move, shapes
from edgewright.backends.samsung.dialect.elementwise import BINARY, UNARY
from edgewright.backends.samsung.dialect.numerics import Values
from edgewright.errors import FormatError
from edgewright.ir.graph import Op
from edgewright.ir.signatures import Signatures

PREFIX = "enn."
INT, REAL, FLAG, TEXT, INTS, REALS = "int", "real", "flag", "text", "ints", "reals"  # kinds of parameters
Reference = Callable[[Values, Op], None]
Shapes = Callable[[Op], list[tuple[int, ...]]]

# Optional parameters.
OPTIONAL = ("quant_dtype", "activation", "constant_index", "shrink_axis_mask")
KINDS = {
    **dict.fromkeys(("kernel_h", "kernel_w", "stride_h", "stride_w", "dilation_h", "dilation_w", "groups"), INT),
    **dict.fromkeys(("in_channels", "out_channels", "axis", "num_groups", "param_num", "k_dims", "block_size"), INT),
    **dict.fromkeys(("constant_index", "shrink_axis_mask"), INT),
    **dict.fromkeys(("epsilon", "minimum", "maximum"), REAL),
    **dict.fromkeys(("keep_dims", "count_include_pad", "align_corners", "half_pixel_centers"), FLAG),
    **dict.fromkeys(("quant_dtype", "activation", "padding", "padding_type", "mode", "out_dtype"), TEXT),
    **dict.fromkeys(("explicit_padding", "new_shape", "perm", "begin", "end", "strides", "point"), INTS),
    **dict.fromkeys(("normalize_shape", "zero_points"), INTS),
    **dict.fromkeys(("upsampling_factor", "scales"), REALS),
}


@dataclass(frozen=True)
class EnnOp:
    """``operands``: fewest and most (None: any number). ``params``: their names, beside those of ``OPTIONAL``."""

    name: str
    operands: tuple[int, int | None]
    shape: Shapes
    reference: Reference
    params: tuple[str, ...] = ()
    results: int | None = 1

    def kind(self, param: str) -> str:
        """The type of a parameter; ``axis`` of a reduction is a list."""
        return INTS if param == "axis" and self.name.startswith("REDUCE") else KINDS[param]


_WINDOW = ("kernel_h", "kernel_w", "stride_h", "stride_w")
_DILATION = ("dilation_h", "dilation_w")
_PADDING = ("padding", "explicit_padding")
_CONV = (*_WINDOW, *_DILATION, "groups", "padding", "padding_type", "explicit_padding", "in_channels", "out_channels")
_RESIZE = ("align_corners", "upsampling_factor", "half_pixel_centers")
_ONE, _TWO, _BIASED = (1, 1), (2, 2), (2, 3)


def _rows() -> tuple[EnnOp, ...]:
    return (
        *(EnnOp(name, _TWO, shapes.broadcast, f) for name, f in elementwise.BINARY.items()),
        *(EnnOp(name, _ONE, shapes.same_shape, elementwise.on_dequantized(f)) for name, f in elementwise.UNARY.items()),
        *(EnnOp(f"{d}CONV2D", _BIASED, shapes.convolution, conv.convolution, _CONV) for d in ("", "DW")),
        *(EnnOp(f"{d}DECONV2D", _BIASED, shapes.deconvolution, conv.convolution, _CONV) for d in ("", "DW")),
        EnnOp("FC", _BIASED, shapes.fully_connected, conv.fully_connected, ("in_channels", "out_channels")),
        EnnOp("BATCH_MATMUL", _TWO, shapes.batch_matmul, conv.batch_matmul),
        EnnOp("AVGPOOL2D", _ONE, shapes.pool, conv.average_pool, (*_WINDOW, *_PADDING, "count_include_pad")),
        EnnOp("MAXPOOL2D", _ONE, shapes.pool, conv.max_pool, (*_WINDOW, *_PADDING, *_DILATION)),
        *(EnnOp(f"REDUCE{n}", _ONE, shapes.reduce, elementwise.REDUCTIONS[f"REDUCE{n}"], ("keep_dims", "axis"))
          for n in ("MEAN", "SUM")),
        EnnOp("CLIP", _ONE, shapes.same_shape, elementwise.clip, ("minimum", "maximum")),
        EnnOp("PRELU", _TWO, shapes.by_channel, elementwise.prelu),
        *(EnnOp(n, _ONE, shapes.axis, elementwise.REDUCTIONS[n], ("axis",)) for n in ("SOFTMAX", "LOGSOFTMAX")),
        EnnOp("BatchNormalization", (5, 5), shapes.by_channel_exactly, elementwise.batch_norm, ("epsilon",)),
        EnnOp("LAYERNORM", (3, 3), shapes.last_axis, elementwise.layer_norm, ("epsilon",)),
        EnnOp("GROUPNORM", (3, 3), shapes.group_norm, elementwise.group_norm, ("num_groups", "epsilon")),
        EnnOp("RMSNORM", _TWO, shapes.rms_norm, elementwise.rms_norm, ("normalize_shape", "param_num", "epsilon")),
        EnnOp("CONCAT", (1, None), shapes.concat, move.concat, ("axis",)),
        EnnOp("RESHAPE", _ONE, shapes.reshape, move.reshape, ("new_shape",)),
        EnnOp("TRANSPOSE", _ONE, shapes.transpose, move.transpose, ("perm",)),
        EnnOp("STRIDEDSLICE", _ONE, shapes.strided_slice, move.strided_slice, ("begin", "end", "strides")),
        EnnOp("SPLIT", _ONE, shapes.split, move.split, ("axis", "point"), None),
        EnnOp("PAD", _ONE, shapes.pad, move.pad, ("explicit_padding", "padding", "padding_type")),
        EnnOp("GATHER", _TWO, shapes.gather, move.gather, ("axis",)),
        EnnOp("TopK", _ONE, shapes.top_k, move.top_k, ("k_dims",), 2),
        EnnOp("DEPTH_TO_SPACE", _ONE, shapes.depth_to_space, move.depth_to_space, ("block_size", "mode")),
        EnnOp("RESIZE_BILINEAR", _ONE, shapes.resize, conv.resize_bilinear, _RESIZE),
        EnnOp("RESIZE_NEAREST_NEIGHBOR", _ONE, shapes.resize, conv.resize_nearest, _RESIZE),
        EnnOp("CAST", _ONE, shapes.same_shape, move.cast, ("out_dtype",)),
        EnnOp("QUANTIZE", _ONE, shapes.same_shape, move.quantize, ("scales", "zero_points")),
        EnnOp("DEQUANTIZE", _ONE, shapes.same_shape, move.dequantize, ("scales", "zero_points")),
    )  # fmt: skip


ENN: dict[str, EnnOp] = {row.name: row for row in _rows()}


# ------------------------------------------------------------------------------------------------------- element types

# Floating point, or integers of 8 or 16 bits quantized per tensor: inputs and outputs are both one or the other, except
# for QUANTIZE and DEQUANTIZE. Data movement keeps types and parameters. Weights may be quantized per output channel.
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
_ONE_TYPE = "real -> real | Q -> Q"
_FILTERED = "real real real? -> real | Q weight# real#? -> Q"
SIGNATURES = Signatures(_CLASSES, {
    " ".join(BINARY): "real real -> real | Q Q -> Q",
    " ".join(UNARY): _ONE_TYPE,
    "CONV2D DWCONV2D DECONV2D DWDECONV2D FC": _FILTERED,
    "BATCH_MATMUL": "real real -> real | Q Q -> Q",
    "AVGPOOL2D MAXPOOL2D REDUCEMEAN REDUCESUM CLIP SOFTMAX LOGSOFTMAX RESIZE_BILINEAR": _ONE_TYPE,
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


ELEMENT_NAMES = {
    "int8": "INT8", "uint8": "UINT8", "int16": "INT16", "uint16": "UINT16", "int32": "INT32", "int64": "INT64",
    "float16": "FLOAT16", "float32": "FLOAT32",
}  # fmt: skip


def layout_name(shape: Sequence[int]) -> str:
    """The layout of a tensor: rank 4 is NCHW."""
    return "NCHW" if len(shape) == 4 else "UNDEFINED"
