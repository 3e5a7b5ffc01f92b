"""Rows of convolution, pooling and resampling: images in and out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgewright.ir.aten.ops.row_builders import SELF, row
from edgewright.ir.aten.reference import conv_variants, grid_sample, pool, pool_variants, rearrange, resample
from edgewright.ir.aten.table import Layout, rank
from edgewright.ir.graph import Op
from edgewright.ir.ports import ACT, BIAS, Same, Weight

SPATIAL = Layout.SPATIAL


def _of(weight_rank: int, transposed: bool) -> Callable[[Op], bool]:
    """ATen has one name for convolutions of every rank, forwards and transposed."""
    return lambda op: rank(op, "weight") == weight_rank and op.args.get("transposed", transposed) == transposed


for _n in (1, 2, 3):
    row(
        f"conv{_n}d",
        f"conv{_n}d.default conv{_n}d.padding convolution.default",
        conv_variants.conv,
        conv_variants.conv_shape,
        SPATIAL,
        _of(_n + 2, False),
        input=ACT,
        weight=Weight(0),
        bias=BIAS,
        out=ACT,
    )
    row(
        f"conv_transpose{_n}d",
        f"{'conv_transpose1d.default' if _n == 1 else f'conv_transpose{_n}d.input'} convolution.default",
        conv_variants.conv_transpose,
        conv_variants.conv_transpose_shape,
        SPATIAL,
        _of(_n + 2, True),
        input=ACT,
        weight=Weight(1),
        bias=BIAS,
        out=ACT,
    )


def _pool(name: str, aten: str, module: Any, **ports: Any) -> None:
    row(name, aten, getattr(module, name), getattr(module, f"{name}_shape"), SPATIAL, self=ACT, **ports)


_pool("max_pool1d", "max_pool1d.default", pool_variants, out=SELF)
_pool("max_pool2d", "max_pool2d.default max_pool2d_with_indices.default", pool, out=SELF)
_pool("adaptive_max_pool2d", "adaptive_max_pool2d.default", pool_variants, out=SELF)
# A mean lies in its input's range, but usually well inside: it has one of its own where hardware does not tie them.
_pool("avg_pool1d", "avg_pool1d.default", pool_variants, out=ACT)
_pool("avg_pool2d", "avg_pool2d.default", pool, out=ACT)
_pool("avg_pool3d", "avg_pool3d.default", pool_variants, out=ACT)
_pool("adaptive_avg_pool1d", "adaptive_avg_pool1d.default", pool_variants, out=ACT)
_pool("adaptive_avg_pool2d", "adaptive_avg_pool2d.default _adaptive_avg_pool2d.default", pool, out=ACT)
_pool("adaptive_avg_pool3d", "adaptive_avg_pool3d.default _adaptive_avg_pool3d.default", pool_variants, out=ACT)

# Told sizes or factors (what interpolate() exports to), and told sizes and steps (what that decomposes to).
row(
    "upsample_nearest2d",
    "upsample_nearest2d.vec",
    resample.upsample_nearest2d,
    resample.upsample_nearest2d_shape,
    SPATIAL,
    input=ACT,
    out=Same("input"),
)
for _name in ("bilinear2d", "bicubic2d"):
    row(
        f"upsample_{_name}",
        f"upsample_{_name}.vec",
        getattr(resample, f"upsample_{_name}"),
        resample.upsample_shape,
        SPATIAL,
        input=ACT,
        out=ACT,
    )
row(
    "resize_nearest2d",
    "upsample_nearest2d.default",
    resample.resize_nearest2d,
    resample.resize_shape,
    SPATIAL,
    self=ACT,
    out=SELF,
)
for _name in ("bilinear2d", "bicubic2d"):
    _fn = getattr(resample, f"resize_{_name}")
    row(f"resize_{_name}", f"upsample_{_name}.default", _fn, resample.resize_shape, SPATIAL)

for _n in (2, 3):
    row(
        f"grid_sampler_{_n}d",
        f"grid_sampler_{_n}d.default grid_sampler.default",
        grid_sample.grid_sampler,
        getattr(grid_sample, f"grid_sampler_{_n}d_shape"),
        SPATIAL,
        (lambda n: lambda op: rank(op, "input") == n)(_n + 2),
        input=ACT,
        grid=ACT,
        out=ACT,
    )

_pool("pixel_shuffle", "pixel_shuffle.default", rearrange, out=SELF)
_pool("pixel_unshuffle", "pixel_unshuffle.default", rearrange, out=SELF)
_pool("channel_shuffle", "channel_shuffle.default", rearrange, out=SELF)
