"""Samples of the elementwise family."""

from __future__ import annotations

import numpy as np

from tests.ops.harness import Sample

rng = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


SAMPLES = [
    Sample("aten::add.out", [f32(2, 3), f32(3), 2]),
    Sample("aten::add.Scalar_out", [f32(2, 3), 1.5, 2]),
]
