"""Quantization operators. Their operands are never quantized again."""

from __future__ import annotations

from typing import Any

from edgewright.ir.aten.ops.row_builders import define_op
from edgewright.ir.aten.reference import quant
from edgewright.ir.aten.reference import quant as ref
from edgewright.ir.aten.table import OpClass
from edgewright.ir.ports import INDEX

_Q = "quantized_decomposed."


def _define_quant_op(name: str, overloads: str, tensors: str, module: Any = ref, shape: str = "") -> None:
    """Register a quantization operator whose tensors have no scale."""
    fn, shape_fn = getattr(module, name), getattr(module, shape or f"{name}_shape")
    define_op(name, overloads, fn, shape_fn, OpClass.OTHER, **dict.fromkeys(["input", *tensors.split(), "out"], INDEX))


for _name in ("quantize", "dequantize"):
    _tensor = f"{_Q}{_name}_per_tensor"
    _define_quant_op(f"{_name}_per_tensor", f"{_tensor}.default {_tensor}.tensor", "scale zero_point")
    _define_quant_op(f"{_name}_per_channel", f"{_Q}{_name}_per_channel.default", "scales zero_points")
    # A token is a row of the last dimension; a block has a size along each.
    _define_quant_op(f"{_name}_per_token", f"{_Q}{_name}_per_token.default", "scales zero_points")
    _affine = f"torchao.{_name}_affine.default"
    _define_quant_op(f"{_name}_affine", _affine, "scale zero_point", quant, "affine_shape")

_define_quant_op("choose_qparams", f"{_Q}choose_qparams.tensor", "")
_define_quant_op("choose_qparams_per_token_asymmetric", f"{_Q}choose_qparams_per_token_asymmetric.default", "")
_define_quant_op("choose_qparams_affine", "torchao.choose_qparams_affine.default", "", quant)
