"""Samples of the normalisations, and of the distances."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.ir.aten.harness import Sample, channels_last, to_array
from tests.ir.aten.samples.values import FLOATS, array, normal

IMAGE = normal("float32", 2, 3, 4, 2)
LAST = channels_last(IMAGE)
CL = (0, 2, 3, 1)
LIMITS = array([[1, np.nan, 3], [np.inf, 2, 1], [-np.inf, -np.inf, -np.inf], [-np.inf, 0, 1], [1e4, -1e4, 9e3]])


def softmaxes() -> list[Sample]:
    found = []
    for key in ("aten::_softmax.out", "aten::_log_softmax.out"):
        found += [Sample(key, [normal(d, 3, 4), dim, False]) for d in FLOATS for dim in (0, -1)]
        found += [Sample(key, [IMAGE, dim, False]) for dim in (0, 1, 2, -1)]
        found += [Sample(key, [x, -1, False]) for x in (LIMITS, normal("float32"), normal("float32", 0, 3))]
        found += [
            Sample(key, [normal("float32", 3, 0), 1, False]),
            Sample(key, [LAST, 1, False], dim_order=CL),
            Sample(key, [normal("float32", 5, 3).T, 1, False]),
        ]
    return found


def parameters(name: str, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    return normal(name, *shape, seed=7), normal(name, *shape, seed=8)


def statistics(name: str, channels: int) -> tuple[np.ndarray, np.ndarray]:
    return normal(name, channels, seed=4), array(np.abs(normal("float32", channels, seed=5)) + 0.1, name)


def batch_norms() -> list[Sample]:
    infer = "aten::_native_batch_norm_legit_no_training.out"
    legit, own = "aten::_native_batch_norm_legit.out", "aten::_native_batch_norm_legit.no_stats_out"
    training: dict[str, Any] = {"stock": False, "why": "stock runs this operator for inference only"}
    found = []
    for d in FLOATS:
        x, moments = array(IMAGE, d), statistics(d, 3)
        found += [
            Sample(infer, [x, *parameters(d, 3), *moments, 0.1, 1e-5]),
            Sample(legit, [x, *parameters(d, 3), *moments, False, 0.1, 1e-5]),
            Sample(legit, [x, *parameters(d, 3), *moments, True, 0.25, 1e-3], **training),
            Sample(own, [x, *parameters(d, 3), True, 0.1, 1e-5]),
        ]
    for x in (normal("float32", 4, 3), normal("float32", 2, 3, 5), normal("float32", 2, 3, 2, 2, 2)):
        found += [
            Sample(infer, [x, None, None, *statistics("float32", 3), 0.1, 1e-3]),
            Sample(infer, [x, normal("float32", 3), None, *statistics("float32", 3), 0.1, 1e-3]),
            Sample(legit, [x, None, None, *statistics("float32", 3), True, 0.1, 1e-3], **training),
            Sample(own, [x, None, normal("float32", 3), True, 0.1, 1e-3]),
        ]
    affine = parameters("float32", 3)
    plain = [torch.from_numpy(a) for a in (IMAGE, *affine)]
    functional = [to_array(t) for t in torch.ops.aten._native_batch_norm_legit.no_stats(*plain, True, 0.1, 1e-5)]
    half, moments = array(IMAGE, "bfloat16"), statistics("float32", 3)
    return [
        *found,
        Sample(infer, [half, *parameters("float32", 3), *moments, 0.1, 1e-5], out=["bfloat16", "float32", "float32"]),
        Sample(infer, [LAST, *parameters("float32", 3), *moments, 0.1, 1e-5], dim_order=CL),
        Sample(infer, [normal("float32", 0, 3, 2), None, None, *moments, 0.1, 1e-5]),
        Sample(
            legit,
            [normal("float32", 1, 3), None, None, *moments, True, 0.1, 1e-5],
            atol=1e-4,
            note="one element",
            **training,
        ),
        Sample(own, [LAST, *affine, True, 0.1, 1e-5], dim_order=CL, expect=functional, note="eager out= misreads it"),
    ]


def layer_norms() -> list[Sample]:
    key = "aten::native_layer_norm.out"
    found = [Sample(key, [normal(d, 3, 4), [4], *parameters(d, 4), 1e-5]) for d in FLOATS]
    found += [Sample(key, [IMAGE, list(s), *parameters("float32", *s), 1e-3]) for s in ((2,), (4, 2), (2, 3, 4, 2))]
    return [
        *found,
        Sample(key, [IMAGE, [2], None, None, 1e-5]),
        Sample(key, [IMAGE, [4, 2], normal("float32", 4, 2), None, 1e-5]),
        Sample(key, [IMAGE, [4, 2], None, normal("float32", 4, 2), 1e-5]),
        Sample(key, [normal("float32", 2, 30) + np.float32(100), [30], None, None, 1e-5]),
        Sample(
            key, [normal("bfloat16", 3, 4), [4], *parameters("float32", 4), 1e-5], out=["bfloat16"] + ["float32"] * 2
        ),
        Sample(key, [normal("float32", 0, 4), [4], None, None, 1e-5]),
        Sample(key, [normal("float32", 3, 0), [0], None, None, 1e-5], note="of nothing"),
        Sample(key, [LIMITS[[0, 4]], [3], None, None, 1e-5]),
        Sample(key, [normal("float32", 4, 3).T, [4], None, None, 1e-5]),
    ]


def group_norms() -> list[Sample]:
    key = "aten::native_group_norm.out"
    found = [Sample(key, [normal(d, 2, 4, 3), *parameters(d, 4), 2, 4, 3, g, 1e-5]) for d in FLOATS for g in (1, 2, 4)]
    return [
        *found,
        Sample(key, [normal("float32", 2, 6, 2, 2), None, None, 2, 6, 4, 3, 1e-3]),
        Sample(key, [normal("float32", 2, 6, 2, 2), normal("float32", 6), None, 2, 6, 4, 2, 1e-3]),
        Sample(key, [normal("float32", 2, 6), None, normal("float32", 6), 2, 6, 1, 2, 1e-3]),
        Sample(key, [normal("float32", 0, 4, 3), None, None, 0, 4, 3, 2, 1e-5]),
        Sample(key, [normal("float32", 2, 4, 0), None, None, 2, 4, 0, 2, 1e-5], note="of nothing"),
        Sample(key, [LAST, *parameters("float32", 3), 2, 3, 8, 3, 1e-5]),
    ]


def distances() -> list[Sample]:
    key, own = "aten::_cdist_forward.out", "aten::_pdist_forward.out"
    norms = (0.0, 1.0, 2.0, 0.5, 3.5, float("inf"))
    found = []
    for d in ("float32", "float64"):
        a, b = normal(d, 4, 3), normal(d, 5, 3, seed=2)
        b[0] = a[1]
        found += [Sample(key, [a, b, p, None]) for p in norms] + [Sample(own, [b, p]) for p in norms]
    a = normal("float32", 4, 3)
    found += [Sample(key, [a, a + np.float32(1), 2.0, mode]) for mode in (0, 1, 2)]
    found += [Sample(own, [normal("float32", n, m), 2.0]) for n, m in ((0, 3), (1, 3), (3, 0), (7, 1))]
    return [
        *found,
        Sample(key, [normal("float32", 2, 1, 4, 3), normal("float32", 5, 2, 3), 2.0, None], note="batches broadcast"),
        Sample(key, [normal("float32", 4, 0), normal("float32", 2, 0), 2.0, None]),
        Sample(key, [normal("float32", 0, 3), normal("float32", 2, 3), 1.0, None]),
        Sample(key, [LIMITS, a, 1.0, None]),
        Sample(key, [LIMITS[1:], a, float("inf"), None]),
        Sample(key, [normal("float32", 3, 4).T, a, 2.0, None]),
    ]


SAMPLES = [*softmaxes(), *batch_norms(), *layer_norms(), *group_norms(), *distances()]
