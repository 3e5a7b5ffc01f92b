"""Images of the demo, preprocessed for its model. Does not import torch."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.demo import IMAGES

CALIBRATION_COUNT = 32  # the last images are the calibration set
_MEAN = np.array((0.4914, 0.4822, 0.4465), np.float32)
_STD = np.array((0.2470, 0.2435, 0.2616), np.float32)

Array = np.ndarray[Any, Any]


def load() -> tuple[list[Array], Array]:
    """All images as model inputs, and their class labels."""
    with np.load(IMAGES) as file:
        return [prepare(image) for image in file["images"]], file["labels"]


def prepare(image: Array) -> Array:
    """Preprocess a uint8 HWC image: float32, normalized, NCHW with a batch of one."""
    x = (image.astype(np.float32) / 255 - _MEAN) / _STD
    return np.ascontiguousarray(x.transpose(2, 0, 1)[None], np.float32)
