"""Kernels of the stock operator list. Importing this module fills the registry.

A kernel whose functional operator has a row in the op table has the row's reference and shape function. The others are
registered below: kernels without a row, and those that serve several rows.
"""

from __future__ import annotations

from functools import partial
from types import FunctionType
from typing import Any

import numpy as np

from edgewright.formats.operator_signatures import operators
from edgewright.ir.aten.ops import OPS
from edgewright.ir.aten.reference import (
    activations,
    conv,
    create,
    fft,
    indexing,
    linalg,
    norm,
    pool,
    quant,
    resample,
    scalars,
    unary,
)
from edgewright.ir.aten.reference.dims import Array, Shape
from edgewright.ir.core.quantized_cache import quantize_rows, row_parameters
from edgewright.runtime.kernel import Function, kernel, register, register_signature
from edgewright.runtime.tensor import TensorSlot


def _call_by_position(fn: Function, names: list[str]) -> Function:
    """A function of a row, which takes its arguments by name, as a function of a kernel's inputs."""
    if isinstance(fn, FunctionType) and list(fn.__code__.co_varnames[: fn.__code__.co_argcount])[: len(names)] == names:
        return fn
    return lambda *inputs: fn(**dict(zip(names, inputs, strict=True)))


_Q = "quantized_decomposed::"
_BY_ROW = (f"{_Q}choose_qparams_per_token_asymmetric.out", f"{_Q}quantize_per_token.out")
for _key, _signature in operators().items():
    if _key in _BY_ROW:
        continue
    _functions = {(row.reference, row.shape) for row in OPS.matching(_signature.functional)}
    if _signature.outputs and len(_functions) == 1:
        _names = [a.name for a in _signature.inputs]
        register(_key, *(_call_by_position(fn, _names) for fn in _functions.pop()))


# ---------------------------------------------------------------------------- kernels that serve several rows, or none


register("aten::_conj_physical.out", unary.conj, create.same_shape)
register("aten::native_dropout.out", activations.dropout, activations.dropout_shape)
register("aten::convolution.out", conv.convolution, conv.convolution_shape)
register("aten::convolution_backward.out", conv.convolution_backward, conv.convolution_backward_shape)
register(
    "aten::max_pool2d_with_indices_backward.grad_input",
    pool.max_pool2d_backward,
    pool.max_pool2d_backward_shape,
)
register("aten::_upsample_bilinear2d_aa.out", resample.upsample_bilinear2d_aa, resample.resize_shape)
register("aten::_fft_r2c.out", fft.rfft, fft.rfft_shape)
register("aten::_fft_c2r.out", fft.irfft, fft.irfft_shape)
register("aten::_pdist_forward.out", linalg.pdist, linalg.pdist_shape)
register("aten::masked_select.out", indexing.masked_select, indexing.masked_select_shape)
register("aten::masked_scatter.out", indexing.masked_scatter, indexing.masked_scatter_shape)
register("aten::nonzero.out", indexing.nonzero, indexing.nonzero_shape)
register("aten::repeat_interleave.Tensor_out", indexing.repeat_interleave, indexing.repeat_interleave_shape)
register("aten::view_as_real_copy.out", create.view_as_real, create.view_as_real_shape)
register("aten::fill.Scalar_out", create.fill, create.fill_shape)
register("aten::fill.Tensor_out", create.fill, create.fill_shape)

# What an empty tensor holds is undefined; zeros keep it the same from run to run.
register("aten::empty.out", create.zeros, create.size_shape)
register("dim_order_ops::_empty_dim_order.out", create.zeros, create.empty_dim_order_shape)
for _key in ("et_copy::_d2h_copy.out", "et_copy::_h2d_copy.out"):
    register(_key, create.clone, create.same_shape)
register("dim_order_ops::_clone_dim_order.out", create.clone, create.dim_order_shape)
register("dim_order_ops::_to_dim_order_copy.out", create.clone, create.dim_order_shape)


@kernel("aten::copy_", shape=None)
def _copy_in_place(self: Array, src: Array, *_: Any) -> None:
    np.copyto(self, create.copy(self, src))


@kernel("aten::index_put_", None)
def index_put_(self: Array, indices: Any, values: Array, accumulate: bool) -> None:
    self[...] = indexing.index_put(self, indices, values, accumulate).astype(self.dtype)


def _batch_norm_legit_shape(
    input: Array, weight: Any, bias: Any, mean: Array, var: Array, training: bool, momentum: float, eps: float
) -> list[Shape]:
    inference = norm.batch_norm_inference_shape(input, weight, bias, mean, var, momentum, eps)
    return norm.batch_norm_training_shape(input, weight, bias, True, momentum, eps) if training else inference


@kernel("aten::_native_batch_norm_legit.out", _batch_norm_legit_shape)
def _batch_norm_legit(
    input: Array, weight: Any, bias: Any, mean: Array, var: Array, training: bool, momentum: float, eps: float
) -> tuple[Array, Array, Array]:
    """Training updates the running statistics in place."""
    if not training:
        return norm.batch_norm_inference(input, weight, bias, mean, var, momentum, eps)
    results = norm.batch_norm_training(input, weight, bias, True, momentum, eps)
    mean[...], var[...] = norm.running_moments(input, mean, var, momentum)
    return results


# -------------------------------------------------------------------------------------------------------- quantization

# Where eager PyTorch rounds rows otherwise, and has another smallest scale, these follow the stock runtime.


def _choose_row_parameters(input: Array, dtype: int) -> tuple[Array, Array]:
    if input.dtype != np.float32:
        return quant.choose_qparams_per_token_asymmetric(input, dtype)
    return row_parameters(input)


def _quantize_by_row(input: Array, scales: Array, zero_points: Array, low: int, high: int, dtype: int) -> Array:
    if input.dtype != np.float32 or (low, high) != (-128, 127):
        return quant.quantize_per_token(input, scales, zero_points, low, high, dtype)
    rows = (*input.shape[:-1], 1)
    return quantize_rows(input, scales.reshape(rows), zero_points.reshape(rows))


register(_BY_ROW[0], _choose_row_parameters, quant.choose_qparams_per_token_asymmetric_shape)
register(_BY_ROW[1], _quantize_by_row, quant.quantize_per_token_shape)

# Per-tensor kernels under the operator names of Arm's Cortex-M runtime.
_QDQ_ARGS = "input: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: int, out: Tensor!"
register_signature(
    f"cortex_m::quantize_per_tensor.out({_QDQ_ARGS})", quant.quantize_per_tensor, quant.quantize_per_tensor_shape
)
register_signature(
    f"cortex_m::dequantize_per_tensor.out({_QDQ_ARGS})",
    quant.dequantize_per_tensor,
    quant.dequantize_per_tensor_shape,
)

register(f"{_Q}add.out", quant.quantized_add, quant.quantized_add_shape)
register(f"{_Q}mixed_mm.out", quant.mixed_mm, quant.mixed_mm_shape)
register(f"{_Q}mixed_linear.out", quant.mixed_linear, quant.mixed_linear_shape)


def _call_embedding(fn: Function, bits: int, weight: Any, scales: Any, zero_points: Any, *rest: Any) -> Any:
    """Drop the quantization range and the result's dtype; the indices are the third of the remaining arguments."""
    return fn(weight, scales, zero_points, rest[2], bits)


for _name, _bits in (("byte", 8), ("4bit", 4), ("2bit", 2)):
    for _overload in ("out", "dtype_out"):
        register(
            f"{_Q}embedding_{_name}.{_overload}",
            partial(_call_embedding, quant.quantized_embedding, _bits),
            partial(_call_embedding, quant.quantized_embedding_shape, _bits),
        )


# --------------------------------------------------------------------------------------------------------------- views


def et_view(source: TensorSlot, size: list[int], out: TensorSlot) -> None:
    """Make ``out`` a reshaped view of ``source``."""
    if source.array is None:
        raise ValueError("the viewed tensor has no data")
    out.alias(source.array.reshape(size))


def et_copy_index(target: TensorSlot, source: TensorSlot, index: int) -> None:
    """``target[index] = source``; ``target`` grows to hold slices 0..index."""
    if target.memory is None or source.array is None:
        raise ValueError("both tensors need planned memory")
    if tuple(target.dim_order) != tuple(range(len(target.dim_order))):
        raise ValueError("the target must be contiguous")
    if index < 0:
        raise IndexError(f"index must not be negative; got {index}")
    target.resize((index + 1, *source.array.shape))
    assert target.array is not None
    target.array[index] = source.array


register("executorch_prim::et_view.default", et_view, None, raw=True)
register("executorch_prim::et_copy_index.tensor", et_copy_index, None, raw=True)


# ------------------------------------------------------------------------------------------------------------- scalars


for _name, _fn in {
    "add": scalars.add,
    "sub": scalars.sub,
    "mul": scalars.mul,
    "truediv": scalars.truediv,
    "floordiv": scalars.floordiv,
    "mod": scalars.truncmod,
    "neg": scalars.neg,
    "eq": scalars.eq,
    "lt": scalars.lt,
    "le": scalars.le,
    "gt": scalars.gt,
    "ge": scalars.ge,
    "ceil": scalars.ceil,
    "round": scalars.round,
    "trunc": scalars.trunc,
    "sym_float": scalars.to_float,
    "sym_int": scalars.to_int,
    "sym_ite": scalars.if_else,
    "sym_max": scalars.maximum,
    "sym_min": scalars.minimum,
    "sym_not": scalars.not_,
}.items():
    register(f"executorch_prim::{_name}.Scalar", _fn, None)
register("executorch_prim::floordiv.int", scalars.truncdiv, None)
register("executorch_prim::mod.int", scalars.truncmod, None)
register("aten::sym_size.int", scalars.size_of, None)
register("aten::sym_numel", scalars.numel_of, None)
register("aten::_local_scalar_dense", scalars.item, None)
