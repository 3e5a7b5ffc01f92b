"""Sampling of an image or volume at the points of a grid."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from edgewright.ir.aten.reference.dims import Array, Shape
from edgewright.ir.aten.reference.elementwise import promote_operands

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
    taps = (_linear, _nearest, cubic)[interpolation_mode]
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
        element, inside = _element(pad(tap), size)
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


def _element(at: Array, size: int) -> tuple[Array, Array]:
    """Clamped integer indices, and a mask of those inside."""
    inside = (at >= 0) & (at <= size - 1)
    return np.where(inside, at, 0).astype(np.int64), inside


def _nearest(at: Array) -> Iterator[Tap]:
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
