"""Samples of pooling."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.ir.aten.harness import Sample, channels_last, to_array, to_torch
from tests.ir.aten.samples.values import FLOATS, INTS, array, normal, unlike_stock

LAST = (0, 2, 3, 1)
IMAGE = normal("float32", 2, 3, 6, 7)
TIES = array(np.arange(48).reshape(1, 2, 4, 6) % 3)
NANS = array([[[1, np.nan, 3, np.nan], [np.nan, 0, -1, 2], [-np.inf, -np.inf, 5, 5], [-np.inf, -np.inf, np.inf, 5]]])
# kernel, stride, padding, dilation, ceil_mode
WINDOWS: list[tuple[Any, ...]] = [
    ([2, 2], [2, 2], [0, 0], [1, 1], False),
    ([3, 2], [2, 1], [1, 1], [1, 1], False),
    ([3], [2], [1], [1], True),
    ([2, 3], [], [1, 0], [1, 1], True),
    ([3, 3], [2, 3], [0, 1], [2, 1], False),
    ([6, 7], [1, 1], [0, 0], [1, 1], False),
    ([14, 16], [9, 8], [7, 8], [1, 1], False),
    ([2, 2], [3, 3], [0, 0], [1, 1], True),
]


def maxima() -> list[Sample]:
    key = "aten::max_pool2d_with_indices.out"
    found = [Sample(key, [IMAGE, *w], out=["float32", "int64"]) for w in WINDOWS]
    for name in (*FLOATS, *INTS):
        found.append(Sample(key, [normal(name, 1, 2, 5, 5), *WINDOWS[1]], out=[name, "int64"]))
    for x in (TIES, NANS, np.full((1, 4, 4), -np.inf, np.float32), IMAGE[0], normal("float32", 0, 2, 4, 4)):
        found.append(Sample(key, [x, *WINDOWS[1]], out=["float32", "int64"]))
        found.append(Sample(key, [x, *WINDOWS[0]], out=["float32", "int64"]))
    for x in (IMAGE, TIES):
        found.append(Sample(key, [channels_last(x), *WINDOWS[2]], out=["float32", "int64"], dim_order=LAST))
    return found


def gradients() -> list[Sample]:
    key = "aten::max_pool2d_with_indices_backward.grad_input"
    found = []
    for x, window in [
        *((IMAGE, w) for w in WINDOWS),
        (TIES, WINDOWS[1]),
        (IMAGE[1], WINDOWS[1]),
        (normal("float64", 1, 2, 5, 5), WINDOWS[2]),
    ]:
        values, indices = map(to_array, torch.ops.aten.max_pool2d_with_indices(to_torch(x), *window))
        found.append(Sample(key, [normal(str(x.dtype), *values.shape, seed=3), x, *window, indices]))
    return found


def averages() -> list[Sample]:
    key = "aten::avg_pool2d.out"
    found = []
    for kernel, stride, padding, _, ceil in WINDOWS:
        found += [Sample(key, [IMAGE, kernel, stride, padding, ceil, inside, None]) for inside in (True, False)]
    found += [
        Sample(key, [normal(d, 1, 2, 5, 5), [3, 2], [2, 1], [1, 0], True, False, None]) for d in (*FLOATS, "int64")
    ]
    return [
        *found,
        Sample(key, [IMAGE, [2, 2], [1, 1], [1, 1], False, True, 3]),
        Sample(key, [IMAGE[0], [2, 2], [2, 2], [0, 0], True, False, -2]),
        Sample(key, [NANS, [2, 2], [1, 1], [0, 0], False, True, None]),
        Sample(key, [normal("float32", 0, 2, 4, 4), [2, 2], [2, 2], [0, 0], False, True, None]),
        Sample(key, [channels_last(IMAGE), [3, 3], [2, 2], [1, 1], False, False, None], dim_order=LAST),
    ]


def adaptive() -> list[Sample]:
    key = "aten::_adaptive_avg_pool2d.out"
    found = [Sample(key, [IMAGE, list(size)]) for size in ((1, 1), (4, 3), (6, 7), (9, 2), (13, 20), (0, 3))]
    found += [Sample(key, [normal(d, 1, 2, 5, 5), [3, 2]]) for d in FLOATS]
    return [
        *found,
        Sample(key, [IMAGE[0], [2, 2]]),
        Sample(key, [NANS, [2, 2]]),
        Sample(key, [normal("float32", 0, 2, 4, 4), [2, 2]]),
        Sample(key, [channels_last(IMAGE), [2, 3]], dim_order=LAST),
    ]


def reason(sample: Sample) -> str:
    if sample.args[0] is NANS and "max" in sample.key:
        return "skips NaN"
    if sample.dim_order and "avg" in sample.key:
        return "contiguous only"
    if "adaptive" in sample.key:
        return {"float64": "sums in float32"}.get(
            str(sample.args[0].dtype), "" if 0 not in sample.args[1] else "no empty output"
        )
    return ""


SAMPLES = unlike_stock([*maxima(), *gradients(), *averages(), *adaptive()], reason)
