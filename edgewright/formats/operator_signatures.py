"""The operators of the stock runtime, by name, with their arguments in file order.

This is the list a ``.pte`` is checked against: the kernels here implement it, and the compiler may emit
nothing else. ``Tensor!`` is written by the call, ``opt[...]`` may be null. Trailing written arguments are
results; a written argument before them (``copy_``'s ``self``) is read and changed in place.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

from edgewright.errors import UsageError


class Kind(enum.Enum):
    """The type of an operator argument."""

    TENSOR = "Tensor"
    TENSORS = "list[Tensor]"
    OPTIONAL_TENSORS = "list[opt[Tensor]]"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    NUMBER = "number"
    STR = "str"
    INTS = "list[int]"
    FLOATS = "list[float]"
    BOOLS = "list[bool]"
    ANY = "any"


@dataclass(frozen=True)
class Argument:
    name: str
    kind: Kind
    optional: bool = False
    is_write: bool = False


@dataclass(frozen=True)
class Signature:
    """An operator's name (``namespace::op.overload``) and its arguments.

    >>> operators()["aten::add.out"].num_values
    5
    """

    key: str
    args: tuple[Argument, ...]

    @cached_property
    def inputs(self) -> tuple[Argument, ...]:
        return self.args[: len(self.args) - len(self.outputs)]

    @cached_property
    def outputs(self) -> tuple[Argument, ...]:
        """The trailing written arguments."""
        first = len(self.args)
        while first and self.args[first - 1].is_write:
            first -= 1
        return self.args[first:]

    @cached_property
    def returns_list(self) -> bool:
        """Whether the result is one list of tensors."""
        return len(self.outputs) == 1 and self.outputs[0].kind is Kind.TENSORS

    @cached_property
    def num_values(self) -> int:
        """The number of values that a KernelCall of this operator lists: arguments, then the returned value, if any."""
        return len(self.args) + (self.key not in _RETURNS_NOTHING)

    @cached_property
    def functional(self) -> str:
        """The functional operator of which this is the out variant; empty if there is none.

        >>> operators()["aten::eq.Tensor_out"].functional, operators()["aten::abs.out"].functional
        ('aten.eq.Tensor', 'aten.abs.default')
        """
        namespace, _, name = self.key.partition("::")
        if namespace not in ("aten", "quantized_decomposed") or any(a.is_write for a in self.inputs):
            return ""
        packet, _, overload = name.partition(".")
        overload = _IRREGULAR.get(self.key) or overload.removesuffix("out").removesuffix("_") or "default"
        return f"{namespace}.{packet}.{overload}"


# Kernels that are not named after the overload they compute.
_IRREGULAR = {
    "aten::add.out": "Tensor", "aten::sub.out": "Tensor", "aten::mul.out": "Tensor", "aten::div.out": "Tensor",
    "aten::div.out_mode": "Tensor_mode", "aten::any.all_out": "default", "aten::any.out": "dim",
    "aten::max.unary_out": "default", "aten::max.dim_max": "dim", "aten::min.unary_out": "default",
    "aten::min.dim_min": "dim", "aten::mean.dtype_out": "default", "aten::mean.out": "dim",
    "aten::prod.int_out": "dim_int", "aten::sum.IntList_out": "dim_IntList", "aten::topk.values": "default",
    "aten::var.out": "dim", "aten::arange.start_out": "start_step", "aten::empty.out": "memory_format",
    "aten::max_pool2d_with_indices_backward.grad_input": "default",
    "quantized_decomposed::quantize_per_tensor.Tensor_out": "tensor",
    "quantized_decomposed::dequantize_per_tensor.Tensor_out": "tensor",
    "quantized_decomposed::choose_qparams.Tensor_out": "tensor",
}  # fmt: skip
_RETURNS_NOTHING = frozenset({"executorch_prim::et_view.default", "executorch_prim::et_copy_index.tensor"})
_LINE = re.compile(r"\s*([\w:.]+)\((.*)\)\s*")
_ARG = re.compile(r"(\w+): (opt\[)?(.*?)(?(2)\])(!?)")


def parse_signature(text: str) -> Signature:
    """Read one line of the table below.

    >>> [a.name for a in parse_signature("aten::abs.out(self: Tensor, out: Tensor!)").outputs]
    ['out']
    """
    match = _LINE.fullmatch(text)
    if not match:
        raise UsageError("operator signature", "must read 'ns::op.overload(arg: type, out: Tensor!)'", value=text)
    args = []
    for part in filter(None, match[2].split(", ")):
        arg = _ARG.fullmatch(part)
        if not arg or arg[3] not in _KINDS:
            kinds = ", ".join(_KINDS)
            raise UsageError(f"operator signature {match[1]}", f"argument types are {kinds}", value=part)
        args.append(Argument(arg[1], _KINDS[arg[3]], bool(arg[2]), bool(arg[4])))
    return Signature(match[1], tuple(args))


_KINDS = {kind.value: kind for kind in Kind}

_TABLE = """
aten::_adaptive_avg_pool2d.out(self: Tensor, output_size: list[int], out: Tensor!)
aten::_cdist_forward.out(x1: Tensor, x2: Tensor, p: float, compute_mode: opt[int], out: Tensor!)
aten::_conj_physical.out(self: Tensor, out: Tensor!)
aten::_fft_c2r.out(self: Tensor, dim: list[int], normalization: int, last_dim_size: int, out: Tensor!)
aten::_fft_r2c.out(self: Tensor, dim: list[int], normalization: int, onesided: bool, out: Tensor!)
aten::_local_scalar_dense(self: Tensor)
aten::_log_softmax.out(self: Tensor, dim: int, half_to_float: bool, out: Tensor!)
aten::_native_batch_norm_legit.no_stats_out(input: Tensor, weight: opt[Tensor], bias: opt[Tensor], training: bool, momentum: float, eps: float, out: Tensor!, save_mean: Tensor!, save_invstd: Tensor!)
aten::_native_batch_norm_legit.out(input: Tensor, weight: opt[Tensor], bias: opt[Tensor], running_mean: Tensor!, running_var: Tensor!, training: bool, momentum: float, eps: float, out: Tensor!, save_mean: Tensor!, save_invstd: Tensor!)
aten::_native_batch_norm_legit_no_training.out(input: Tensor, weight: opt[Tensor], bias: opt[Tensor], running_mean: Tensor, running_var: Tensor, momentum: float, eps: float, out0: Tensor!, out1: Tensor!, out2: Tensor!)
aten::_pdist_forward.out(self: Tensor, p: float, out: Tensor!)
aten::_softmax.out(self: Tensor, dim: int, half_to_float: bool, out: Tensor!)
aten::_to_copy.out(self: Tensor, non_blocking: bool, memory_format: opt[int], out: Tensor!)
aten::_upsample_bilinear2d_aa.out(self: Tensor, output_size: list[int], align_corners: bool, scales_h: opt[float], scales_w: opt[float], out: Tensor!)
aten::abs.out(self: Tensor, out: Tensor!)
aten::acos.out(self: Tensor, out: Tensor!)
aten::acosh.out(self: Tensor, out: Tensor!)
aten::add.Scalar_out(self: Tensor, other: number, alpha: number, out: Tensor!)
aten::add.out(self: Tensor, other: Tensor, alpha: number, out: Tensor!)
aten::addmm.out(self: Tensor, mat1: Tensor, mat2: Tensor, beta: number, alpha: number, out: Tensor!)
aten::alias_copy.out(self: Tensor, out: Tensor!)
aten::amax.out(self: Tensor, dim: list[int], keepdim: bool, out: Tensor!)
aten::amin.out(self: Tensor, dim: list[int], keepdim: bool, out: Tensor!)
aten::any.all_out(self: Tensor, out: Tensor!)
aten::any.dims_out(self: Tensor, dim: opt[list[int]], keepdim: bool, out: Tensor!)
aten::any.out(self: Tensor, dim: int, keepdim: bool, out: Tensor!)
aten::arange.out(end: number, out: Tensor!)
aten::arange.start_out(start: number, end: number, step: number, out: Tensor!)
aten::argmax.out(self: Tensor, dim: opt[int], keepdim: bool, out: Tensor!)
aten::argmin.out(self: Tensor, dim: opt[int], keepdim: bool, out: Tensor!)
aten::as_strided_copy.out(self: Tensor, size: list[int], stride: list[int], storage_offset: opt[int], out: Tensor!)
aten::asin.out(self: Tensor, out: Tensor!)
aten::asinh.out(self: Tensor, out: Tensor!)
aten::atan.out(self: Tensor, out: Tensor!)
aten::atan2.out(self: Tensor, other: Tensor, out: Tensor!)
aten::atanh.out(self: Tensor, out: Tensor!)
aten::avg_pool2d.out(self: Tensor, kernel_size: list[int], stride: list[int], padding: list[int], ceil_mode: bool, count_include_pad: bool, divisor_override: opt[int], out: Tensor!)
aten::bitwise_and.Scalar_out(self: Tensor, other: number, out: Tensor!)
aten::bitwise_and.Tensor_out(self: Tensor, other: Tensor, out: Tensor!)
aten::bitwise_left_shift.Tensor_Scalar_out(self: Tensor, other: number, out: Tensor!)
aten::bitwise_left_shift.Tensor_out(self: Tensor, other: Tensor, out: Tensor!)
aten::bitwise_not.out(self: Tensor, out: Tensor!)
aten::bitwise_or.Scalar_out(self: Tensor, other: number, out: Tensor!)
aten::bitwise_or.Tensor_out(self: Tensor, other: Tensor, out: Tensor!)
aten::bitwise_right_shift.Tensor_Scalar_out(self: Tensor, other: number, out: Tensor!)
aten::bitwise_right_shift.Tensor_out(self: Tensor, other: Tensor, out: Tensor!)
aten::bitwise_xor.Scalar_out(self: Tensor, other: number, out: Tensor!)
aten::bitwise_xor.Tensor_out(self: Tensor, other: Tensor, out: Tensor!)
aten::bmm.out(self: Tensor, mat2: Tensor, out: Tensor!)
aten::cat.out(tensors: list[Tensor], dim: int, out: Tensor!)
aten::ceil.out(self: Tensor, out: Tensor!)
aten::clamp.Tensor_out(self: Tensor, min: opt[Tensor], max: opt[Tensor], out: Tensor!)
aten::clamp.out(self: Tensor, min: opt[number], max: opt[number], out: Tensor!)
aten::clone.out(self: Tensor, memory_format: opt[int], out: Tensor!)
aten::constant_pad_nd.out(self: Tensor, pad: list[int], value: number, out: Tensor!)
aten::convolution.out(input: Tensor, weight: Tensor, bias: opt[Tensor], stride: list[int], padding: list[int], dilation: list[int], transposed: bool, output_padding: list[int], groups: int, out: Tensor!)
aten::convolution_backward.out(grad_output: Tensor, input: Tensor, weight: Tensor, bias_sizes: opt[list[int]], stride: list[int], padding: list[int], dilation: list[int], transposed: bool, output_padding: list[int], groups: int, output_mask: list[bool], out0: Tensor!, out1: Tensor!, out2: Tensor!)
aten::copy.out(self: Tensor, src: Tensor, non_blocking: bool, out: Tensor!)
aten::copy_(self: Tensor!, src: Tensor, non_blocking: bool)
aten::cos.out(self: Tensor, out: Tensor!)
aten::cosh.out(self: Tensor, out: Tensor!)
aten::cumsum.out(self: Tensor, dim: int, dtype: opt[int], out: Tensor!)
aten::detach_copy.out(self: Tensor, out: Tensor!)
aten::diagonal_copy.out(self: Tensor, offset: int, dim1: int, dim2: int, out: Tensor!)
aten::div.Scalar_mode_out(self: Tensor, other: number, rounding_mode: opt[str], out: Tensor!)
aten::div.Scalar_out(self: Tensor, other: number, out: Tensor!)
aten::div.out(self: Tensor, other: Tensor, out: Tensor!)
aten::div.out_mode(self: Tensor, other: Tensor, rounding_mode: opt[str], out: Tensor!)
aten::elu.out(self: Tensor, alpha: number, scale: number, input_scale: number, out: Tensor!)
aten::embedding.out(weight: Tensor, indices: Tensor, padding_idx: int, scale_grad_by_freq: bool, sparse: bool, out: Tensor!)
aten::empty.out(size: list[int], memory_format: opt[int], out: Tensor!)
aten::eq.Scalar_out(self: Tensor, other: number, out: Tensor!)
aten::eq.Tensor_out(self: Tensor, other: Tensor, out: Tensor!)
aten::erf.out(self: Tensor, out: Tensor!)
aten::exp.out(self: Tensor, out: Tensor!)
aten::expand_copy.out(self: Tensor, size: list[int], implicit: bool, out: Tensor!)
aten::expm1.out(self: Tensor, out: Tensor!)
aten::fill.Scalar_out(self: Tensor, value: number, out: Tensor!)
aten::fill.Tensor_out(self: Tensor, value: Tensor, out: Tensor!)
aten::flip.out(self: Tensor, dims: list[int], out: Tensor!)
aten::floor.out(self: Tensor, out: Tensor!)
aten::floor_divide.out(self: Tensor, other: Tensor, out: Tensor!)
aten::fmod.Scalar_out(self: Tensor, other: number, out: Tensor!)
aten::fmod.Tensor_out(self: Tensor, other: Tensor, out: Tensor!)
aten::full.out(size: list[int], fill_value: number, out: Tensor!)
aten::full_like.out(self: Tensor, fill_value: number, memory_format: opt[int], out: Tensor!)
aten::gather.out(self: Tensor, dim: int, index: Tensor, sparse_grad: bool, out: Tensor!)
aten::ge.Scalar_out(self: Tensor, other: number, out: Tensor!)
aten::ge.Tensor_out(self: Tensor, other: Tensor, out: Tensor!)
aten::gelu.out(self: Tensor, approximate: str, out: Tensor!)
aten::glu.out(self: Tensor, dim: int, out: Tensor!)
aten::grid_sampler_2d.out(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool, out: Tensor!)
aten::gt.Scalar_out(self: Tensor, other: number, out: Tensor!)
aten::gt.Tensor_out(self: Tensor, other: Tensor, out: Tensor!)
aten::hardtanh.out(self: Tensor, min_val: number, max_val: number, out: Tensor!)
aten::index.Tensor_out(self: Tensor, indices: list[opt[Tensor]], out: Tensor!)
aten::index_put.out(self: Tensor, indices: list[opt[Tensor]], values: Tensor, accumulate: bool, out: Tensor!)
aten::index_put_(self: Tensor!, indices: list[opt[Tensor]], values: Tensor, accumulate: bool)
aten::index_select.out(self: Tensor, dim: int, index: Tensor, out: Tensor!)
aten::isinf.out(self: Tensor, out: Tensor!)
aten::isnan.out(self: Tensor, out: Tensor!)
aten::le.Scalar_out(self: Tensor, other: number, out: Tensor!)
aten::le.Tensor_out(self: Tensor, other: Tensor, out: Tensor!)
aten::leaky_relu.out(self: Tensor, negative_slope: number, out: Tensor!)
aten::lift_fresh_copy.out(self: Tensor, out: Tensor!)
aten::linear.out(input: Tensor, weight: Tensor, bias: opt[Tensor], out: Tensor!)
aten::log.out(self: Tensor, out: Tensor!)
aten::log10.out(self: Tensor, out: Tensor!)
aten::log1p.out(self: Tensor, out: Tensor!)
aten::log2.out(self: Tensor, out: Tensor!)
aten::logical_and.out(self: Tensor, other: Tensor, out: Tensor!)
aten::logical_not.out(self: Tensor, out: Tensor!)
aten::logical_or.out(self: Tensor, other: Tensor, out: Tensor!)
aten::logical_xor.out(self: Tensor, other: Tensor, out: Tensor!)
aten::logit.out(self: Tensor, eps: opt[float], out: Tensor!)
aten::lt.Scalar_out(self: Tensor, other: number, out: Tensor!)
aten::lt.Tensor_out(self: Tensor, other: Tensor, out: Tensor!)
aten::masked_fill.Scalar_out(self: Tensor, mask: Tensor, value: number, out: Tensor!)
aten::masked_scatter.out(self: Tensor, mask: Tensor, source: Tensor, out: Tensor!)
aten::masked_select.out(self: Tensor, mask: Tensor, out: Tensor!)
aten::max.dim_max(self: Tensor, dim: int, keepdim: bool, max: Tensor!, max_values: Tensor!)
aten::max.unary_out(self: Tensor, out: Tensor!)
aten::max_pool2d_with_indices.out(self: Tensor, kernel_size: list[int], stride: list[int], padding: list[int], dilation: list[int], ceil_mode: bool, out: Tensor!, indices: Tensor!)
aten::max_pool2d_with_indices_backward.grad_input(grad_output: Tensor, self: Tensor, kernel_size: list[int], stride: list[int], padding: list[int], dilation: list[int], ceil_mode: bool, indices: Tensor, grad_input: Tensor!)
aten::maximum.out(self: Tensor, other: Tensor, out: Tensor!)
aten::mean.dtype_out(self: Tensor, dtype: opt[int], out: Tensor!)
aten::mean.out(self: Tensor, dim: opt[list[int]], keepdim: bool, dtype: opt[int], out: Tensor!)
aten::min.dim_min(self: Tensor, dim: int, keepdim: bool, min: Tensor!, min_indices: Tensor!)
aten::min.unary_out(self: Tensor, out: Tensor!)
aten::minimum.out(self: Tensor, other: Tensor, out: Tensor!)
aten::mm.out(self: Tensor, mat2: Tensor, out: Tensor!)
aten::mul.Scalar_out(self: Tensor, other: number, out: Tensor!)
aten::mul.out(self: Tensor, other: Tensor, out: Tensor!)
aten::narrow_copy.out(self: Tensor, dim: int, start: int, length: int, out: Tensor!)
aten::native_dropout.out(input: Tensor, p: float, train: opt[bool], out0: Tensor!, out1: Tensor!)
aten::native_group_norm.out(input: Tensor, weight: opt[Tensor], bias: opt[Tensor], N: int, C: int, HxW: int, group: int, eps: float, out0: Tensor!, out1: Tensor!, out2: Tensor!)
aten::native_layer_norm.out(input: Tensor, normalized_shape: list[int], weight: opt[Tensor], bias: opt[Tensor], eps: float, out0: Tensor!, out1: Tensor!, out2: Tensor!)
aten::ne.Scalar_out(self: Tensor, other: number, out: Tensor!)
aten::ne.Tensor_out(self: Tensor, other: Tensor, out: Tensor!)
aten::neg.out(self: Tensor, out: Tensor!)
aten::nonzero.out(self: Tensor, out: Tensor!)
aten::ones.out(size: list[int], out: Tensor!)
aten::permute_copy.out(self: Tensor, dims: list[int], out: Tensor!)
aten::pixel_shuffle.out(self: Tensor, upscale_factor: int, out: Tensor!)
aten::pixel_unshuffle.out(self: Tensor, downscale_factor: int, out: Tensor!)
aten::pow.Scalar_out(self: number, exponent: Tensor, out: Tensor!)
aten::pow.Tensor_Scalar_out(self: Tensor, exponent: number, out: Tensor!)
aten::pow.Tensor_Tensor_out(self: Tensor, exponent: Tensor, out: Tensor!)
aten::prod.int_out(self: Tensor, dim: int, keepdim: bool, dtype: opt[int], out: Tensor!)
aten::prod.out(self: Tensor, dtype: opt[int], out: Tensor!)
aten::rand.out(size: list[int], out: Tensor!)
aten::randn.out(size: list[int], out: Tensor!)
aten::reciprocal.out(self: Tensor, out: Tensor!)
aten::reflection_pad1d.out(self: Tensor, padding: list[int], out: Tensor!)
aten::reflection_pad2d.out(self: Tensor, padding: list[int], out: Tensor!)
aten::reflection_pad3d.out(self: Tensor, padding: list[int], out: Tensor!)
aten::relu.out(self: Tensor, out: Tensor!)
aten::remainder.Scalar_out(self: Tensor, other: number, out: Tensor!)
aten::remainder.Tensor_out(self: Tensor, other: Tensor, out: Tensor!)
aten::repeat.out(self: Tensor, repeats: list[int], out: Tensor!)
aten::repeat_interleave.Tensor_out(repeats: Tensor, output_size: opt[int], out: Tensor!)
aten::replication_pad1d.out(self: Tensor, padding: list[int], out: Tensor!)
aten::replication_pad2d.out(self: Tensor, padding: list[int], out: Tensor!)
aten::replication_pad3d.out(self: Tensor, padding: list[int], out: Tensor!)
aten::roll.out(self: Tensor, shifts: list[int], dims: list[int], out: Tensor!)
aten::round.out(self: Tensor, out: Tensor!)
aten::rsqrt.out(self: Tensor, out: Tensor!)
aten::rsub.Scalar_out(self: Tensor, other: number, alpha: number, out: Tensor!)
aten::scalar_tensor.out(s: number, out: Tensor!)
aten::scatter.src_out(self: Tensor, dim: int, index: Tensor, src: Tensor, out: Tensor!)
aten::scatter.value_out(self: Tensor, dim: int, index: Tensor, value: number, out: Tensor!)
aten::scatter_add.out(self: Tensor, dim: int, index: Tensor, src: Tensor, out: Tensor!)
aten::select_copy.int_out(self: Tensor, dim: int, index: int, out: Tensor!)
aten::select_scatter.out(self: Tensor, src: Tensor, dim: int, index: int, out: Tensor!)
aten::sigmoid.out(self: Tensor, out: Tensor!)
aten::sign.out(self: Tensor, out: Tensor!)
aten::sin.out(self: Tensor, out: Tensor!)
aten::sinh.out(self: Tensor, out: Tensor!)
aten::slice_copy.Tensor_out(self: Tensor, dim: int, start: opt[int], end: opt[int], step: int, out: Tensor!)
aten::slice_scatter.out(self: Tensor, src: Tensor, dim: int, start: opt[int], end: opt[int], step: int, out: Tensor!)
aten::split_copy.Tensor_out(self: Tensor, split_size: int, dim: int, out: list[Tensor]!)
aten::split_with_sizes_copy.out(self: Tensor, split_sizes: list[int], dim: int, out: list[Tensor]!)
aten::sqrt.out(self: Tensor, out: Tensor!)
aten::squeeze_copy.dim_out(self: Tensor, dim: int, out: Tensor!)
aten::squeeze_copy.dims_out(self: Tensor, dim: list[int], out: Tensor!)
aten::stack.out(tensors: list[Tensor], dim: int, out: Tensor!)
aten::sub.Scalar_out(self: Tensor, other: number, alpha: number, out: Tensor!)
aten::sub.out(self: Tensor, other: Tensor, alpha: number, out: Tensor!)
aten::sum.IntList_out(self: Tensor, dim: opt[list[int]], keepdim: bool, dtype: opt[int], out: Tensor!)
aten::sym_numel(self: Tensor)
aten::sym_size.int(self: Tensor, dim: int)
aten::t_copy.out(self: Tensor, out: Tensor!)
aten::tan.out(self: Tensor, out: Tensor!)
aten::tanh.out(self: Tensor, out: Tensor!)
aten::topk.values(self: Tensor, k: int, dim: int, largest: bool, sorted: bool, values: Tensor!, indices: Tensor!)
aten::transpose_copy.int_out(self: Tensor, dim0: int, dim1: int, out: Tensor!)
aten::tril.out(self: Tensor, diagonal: int, out: Tensor!)
aten::trunc.out(self: Tensor, out: Tensor!)
aten::unbind_copy.int_out(self: Tensor, dim: int, out: list[Tensor]!)
aten::unfold_copy.out(self: Tensor, dimension: int, size: int, step: int, out: Tensor!)
aten::unsqueeze_copy.out(self: Tensor, dim: int, out: Tensor!)
aten::upsample_bilinear2d.vec_out(input: Tensor, output_size: opt[list[int]], align_corners: bool, scale_factors: opt[list[float]], out: Tensor!)
aten::upsample_nearest2d.vec_out(input: Tensor, output_size: opt[list[int]], scale_factors: opt[list[float]], out: Tensor!)
aten::var.correction_out(self: Tensor, dim: opt[list[int]], correction: opt[number], keepdim: bool, out: Tensor!)
aten::var.out(self: Tensor, dim: opt[list[int]], unbiased: bool, keepdim: bool, out: Tensor!)
aten::var_mean.correction_out(self: Tensor, dim: opt[list[int]], correction: opt[number], keepdim: bool, out0: Tensor!, out1: Tensor!)
aten::view_as_real_copy.out(self: Tensor, out: Tensor!)
aten::view_copy.out(self: Tensor, size: list[int], out: Tensor!)
aten::where.self_out(condition: Tensor, self: Tensor, other: Tensor, out: Tensor!)
aten::zeros.out(size: list[int], out: Tensor!)
dim_order_ops::_clone_dim_order.out(self: Tensor, non_blocking: bool, dim_order: opt[list[int]], out: Tensor!)
dim_order_ops::_empty_dim_order.out(size: list[int], dim_order: opt[list[int]], out: Tensor!)
dim_order_ops::_to_dim_order_copy.out(self: Tensor, non_blocking: bool, dim_order: opt[list[int]], out: Tensor!)
et_copy::_d2h_copy.out(self: Tensor, out: Tensor!)
et_copy::_h2d_copy.out(self: Tensor, out: Tensor!)
executorch_prim::add.Scalar(a: number, b: number)
executorch_prim::ceil.Scalar(a: number)
executorch_prim::eq.Scalar(a: number, b: number)
executorch_prim::et_copy_index.tensor(copy_to: Tensor!, copy_from: Tensor, index: int)
executorch_prim::et_view.default(self: Tensor, size: list[int], out: Tensor!)
executorch_prim::floordiv.Scalar(a: number, b: number)
executorch_prim::floordiv.int(a: int, b: int)
executorch_prim::ge.Scalar(a: number, b: number)
executorch_prim::gt.Scalar(a: number, b: number)
executorch_prim::le.Scalar(a: number, b: number)
executorch_prim::lt.Scalar(a: number, b: number)
executorch_prim::mod.Scalar(a: int, b: int)
executorch_prim::mod.int(a: int, b: int)
executorch_prim::mul.Scalar(a: number, b: number)
executorch_prim::neg.Scalar(a: number)
executorch_prim::round.Scalar(a: number)
executorch_prim::sub.Scalar(a: number, b: number)
executorch_prim::sym_float.Scalar(a: number)
executorch_prim::sym_int.Scalar(a: number)
executorch_prim::sym_ite.Scalar(b: number, t: number, f: number)
executorch_prim::sym_max.Scalar(a: number, b: number)
executorch_prim::sym_min.Scalar(a: number, b: number)
executorch_prim::sym_not.Scalar(a: number)
executorch_prim::truediv.Scalar(a: number, b: number)
executorch_prim::trunc.Scalar(a: number)
llama::custom_quantized_sdpa.out(query: Tensor, key: Tensor, value: Tensor, start_pos: int, attn_mask: opt[Tensor], drpout_p: float, is_causal: bool, scale: opt[float], q_zero_points: opt[Tensor], q_scales: opt[Tensor], k_zero_points: opt[Tensor], k_scales: opt[Tensor], v_zero_points: opt[Tensor], v_scales: opt[Tensor], is_seq_at_dim_2: bool, out: Tensor!)
llama::custom_sdpa.out(query: Tensor, key: Tensor, value: Tensor, start_pos: int, attn_mask: opt[Tensor], drpout_p: float, is_causal: bool, scale: opt[float], out: Tensor!)
llama::fast_hadamard_transform.out(mat: Tensor, out: Tensor!)
llama::sdpa_with_kv_cache.out(query: Tensor, key: Tensor, value: Tensor, key_cache: Tensor!, value_cache: Tensor!, start_pos: int, seq_len: int, attn_mask: opt[Tensor], drpout_p: float, is_causal: bool, scale: opt[float], out: Tensor!)
llama::update_cache.out(value: Tensor, cache: Tensor!, start_pos: int, out: Tensor!)
llama::update_cache_with_indices.out(value: Tensor, cache: Tensor!, start_pos: int, indices: Tensor, out: Tensor!)
quantized_decomposed::add.out(a: Tensor, a_scale: float, a_zero_point: int, a_quant_min: int, a_quant_max: int, b: Tensor, b_scale: float, b_zero_point: int, b_quant_min: int, b_quant_max: int, out_scale: float, out_zero_point: int, out_quant_min: int, out_quant_max: int, out: Tensor!)
quantized_decomposed::choose_qparams.Tensor_out(input: Tensor, quant_min: int, quant_max: int, eps: float, dtype: int, scale_out: Tensor!, zero_point_out: Tensor!)
quantized_decomposed::choose_qparams_per_token_asymmetric.out(input: Tensor, dtype: int, scale_out: Tensor!, zero_point_out: Tensor!)
quantized_decomposed::dequantize_per_channel.out(input: Tensor, scales: Tensor, zero_points: opt[Tensor], axis: int, quant_min: int, quant_max: int, dtype: int, out_dtype: opt[int], out: Tensor!)
quantized_decomposed::dequantize_per_tensor.Tensor_out(input: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, dtype: int, out_dtype: opt[int], out: Tensor!)
quantized_decomposed::dequantize_per_tensor.out(input: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: int, out_dtype: opt[int], out: Tensor!)
quantized_decomposed::dequantize_per_token.out(input: Tensor, scales: Tensor, zero_points: Tensor, quant_min: int, quant_max: int, dtype: int, output_dtype: int, out: Tensor!)
quantized_decomposed::embedding_2bit.dtype_out(weight: Tensor, weight_scales: Tensor, weight_zero_points: opt[Tensor], weight_quant_min: int, weight_quant_max: int, indices: Tensor, dtype: opt[int], out: Tensor!)
quantized_decomposed::embedding_2bit.out(weight: Tensor, weight_scales: Tensor, weight_zero_points: opt[Tensor], weight_quant_min: int, weight_quant_max: int, indices: Tensor, out: Tensor!)
quantized_decomposed::embedding_4bit.dtype_out(weight: Tensor, weight_scales: Tensor, weight_zero_points: opt[Tensor], weight_quant_min: int, weight_quant_max: int, indices: Tensor, dtype: opt[int], out: Tensor!)
quantized_decomposed::embedding_4bit.out(weight: Tensor, weight_scales: Tensor, weight_zero_points: opt[Tensor], weight_quant_min: int, weight_quant_max: int, indices: Tensor, out: Tensor!)
quantized_decomposed::embedding_byte.dtype_out(weight: Tensor, weight_scales: Tensor, weight_zero_points: opt[Tensor], weight_quant_min: int, weight_quant_max: int, indices: Tensor, dtype: opt[int], out: Tensor!)
quantized_decomposed::embedding_byte.out(weight: Tensor, weight_scales: Tensor, weight_zero_points: opt[Tensor], weight_quant_min: int, weight_quant_max: int, indices: Tensor, out: Tensor!)
quantized_decomposed::mixed_linear.out(input: Tensor, weight: Tensor, weight_scales: Tensor, weight_zero_points: opt[Tensor], dtype: opt[int], out: Tensor!)
quantized_decomposed::mixed_mm.out(input: Tensor, weight: Tensor, weight_scales: Tensor, weight_zero_points: opt[Tensor], out: Tensor!)
quantized_decomposed::quantize_per_channel.out(input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, quant_min: int, quant_max: int, dtype: int, out: Tensor!)
quantized_decomposed::quantize_per_tensor.Tensor_out(input: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, dtype: int, out: Tensor!)
quantized_decomposed::quantize_per_tensor.out(input: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: int, out: Tensor!)
quantized_decomposed::quantize_per_token.out(input: Tensor, scales: Tensor, zero_points: Tensor, quant_min: int, quant_max: int, dtype: int, out: Tensor!)
"""


@cache
def operators() -> dict[str, Signature]:
    """Every operator, by its key; parsed on first use."""
    return {s.key: s for s in map(parse_signature, _TABLE.split("\n")[1:-1])}


if TYPE_CHECKING:
    OPERATORS: dict[str, Signature]


def __getattr__(name: str) -> dict[str, Signature]:
    if name == "OPERATORS":
        return operators()
    raise AttributeError(name)
