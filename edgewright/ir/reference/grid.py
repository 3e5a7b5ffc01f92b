"""Sampling an image at the points of a grid."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from edgewright.ir.reference.dims import Array, Shape
from edgewright.ir.reference.elementwise import common

_BILINEAR, _NEAREST, _BICUBIC = range(3)
_ZEROS, _BORDER, _REFLECTION = range(3)

Place = Callable[[Array], Array]
Tap = tuple[Array, Array]  # element position (still a float, perhaps outside) and weight


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


def grid_sampler_2d(
    input: Array, grid: Array, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Array:
    x, points = common(input, grid)
    height, width = input.shape[2:]
    place_x, place_y = (_placer(size, padding_mode, align_corners) for size in (width, height))
    at_x = _pixels(points[..., 0], width, align_corners)
    at_y = _pixels(points[..., 1], height, align_corners)
    if interpolation_mode != _BICUBIC:  # bicubic places each of its taps instead
        at_x, at_y, place_x, place_y = place_x(at_x), place_y(at_y), _stay, _stay
    taps = (_linear, _nearest, _cubic)[interpolation_mode]
    batch = np.arange(x.shape[0])[:, None, None]
    total = np.zeros((*grid.shape[:3], x.shape[1]), x.dtype)
    for tap_y, weight_y in taps(at_y):
        row, row_inside = _element(place_y(tap_y), height)
        for tap_x, weight_x in taps(at_x):
            column, column_inside = _element(place_x(tap_x), width)
            weight = np.where(row_inside & column_inside, weight_y * weight_x, 0).astype(x.dtype)
            picked = x[batch, :, row, column]
            total += np.where(weight[..., None] == 0, 0, picked * weight[..., None])
    return np.moveaxis(total, 3, 1)


def _pixels(points: Array, size: int, align_corners: bool) -> Array:
    """From [-1, 1] to pixels: the ends are pixel centres if corners are aligned, else pixel edges."""
    return np.asarray((points + 1) / 2 * (size - 1) if align_corners else ((points + 1) * size - 1) / 2)


def _stay(at: Array) -> Array:
    return at


def _placer(size: int, padding_mode: int, align_corners: bool) -> Place:
    """What a position outside the image stands for."""
    if padding_mode == _ZEROS:
        return _stay

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
    """Positions as elements that exist, and whether they did."""
    inside = (at >= 0) & (at <= size - 1)
    return np.where(inside, at, 0).astype(np.int64), inside


def _nearest(at: Array) -> Iterator[Tap]:
    yield np.rint(at), np.ones_like(at)


def _linear(at: Array) -> Iterator[Tap]:
    lower = np.floor(at)
    yield lower, 1 - (at - lower)
    yield lower + 1, at - lower


def _cubic(at: Array) -> Iterator[Tap]:
    """Cubic convolution with the coefficient -0.75."""
    lower = np.floor(at)
    for tap in range(-1, 3):
        d = np.abs(at - lower - tap)
        near, far = (1.25 * d - 2.25) * d * d + 1, ((-0.75 * d + 3.75) * d - 6) * d + 3
        yield lower + tap, np.where(d <= 1, near, far)
