"""Fourier transforms between real and complex signals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from edgewright.ir.aten.reference.dims import Array, Shape, normal_dim, with_size
from edgewright.ir.dtypes import compute_type, is_floating

_Norm = Literal["backward", "ortho", "forward"]
_Norms = tuple[_Norm, _Norm, _Norm]

# torch's normalization modes: none, by the root of the element count, by the element count.
_FORWARD: _Norms = ("backward", "ortho", "forward")
_INVERSE: _Norms = ("forward", "ortho", "backward")


def _dims(self: Array, dim: Sequence[int], normalization: int) -> list[int]:
    dims = [normal_dim(d, self.ndim) for d in dim]
    if not dims or len(set(dims)) != len(dims) or self.ndim == 0:
        raise ValueError(f"dims must be distinct, got {list(dim)}")
    if not 0 <= normalization < len(_FORWARD):
        raise ValueError(f"normalization must be 0, 1 or 2, got {normalization}")
    if any(self.shape[d] < 1 for d in dims):
        raise ValueError(f"transformed dims must not be empty, got {list(self.shape)}")
    return dims


def rfft_shape(self: Array, dim: Sequence[int], normalization: int, onesided: bool) -> Shape:
    if not is_floating(self.dtype):
        raise ValueError(f"input must be real floating point, got {self.dtype}")
    last = _dims(self, dim, normalization)[-1]
    return with_size(self.shape, last, self.shape[last] // 2 + 1) if onesided else self.shape


def rfft(self: Array, dim: Sequence[int], normalization: int, onesided: bool) -> Array:
    """The spectrum of a real signal; ``onesided``: only the first half along the last of ``dim``."""
    dims = _dims(self, dim, normalization)
    x = self.astype(compute_type(self.dtype), copy=False)
    transform = np.fft.rfftn if onesided else np.fft.fftn
    return np.asarray(transform(x, axes=dims, norm=_FORWARD[normalization]))


def irfft_shape(self: Array, dim: Sequence[int], normalization: int, last_dim_size: int) -> Shape:
    if self.dtype.kind != "c":
        raise ValueError(f"input must be complex, got {self.dtype}")
    last = _dims(self, dim, normalization)[-1]
    if last_dim_size < 1 or self.shape[last] != last_dim_size // 2 + 1:
        raise ValueError(f"a signal of {last_dim_size} has another spectrum than one of {self.shape[last]}")
    return with_size(self.shape, last, last_dim_size)


def irfft(self: Array, dim: Sequence[int], normalization: int, last_dim_size: int) -> Array:
    """The real signal of ``last_dim_size`` with this one-sided spectrum."""
    dims = _dims(self, dim, normalization)
    sizes = [self.shape[d] for d in dims[:-1]] + [last_dim_size]
    return np.asarray(np.fft.irfftn(self, s=sizes, axes=dims, norm=_INVERSE[normalization]))
