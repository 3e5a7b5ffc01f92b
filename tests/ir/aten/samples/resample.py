"""Samples of resizing, grid sampling and Fourier transforms."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tests.ir.aten.harness import Sample, channels_last
from tests.ir.aten.samples.values import FLOATS, array, normal, unlike_stock

LAST = (0, 2, 3, 1)
IMAGE = normal("float32", 2, 3, 5, 4)
BYTES = array(np.arange(2 * 3 * 20).reshape(2, 3, 5, 4) * 37 % 256, "uint8")
SIZES = ([10, 8], [3, 2], [5, 4], [1, 1], [7, 9], [13, 3])
SCALES = ([2.0, 2.0], [0.5, 1.7], [1.3, 0.6], [3.4, 1.0])


def resizing() -> list[Sample]:
    nearest, linear = "aten::upsample_nearest2d.vec_out", "aten::upsample_bilinear2d.vec_out"
    smooth = "aten::_upsample_bilinear2d_aa.out"
    asked: list[tuple[Any, Any]] = [*((size, None) for size in SIZES), *((None, scale) for scale in SCALES)]
    found = [Sample(nearest, [IMAGE, size, scale]) for size, scale in asked]
    found += [
        Sample(linear, [IMAGE, size, corners, scale])
        for (size, scale), corners in itertools.product(asked, (True, False))
    ]
    found += [
        Sample(smooth, [IMAGE, size, corners, None, None]) for size, corners in itertools.product(SIZES, (True, False))
    ]
    for name in FLOATS:
        found.append(Sample(nearest, [normal(name, 1, 2, 4, 3), [6, 7], None]))
        found.append(Sample(linear, [normal(name, 1, 2, 4, 3), [6, 7], False, None]))
    big = normal("float32", 1, 1, 11, 17)
    return [
        *found,
        Sample(nearest, [BYTES, [7, 9], None]),
        Sample(nearest, [big, [37, 51], None]),
        Sample(nearest, [normal("float64", 1, 1, 7, 1), [343, 1], None]),
        Sample(nearest, [normal("float32", 0, 1, 2, 2), [3, 3], None]),
        Sample(nearest, [channels_last(IMAGE), [7, 3], None], dim_order=LAST),
        Sample(linear, [BYTES, [7, 9], False, None], atol=1, rtol=0, note="fixed point in torch"),
        Sample(linear, [big, [37, 51], False, None]),
        Sample(linear, [normal("float32", 0, 1, 2, 2), [3, 3], True, None]),
        Sample(linear, [channels_last(IMAGE), None, False, [1.5, 2.5]], dim_order=LAST),
        Sample(smooth, [normal("float64", 1, 2, 9, 8), [4, 5], False, None, None]),
        Sample(smooth, [normal("float64", 1, 2, 9, 8), [4, 5], False, 0.5, 0.6]),
        Sample(smooth, [IMAGE, [10, 6], False, 2.0, 1.5]),
        Sample(smooth, [BYTES, [3, 7], False, None, None], atol=1, rtol=0, note="fixed point in torch"),
        Sample(smooth, [big, [3, 2], False, None, None]),
        Sample(smooth, [channels_last(IMAGE), [3, 9], True, None, None], dim_order=LAST),
    ]


def grids() -> list[Sample]:
    key = "aten::grid_sampler_2d.out"
    points = normal("float32", 2, 3, 4, 2, scale=1.2)
    corners = array([[[[-1, -1], [1, 1], [0, 0], [-1, 1], [3, -3], [-5.5, 0.25], [0.75, 0.999], [-1.001, 0.5]]]] * 2)
    modes = itertools.product(range(3), range(3), (True, False))
    found = [Sample(key, [IMAGE, grid, *mode]) for mode in modes for grid in (points, corners)]
    found += [Sample(key, [normal(d, 2, 1, 4, 3), points.astype(normal(d).dtype), 0, 0, False]) for d in FLOATS[:2]]
    return [
        *found,
        Sample(key, [normal("float32", 2, 2, 1, 1), points, 0, 2, True]),
        Sample(key, [IMAGE, normal("float32", 2, 0, 3, 2), 0, 0, True]),
        Sample(key, [channels_last(IMAGE), points, 0, 1, False], dim_order=LAST),
    ]


def transforms() -> list[Sample]:
    real, back = "aten::_fft_r2c.out", "aten::_fft_c2r.out"
    found = []
    for dims, norm, half in itertools.product(([0], [2], [1, 2], [2, 0, 1]), (0, 1, 2), (True, False)):
        found.append(Sample(real, [normal("float32", 3, 4, 5), dims, norm, half], out=["complex64"]))
    for dims, norm, odd in itertools.product(([0], [2], [1, 2], [0, 1, 2]), (0, 1, 2), (0, 1)):
        spectrum = normal("complex64", 3, 4, 5)
        found.append(Sample(back, [spectrum, dims, norm, 2 * (spectrum.shape[dims[-1]] - 1) + odd], out=["float32"]))
    return [
        *found,
        Sample(real, [normal("float64", 8), [0], 1, True], out=["complex128"]),
        Sample(real, [normal("float32", 1, 1), [0], 0, True], out=["complex64"]),
        Sample(real, [normal("float32", 6, 4).T, [0], 0, True], out=["complex64"]),
        Sample(back, [normal("complex128", 2, 5), [1], 2, 8], out=["float64"]),
    ]


def reason(sample: Sample) -> str:
    if "bilinear" in sample.key and sample.args[0].dtype == np.float64:
        return "places in float32"
    if "_aa" in sample.key and sample.args[0].dtype == np.uint8:
        return "truncates"
    if "grid" in sample.key and sample.dim_order:
        return "contiguous only"
    return "one-sided only" if "r2c" in sample.key and not sample.args[3] else ""


SAMPLES = unlike_stock([*resizing(), *grids(), *transforms()], reason)
