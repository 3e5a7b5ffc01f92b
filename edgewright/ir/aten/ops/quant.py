"""Rows of quantization itself. Nothing in it is quantized again: its operands are left as they are."""

from __future__ import annotations

from typing import Any

from edgewright.ir.aten.ops.row_builders import row
from edgewright.ir.aten.reference import affine
from edgewright.ir.aten.reference import quant as ref
from edgewright.ir.aten.table import Layout
from edgewright.ir.ports import INDEX

_Q = "quantized_decomposed."


def _quant(name: str, overloads: str, layout: Layout, tensors: str, module: Any = ref, shape: str = "") -> None:
    fn, shape_fn = getattr(module, name), getattr(module, shape or f"{name}_shape")
    row(name, overloads, fn, shape_fn, layout, **dict.fromkeys(["input", *tensors.split(), "out"], INDEX))


for _name in ("quantize", "dequantize"):
    _tensor = f"{_Q}{_name}_per_tensor"
    _quant(f"{_name}_per_tensor", f"{_tensor}.default {_tensor}.tensor", Layout.FOLLOW, "scale zero_point")
    _quant(f"{_name}_per_channel", f"{_Q}{_name}_per_channel.default", Layout.AXES, "scales zero_points")
    # A token is a row of the last dimension; a block has a size along each.
    _quant(f"{_name}_per_token", f"{_Q}{_name}_per_token.default", Layout.SHAPE, "scales zero_points")
    _affine = f"torchao.{_name}_affine.default"
    _quant(f"{_name}_affine", _affine, Layout.SHAPE, "scale zero_point", affine, "affine_shape")

_quant("choose_qparams", f"{_Q}choose_qparams.tensor", Layout.FOLLOW, "")
_quant("choose_qparams_per_token_asymmetric", f"{_Q}choose_qparams_per_token_asymmetric.default", Layout.SHAPE, "")
_quant("choose_qparams_affine", "torchao.choose_qparams_affine.default", Layout.SHAPE, "", affine)
