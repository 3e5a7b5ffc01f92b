"""Image resizing, and sampling at the points of a grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from edgewright.ir.aten.reference.dims import Array, Shape, at_dim, cheaper_first, per_axis
from edgewright.ir.aten.reference.elementwise import promote_operands
from edgewright.ir.dtypes import DType, compute_type, is_integral

# ---------------------------------------------------------------------------------------------------------- grid sample

# Sampling of an image or volume at the points of a grid.

_BILINEAR, _NEAREST, _BICUBIC = range(3)
_ZEROS, _BORDER, _REFLECTION = range(3)

PadCoordinate = Callable[[Array], Array]
Axis = tuple[Array, int, PadCoordinate]  # coordinates, size, and padding of coordinates outside
Tap = tuple[Array, Array]  # element index (a float, possibly outside) and weight


def grid_sampler_2d_shape(
    input: Array, grid: Array, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Shape:
    if input.ndim != 4 or grid.ndim != 4 or grid.shape[3] != 2 or grid.shape[0] != input.shape[0]:
        raise ValueError(f"grid must be [batch, h, w, 2] for input [batch, c, H, W], got {list(grid.shape)}")
    if 0 in input.shape[2:]:
        raise ValueError(f"the image must not be empty, got {list(input.shape)}")
    if interpolation_mode not in range(3) or padding_mode not in range(3):
        raise ValueError(f"modes must be 0, 1 or 2, got {interpolation_mode} and {padding_mode}")
    return (*input.shape[:2], *grid.shape[1:3])


def grid_sampler_3d_shape(
    input: Array, grid: Array, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Shape:
    if input.ndim != 5 or grid.ndim != 5 or grid.shape[4] != 3 or grid.shape[0] != input.shape[0]:
        raise ValueError(f"grid must be [batch, d, h, w, 3] for input [batch, c, D, H, W], got {list(grid.shape)}")
    if 0 in input.shape[2:]:
        raise ValueError(f"the volume must not be empty, got {list(input.shape)}")
    if interpolation_mode not in range(2) or padding_mode not in range(3):
        raise ValueError(f"modes must be 0 or 1 and 0, 1 or 2, got {interpolation_mode} and {padding_mode}")
    return (*input.shape[:2], *grid.shape[1:4])


def grid_sampler(input: Array, grid: Array, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Array:
    """The input at each point of the grid, whose last dimension is x, y (and z) in [-1, 1]."""
    x, points = promote_operands(input, grid)
    axes: list[Axis] = []
    for position, size in enumerate(input.shape[:1:-1]):
        pad, at = (
            _coordinate_padding(size, padding_mode, align_corners),
            _pixels(points[..., position], size, align_corners),
        )
        # Cubic taps are padded one by one.
        axes.insert(0, (at, size, pad) if interpolation_mode == _BICUBIC else (pad(at), size, _identity))
    taps = (_linear, _grid_nearest, cubic)[interpolation_mode]
    batch = np.arange(x.shape[0]).reshape(-1, *(1,) * len(axes))
    total = np.zeros((*grid.shape[:-1], x.shape[1]), x.dtype)
    pixels = np.moveaxis(x, 1, -1)
    for where, weight, inside in _combine_taps(axes, taps):
        weight = np.where(inside, weight, 0).astype(x.dtype)[..., None]
        key = (batch, *where)
        total += np.where(weight == 0, 0, pixels[key] * weight)
    return np.moveaxis(total, -1, 1)


grid_sampler_2d = grid_sampler_3d = grid_sampler


def _combine_taps(axes: list[Axis], taps: Callable[[Array], Iterator[Tap]]) -> Iterator[tuple[list[Array], Any, Any]]:
    """For each combination of the axes' taps: the elements, the weight, and where all are inside."""
    if not axes:
        yield [], 1, True
        return
    (at, size, pad), *rest = axes
    for tap, weight in taps(at):
        element, inside = _grid_element(pad(tap), size)
        for elements, other, also in _combine_taps(rest, taps):
            yield [element, *elements], weight * other, inside & also


def _pixels(points: Array, size: int, align_corners: bool) -> Array:
    """Maps [-1, 1] to pixels: the ends are pixel centers with ``align_corners``, else pixel edges."""
    return np.asarray((points + 1) / 2 * (size - 1) if align_corners else ((points + 1) * size - 1) / 2)


def _identity(at: Array) -> Array:
    return at


def _coordinate_padding(size: int, padding_mode: int, align_corners: bool) -> PadCoordinate:
    """The padding function of a coordinate outside the image."""
    if padding_mode == _ZEROS:
        return _identity

    def border(at: Array) -> Array:
        return np.clip(np.nan_to_num(at, nan=0.0), 0, size - 1)

    def reflection(at: Array) -> Array:
        low, span = (0.0, size - 1) if align_corners else (-0.5, size)
        if span == 0:
            return np.zeros_like(at)
        distance = np.abs(at - low)
        rest, flips = np.fmod(distance, span), np.floor(distance / span)
        return border(np.where(flips % 2 == 0, rest + low, span - rest + low).astype(at.dtype))

    return border if padding_mode == _BORDER else reflection


def _grid_element(at: Array, size: int) -> tuple[Array, Array]:
    """Clamped integer indices, and a mask of those inside."""
    inside = (at >= 0) & (at <= size - 1)
    return np.where(inside, at, 0).astype(np.int64), inside


def _grid_nearest(at: Array) -> Iterator[Tap]:
    yield np.rint(at), np.ones_like(at)


def _linear(at: Array) -> Iterator[Tap]:
    lower = np.floor(at)
    yield lower, 1 - (at - lower)
    yield lower + 1, at - lower


def cubic(at: Array) -> Iterator[Tap]:
    """Cubic convolution with the coefficient -0.75."""
    lower = np.floor(at)
    for tap in range(-1, 3):
        d = np.abs(at - lower - tap)
        near, far = (1.25 * d - 2.25) * d * d + 1, ((-0.75 * d + 3.75) * d - 6) * d + 3
        yield lower + tap, np.where(d <= 1, near, far)


# ------------------------------------------------------------------------------------------------------------- resample

# Image resizing: nearest, bilinear, bicubic, and antialiased bilinear.

Factors = Sequence[float | None]
Taps = Iterable[tuple[Array, Array]]  # per tap: the element each position reads, and its weight
TapFunction = Callable[[int, Array, Any, bool], Taps]


def _counts(input: Array, output_size: Sequence[int] | None, scales: Sequence[float] | None) -> Shape:
    if input.ndim != 4 or 0 in input.shape[1:]:
        raise ValueError(f"input must be [batch, channels, height, width], got {list(input.shape)}")
    if (output_size is None) == (scales is None):
        raise ValueError("exactly one of output_size and scale_factors is required")
    if output_size is not None:
        return per_axis(output_size, 2, "output_size", 1)
    assert scales is not None
    if len(scales) != 2 or not all(math.isfinite(s) and s > 0 for s in scales):
        raise ValueError(f"scale_factors must be two positive numbers, got {list(scales)}")
    return per_axis([int(n * s) for n, s in zip(input.shape[2:], scales, strict=True)], 2, "output size", 1)


def _step(size: int, count: int, align_corners: bool, factor: float | None) -> float:
    """The distance in the input between neighboring output pixels."""
    if align_corners:
        return (size - 1) / (count - 1) if count > 1 else 0.0
    return 1.0 / factor if factor is not None and factor > 0 else size / count


def _element(positions: Array, size: int) -> Array:
    """Float positions clamped to existing elements."""
    return np.clip(np.nan_to_num(positions), 0, size - 1).astype(np.int64)


def upsample_nearest2d_shape(
    input: Array, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None
) -> Shape:
    return (*input.shape[:2], *_counts(input, output_size, scale_factors))


def upsample_nearest2d(input: Array, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None) -> Array:
    return _nearest(input, _counts(input, output_size, scale_factors), scale_factors or (None, None))


def _nearest(input: Array, counts: Shape, factors: Factors) -> Array:
    indices = []
    for size, count, factor in zip(input.shape[2:], counts, factors, strict=True):
        step = np.float32(_step(size, count, False, factor))
        indices.append(_element(np.floor(np.arange(count, dtype=np.float32) * step), size))
    return np.asarray(input[:, :, indices[0][:, None], indices[1]])


def upsample_shape(
    input: Array, output_size: Sequence[int] | None, align_corners: bool, scale_factors: Sequence[float] | None
) -> Shape:
    return upsample_nearest2d_shape(input, output_size, scale_factors)


def _upsample(
    tap_fn: TapFunction, input: Array, output_size: Sequence[int] | None, align_corners: bool,
    scale_factors: Sequence[float] | None,
) -> Array:  # fmt: skip
    counts = _counts(input, output_size, scale_factors)
    return _interpolate(input, counts, align_corners, scale_factors or (None, None), tap_fn)


def resize_shape(self: Array, output_size: Sequence[int], *_: Any, **__: Any) -> Shape:
    """The shape of the ``resize_*`` functions, whose scales only affect the sampling positions."""
    return (*self.shape[:2], *_counts(self, output_size, None))


def resize_nearest2d(
    self: Array, output_size: Sequence[int], scales_h: float | None = None, scales_w: float | None = None
) -> Array:
    return _nearest(self, _counts(self, output_size, None), (scales_h, scales_w))


def _resize_to(
    tap_fn: TapFunction, self: Array, output_size: Sequence[int], align_corners: bool, scales_h: float | None = None,
    scales_w: float | None = None,
) -> Array:  # fmt: skip
    return _interpolate(self, _counts(self, output_size, None), align_corners, (scales_h, scales_w), tap_fn)


def _interpolate(input: Array, counts: Shape, align_corners: bool, factors: Factors, tap_fn: TapFunction) -> Array:
    kind = _weight_type(input)
    taps = []
    for size, count, factor in zip(input.shape[2:], counts, factors, strict=True):
        step = kind.type(_step(size, count, align_corners, factor))
        taps.append(tap_fn(size, np.arange(count, dtype=kind), step, align_corners))
    return _resize(input, counts, taps)


def _cubic_taps(size: int, positions: Array, step: float, align_corners: bool) -> Taps:
    at = positions * step if align_corners else (positions + 0.5) * step - 0.5
    return [(_element(position, size), weight) for position, weight in cubic(at)]


def _linear_taps(size: int, positions: Array, step: float, align_corners: bool) -> Taps:
    at = positions * step if align_corners else np.maximum((positions + 0.5) * step - 0.5, 0)
    lower = _element(at, size)
    part = np.clip(at - lower, 0, 1)
    return [(lower, 1 - part), (np.minimum(lower + 1, size - 1), part)]


upsample_bilinear2d, upsample_bicubic2d = partial(_upsample, _linear_taps), partial(_upsample, _cubic_taps)
resize_bilinear2d, resize_bicubic2d = partial(_resize_to, _linear_taps), partial(_resize_to, _cubic_taps)


def upsample_bilinear2d_aa(
    self: Array,
    output_size: Sequence[int],
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Array:
    """A triangle filter whose support is the input pixels covered by an output pixel."""
    counts = _counts(self, output_size, None)
    kind = _weight_type(self)
    taps = []
    for size, count, factor in zip(self.shape[2:], counts, (scales_h, scales_w), strict=True):
        step = _step(size, count, align_corners, factor)
        taps.append(_triangle_taps(size, np.arange(count, dtype=kind), step))
    return _resize(self, counts, taps)


def _triangle_taps(size: int, positions: Array, step: float) -> Iterator[tuple[Array, Array]]:
    support = max(step, 1.0)
    center = (positions + 0.5) * positions.dtype.type(step)
    first = np.clip(np.trunc(np.nan_to_num(center - support + 0.5)), 0, size).astype(np.int64)
    last = np.clip(np.trunc(np.nan_to_num(center + support + 0.5)), 0, size).astype(np.int64)
    longest = max(int((last - first).max()), 0)

    def weights(tap: int) -> Array:
        distance = np.abs((tap + first - center + 0.5) / positions.dtype.type(support))
        return np.where(first + tap < last, np.maximum(1 - distance, 0), 0)

    total = np.zeros_like(center)
    for tap in range(longest):
        total += weights(tap)
    for tap in range(longest):
        yield np.minimum(first + tap, size - 1), weights(tap) / np.where(total == 0, 1, total)


def _weight_type(input: Array) -> DType:
    return np.dtype(np.float64 if input.dtype == np.float64 else np.float32)


def _resize(input: Array, counts: Shape, taps: Sequence[Taps]) -> Array:
    """Weighted sums along height and width; integers are rounded half up."""
    result = input.astype(_weight_type(input) if is_integral(input.dtype) else compute_type(input.dtype), copy=False)
    for dim in cheaper_first(input.shape[2:], counts):
        total = np.zeros((*result.shape[: 4 + dim], counts[dim], *result.shape[5 + dim :]), result.dtype)
        for elements, weight in taps[dim]:
            picked = result[at_dim(4 + dim, elements)]
            total += picked * weight.astype(result.dtype).reshape(-1, *(1,) * (-1 - dim))
        result = total
    return np.floor(result + 0.5) if is_integral(input.dtype) else result
