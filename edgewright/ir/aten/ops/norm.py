"""Normalization.

Their weights have per-tensor ranges: a scale per element would be as many numbers as elements. Statistics stay in
floating point; they are folded into a neighboring operator or computed by the device.
"""

from __future__ import annotations

from edgewright.ir.aten.ops.row_builders import define_composite, define_op
from edgewright.ir.aten.reference import norm, norm_variants
from edgewright.ir.aten.table import OpClass
from edgewright.ir.ports import ACT, BIAS, INDEX, Port, Range

OTHER = OpClass.OTHER

_UNIT: dict[str, Port] = {"self": ACT, "out": Range(0, 1)}
_AFFINE: dict[str, Port] = {"input": ACT, "weight": ACT, "bias": BIAS, "out": ACT}
_STATISTICS: dict[str, Port] = {"running_mean": INDEX, "running_var": INDEX}

define_composite("softmax", "_softmax.default softmax.int", norm.softmax, norm.softmax_shape, OTHER, **_UNIT)
define_op("safe_softmax", "_safe_softmax.default", norm.safe_softmax, norm.softmax_shape, OTHER, **_UNIT)
define_composite("log_softmax", "_log_softmax.default log_softmax.int", norm.log_softmax, norm.softmax_shape, OTHER)
define_op(
    "batch_norm",
    "batch_norm.default _native_batch_norm_legit_no_training.default",
    norm.batch_norm_inference,
    norm.batch_norm_inference_shape,
    OTHER,
    lambda op: not op.args.get("training", False),
    **_AFFINE,
    **_STATISTICS,
)
define_op(
    "batch_norm_no_stats",
    "_native_batch_norm_legit.no_stats",
    norm.batch_norm_training,
    norm.batch_norm_training_shape,
    OTHER,
    **_AFFINE,
)
define_composite(
    "instance_norm",
    "instance_norm.default",
    norm_variants.instance_norm,
    norm_variants.instance_norm_shape,
    OTHER,
    **_AFFINE,
    **_STATISTICS,
)
define_composite(
    "group_norm", "group_norm.default", norm_variants.group_norm, norm_variants.group_norm_shape, OTHER, **_AFFINE
)
define_op(
    "native_group_norm",
    "native_group_norm.default",
    norm_variants.native_group_norm,
    norm_variants.native_group_norm_shape,
    OTHER,
    **_AFFINE,
)
# Over the last dimensions.
define_composite(
    "layer_norm",
    "layer_norm.default native_layer_norm.default",
    norm.layer_norm,
    norm.layer_norm_shape,
    OTHER,
    **_AFFINE,
)
define_composite(
    "rms_norm",
    "rms_norm.default",
    norm_variants.rms_norm,
    norm_variants.rms_norm_shape,
    OTHER,
    input=ACT,
    weight=ACT,
    out=ACT,
)
