"""Kernels of quantization, and of operators on quantized tensors."""

from __future__ import annotations

from functools import partial
from typing import Any

from edgewright.ir.aten.reference import quant as ref
from edgewright.ir.aten.reference import quant_ops as ops
from edgewright.runtime.kernel import Function, register, register_signature

_Q = "quantized_decomposed::"

for _overload in ("out", "Tensor_out"):
    register(f"{_Q}quantize_per_tensor.{_overload}", ref.quantize_per_tensor, ref.quantize_per_tensor_shape)
    register(f"{_Q}dequantize_per_tensor.{_overload}", ref.dequantize_per_tensor, ref.dequantize_per_tensor_shape)
register(f"{_Q}quantize_per_channel.out", ref.quantize_per_channel, ref.quantize_per_channel_shape)
register(f"{_Q}dequantize_per_channel.out", ref.dequantize_per_channel, ref.dequantize_per_channel_shape)
register(f"{_Q}quantize_per_token.out", ref.quantize_per_token, ref.quantize_per_token_shape)
register(f"{_Q}dequantize_per_token.out", ref.dequantize_per_token, ref.dequantize_per_token_shape)
register(f"{_Q}choose_qparams.Tensor_out", ref.choose_qparams, ref.choose_qparams_shape)
register(
    f"{_Q}choose_qparams_per_token_asymmetric.out",
    ref.choose_qparams_per_token_asymmetric,
    ref.choose_qparams_per_token_asymmetric_shape,
)

# The same under the operator names of Arm's Cortex-M runtime.
_QDQ_ARGS = "input: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: int, out: Tensor!"
register_signature(
    f"cortex_m::quantize_per_tensor.out({_QDQ_ARGS})", ref.quantize_per_tensor, ref.quantize_per_tensor_shape
)
register_signature(
    f"cortex_m::dequantize_per_tensor.out({_QDQ_ARGS})",
    ref.dequantize_per_tensor,
    ref.dequantize_per_tensor_shape,
)

register(f"{_Q}add.out", ops.quantized_add, ops.quantized_add_shape)
register(f"{_Q}mixed_mm.out", ops.mixed_mm, ops.mixed_mm_shape)
register(f"{_Q}mixed_linear.out", ops.mixed_linear, ops.mixed_linear_shape)


def _call_embedding(fn: Function, bits: int, weight: Any, scales: Any, zero_points: Any, *rest: Any) -> Any:
    """Drop the quantization range and the result's dtype; the indices are the third of the remaining arguments."""
    return fn(weight, scales, zero_points, rest[2], bits)


for _name, _bits in (("byte", 8), ("4bit", 4), ("2bit", 2)):
    for _overload in ("out", "dtype_out"):
        register(
            f"{_Q}embedding_{_name}.{_overload}",
            partial(_call_embedding, ops.quantized_embedding, _bits),
            partial(_call_embedding, ops.quantized_embedding_shape, _bits),
        )
