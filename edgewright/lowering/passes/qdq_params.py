"""Static quantization parameters of quantize and dequantize nodes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgewright.errors import AccuracyError
from edgewright.ir.graph import Op, QParams, Value

PREFIX, AFFINE = "quantized_decomposed.", "torchao."


def is_conversion(op: Op, name: str) -> bool:
    """True for operators that quantize (or dequantize), of PT2E or torchao."""
    prefix = AFFINE if op.kind.startswith(AFFINE) else PREFIX
    short = op.kind.removeprefix(prefix)
    return op.kind.startswith(prefix) and short.startswith((f"{name}_per", f"{name}_affine"))


def static_qparams(op: Op) -> QParams | None:
    """The parameters of a conversion if they are constant, else None. A non-finite scale is an error."""
    if not (is_conversion(op, "quantize") or is_conversion(op, "dequantize")):
        return None
    qparams = _decomposed_or_affine_qparams(op)
    if qparams is not None and not np.isfinite(qparams.scale).all():
        worst = next(s for s in np.atleast_1d(qparams.scale).tolist() if not math.isfinite(s))
        remedy = "Calibrate with numbers whose every result is finite, and with weights that are."
        raise AccuracyError(f"{op.kind} of {op.args['input'].name!r}", "the scale must be finite", value=worst,
                            remedy=remedy)  # fmt: skip
    return qparams


def _decomposed_or_affine_qparams(op: Op) -> QParams | None:
    args = op.args
    quantized = op.outputs[0] if is_conversion(op, "quantize") else args["input"]
    if not isinstance(quantized, Value) or quantized.dtype is None or "per_token" in op.kind:
        return None
    if op.kind.startswith(AFFINE):
        return _affine_qparams(args, quantized)
    if "per_channel" in op.kind:
        scales, zeros = args["scales"], args["zero_points"]
        if scales.data is None or (zeros is not None and zeros.data is None):
            return None
        zero = tuple(int(z) for z in zeros.data) if zeros is not None else (0,) * scales.data.size
        scale = tuple(np.asarray(scales.data, np.float64).tolist())
        return QParams(scale, zero, quantized.dtype, args["quant_min"], args["quant_max"], axis=args["axis"])
    if isinstance(args["scale"], Value) or isinstance(args["zero_point"], Value):
        return None
    return QParams(args["scale"], args["zero_point"], quantized.dtype, args["quant_min"], args["quant_max"])


def _affine_qparams(args: dict[str, Any], quantized: Value) -> QParams | None:
    """torchao's block sizes: per tensor, per channel, or blocks of a weight's second dimension."""
    scales, zeros = args["scale"], args["zero_point"]
    constant = isinstance(scales, Value) and scales.constant and (zeros is None or zeros.constant)
    if not constant or args["quant_min"] is None or args.get("zero_point_domain", "INT") != "INT":
        return None
    sizes = [n if b == -1 else b for n, b in zip(quantized.shape, args["block_size"], strict=True)]
    split_dims = [d for d, (n, b) in enumerate(zip(quantized.shape, sizes, strict=True)) if n != b]
    scale = tuple(np.asarray(scales.data, np.float64).ravel().tolist())
    zero = (0,) * len(scale) if zeros is None else tuple(int(z) for z in np.asarray(zeros.data).ravel())
    integer_range = (quantized.dtype, args["quant_min"], args["quant_max"])
    if not split_dims and len(scale) == 1:
        return QParams(scale[0], zero[0], *integer_range)  # type: ignore[arg-type]
    if len(split_dims) == 1 and sizes[split_dims[0]] == 1:
        return QParams(scale, zero, *integer_range, axis=split_dims[0])  # type: ignore[arg-type]
    if len(sizes) >= 2 and sizes[0] == 1 and sizes[2:] == list(quantized.shape[2:]):
        return QParams(scale, zero, *integer_range, axis=0, block=sizes[1])  # type: ignore[arg-type]
    return None
