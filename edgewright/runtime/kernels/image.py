"""Kernels of pooling, resampling and Fourier transforms."""

from __future__ import annotations

from edgewright.ir.aten.reference import fft, grid_sample, pool, resample
from edgewright.runtime.kernel import register

register("aten::max_pool2d_with_indices.out", pool.max_pool2d, pool.max_pool2d_shape)
register(
    "aten::max_pool2d_with_indices_backward.grad_input",
    pool.max_pool2d_backward,
    pool.max_pool2d_backward_shape,
)
register("aten::avg_pool2d.out", pool.avg_pool2d, pool.avg_pool2d_shape)
register("aten::_adaptive_avg_pool2d.out", pool.adaptive_avg_pool2d, pool.adaptive_avg_pool2d_shape)

register("aten::upsample_nearest2d.vec_out", resample.upsample_nearest2d, resample.upsample_nearest2d_shape)
register("aten::upsample_bilinear2d.vec_out", resample.upsample_bilinear2d, resample.upsample_shape)
register("aten::_upsample_bilinear2d_aa.out", resample.upsample_bilinear2d_aa, resample.resize_shape)
register("aten::grid_sampler_2d.out", grid_sample.grid_sampler_2d, grid_sample.grid_sampler_2d_shape)

register("aten::_fft_r2c.out", fft.rfft, fft.rfft_shape)
register("aten::_fft_c2r.out", fft.irfft, fft.irfft_shape)
