"""Kernels of normalization."""

from __future__ import annotations

from typing import Any

from edgewright.ir.aten.reference import norm as ref
from edgewright.ir.aten.reference.dims import Array, Shape
from edgewright.runtime.kernel import kernel, register

register("aten::_softmax.out", ref.softmax, ref.softmax_shape)
register("aten::_log_softmax.out", ref.log_softmax, ref.softmax_shape)
register("aten::native_layer_norm.out", ref.layer_norm, ref.layer_norm_shape)
register("aten::native_group_norm.out", ref.group_norm, ref.group_norm_shape)
register("aten::_native_batch_norm_legit.no_stats_out", ref.batch_norm_training, ref.batch_norm_training_shape)


register("aten::_native_batch_norm_legit_no_training.out", ref.batch_norm_inference, ref.batch_norm_inference_shape)


def _batch_norm_legit_shape(
    input: Array, weight: Any, bias: Any, mean: Array, var: Array, training: bool, momentum: float, eps: float
) -> list[Shape]:
    inference = ref.batch_norm_inference_shape(input, weight, bias, mean, var, momentum, eps)
    return ref.batch_norm_training_shape(input, weight, bias, True, momentum, eps) if training else inference


@kernel("aten::_native_batch_norm_legit.out", _batch_norm_legit_shape)
def _batch_norm_legit(
    input: Array, weight: Any, bias: Any, mean: Array, var: Array, training: bool, momentum: float, eps: float
) -> tuple[Array, Array, Array]:
    """Training updates the running statistics in place."""
    if not training:
        return ref.batch_norm_inference(input, weight, bias, mean, var, momentum, eps)
    results = ref.batch_norm_training(input, weight, bias, True, momentum, eps)
    mean[...], var[...] = ref.running_moments(input, mean, var, momentum)
    return results
