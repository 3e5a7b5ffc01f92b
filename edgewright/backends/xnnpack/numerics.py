"""XNNPACK's rounding, as its x86 and Arm kernels do: half to even in float32, fixed point for sums and conversions."""

from __future__ import annotations

import numpy as np

from edgewright.ir.graph import Array, QParams
from edgewright.ir.numerics import Float32Numerics, Limits, MeanParams, as_float32, zero_point

_F32 = np.float32


class XnnpackNumerics(Float32Numerics):
    """The numerics of XNNPACK blobs: products as qs8 kernels with "fp32" requantization, sums as ``vadd``; means and
    conversions as below."""

    name = "xnnpack"

    def convert(self, x: Array, input_q: QParams, q: QParams, limits: Limits = None) -> Array | None:
        """``vcvt`` kernels multiply by the ratio of scales in units of 1/256, rounding half up."""
        plain = _is_plain(input_q) and _is_plain(q)
        ratio = _F32(np.asarray(input_q.scale)) / _F32(np.asarray(q.scale)) if plain else _F32(0)
        if input_q.dtype != q.dtype or not 2.0**-8 <= ratio <= 2.0**7:
            return None
        factor = int(np.rint(_F32(256) * ratio))
        scaled = (x.astype(np.int64) - zero_point(input_q)) * factor + 128 >> 8
        return np.asarray(np.clip(scaled + zero_point(q), *self.limits(q, limits)).astype(q.dtype))

    def mean_steps(self, input_q: QParams, q: QParams, count: int) -> MeanParams:
        """Reductions add the zero point before rounding half to even."""
        factor = _F32(as_float32(input_q.scale) / as_float32(q.scale) * (_F32(1) / _F32(count)))
        offset = zero_point(q) - factor * _F32(zero_point(input_q) * count)
        return MeanParams(0, factor, _F32(offset), 0)


def _is_plain(q: QParams) -> bool:
    """8 bits with one scale."""
    return q.dtype.itemsize == 1 and q.axis is None and q.dynamic is None


XNNPACK = XnnpackNumerics()
