"""Convolution, pooling and resampling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgewright.ir.aten.ops.row_builders import SELF, define_composite, define_op
from edgewright.ir.aten.reference import conv, movement, pool, resample
from edgewright.ir.aten.table import OpClass, rank
from edgewright.ir.graph import Op
from edgewright.ir.ports import ACT, BIAS, Same, Weight


def _is_conv(weight_rank: int, transposed: bool) -> Callable[[Op], bool]:
    """ATen has one name for convolutions of every rank, transposed or not."""
    return lambda op: rank(op, "weight") == weight_rank and op.args.get("transposed", transposed) == transposed


for _n in (1, 2, 3):
    define_op(
        f"conv{_n}d",
        f"conv{_n}d.default conv{_n}d.padding convolution.default",
        conv.conv,
        conv.conv_shape,
        OpClass.PRODUCT,
        _is_conv(_n + 2, False),
        _n == 3,  # composite
        input=ACT,
        weight=Weight(0),
        bias=BIAS,
        out=ACT,
    )
    define_op(
        f"conv_transpose{_n}d",
        f"{'conv_transpose1d.default' if _n == 1 else f'conv_transpose{_n}d.input'} convolution.default",
        conv.conv_transpose,
        conv.conv_transpose_shape,
        OpClass.PRODUCT,
        _is_conv(_n + 2, True),
        _n == 3,
        input=ACT,
        weight=Weight(1),
        bias=BIAS,
        out=ACT,
    )


def _define_image_op(
    name: str, aten: str, module: Any, op_class: OpClass = OpClass.OTHER, composite: bool = False, **ports: Any
) -> None:
    """Register an operator on images whose functions have its name."""
    fn, shape = getattr(module, name), getattr(module, f"{name}_shape")
    define_op(name, aten, fn, shape, op_class, None, composite, self=ACT, **ports)


_define_image_op("max_pool1d", "max_pool1d.default", pool, out=SELF)
_define_image_op("max_pool2d", "max_pool2d.default max_pool2d_with_indices.default", pool, out=SELF)
_define_image_op("adaptive_max_pool2d", "adaptive_max_pool2d.default", pool, composite=True, out=SELF)
# The range of a mean is usually much smaller than its input's: it is calibrated, unless hardware ties them.
_define_image_op("avg_pool1d", "avg_pool1d.default", pool, out=ACT)
_define_image_op("avg_pool2d", "avg_pool2d.default", pool, out=ACT)
_define_image_op("avg_pool3d", "avg_pool3d.default", pool, composite=True, out=ACT)
_define_image_op("adaptive_avg_pool1d", "adaptive_avg_pool1d.default", pool, out=ACT)
_define_image_op("adaptive_avg_pool2d", "adaptive_avg_pool2d.default _adaptive_avg_pool2d.default", pool, out=ACT)
_define_image_op(
    "adaptive_avg_pool3d", "adaptive_avg_pool3d.default _adaptive_avg_pool3d.default", pool, composite=True, out=ACT
)

# ``upsample_*`` have sizes or factors (exported by interpolate()); ``resize_*`` have sizes and scales (decomposed).
define_composite(
    "upsample_nearest2d",
    "upsample_nearest2d.vec",
    resample.upsample_nearest2d,
    resample.upsample_nearest2d_shape,
    OpClass.OTHER,
    input=ACT,
    out=Same("input"),
)
for _name in ("bilinear2d", "bicubic2d"):
    define_composite(
        f"upsample_{_name}",
        f"upsample_{_name}.vec",
        getattr(resample, f"upsample_{_name}"),
        resample.upsample_shape,
        OpClass.OTHER,
        input=ACT,
        out=ACT,
    )
define_op(
    "resize_nearest2d",
    "upsample_nearest2d.default",
    resample.resize_nearest2d,
    resample.resize_shape,
    OpClass.OTHER,
    self=ACT,
    out=SELF,
)
for _name in ("bilinear2d", "bicubic2d"):
    _fn = getattr(resample, f"resize_{_name}")
    define_op(f"resize_{_name}", f"upsample_{_name}.default", _fn, resample.resize_shape, OpClass.OTHER)

for _n in (2, 3):
    define_composite(
        f"grid_sampler_{_n}d",
        f"grid_sampler_{_n}d.default grid_sampler.default",
        resample.grid_sampler,
        getattr(resample, f"grid_sampler_{_n}d_shape"),
        OpClass.OTHER,
        (lambda n: lambda op: rank(op, "input") == n)(_n + 2),
        input=ACT,
        grid=ACT,
        out=ACT,
    )

_define_image_op("pixel_shuffle", "pixel_shuffle.default", movement, OpClass.GATHER, composite=True, out=SELF)
_define_image_op("pixel_unshuffle", "pixel_unshuffle.default", movement, OpClass.GATHER, composite=True, out=SELF)
_define_image_op("channel_shuffle", "channel_shuffle.default", movement, OpClass.GATHER, composite=True, out=SELF)
