"""The demo's images, as its model takes them. Needs no torch."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.demo import IMAGES

CALIBRATED = 32  # the last so many of them are what it is calibrated with
_MEAN = np.array((0.4914, 0.4822, 0.4465), np.float32)
_STD = np.array((0.2470, 0.2435, 0.2616), np.float32)

Array = np.ndarray[Any, Any]


def load() -> tuple[list[Array], Array]:
    """Every image as the model's input, and what is on it: the number of its class."""
    with np.load(IMAGES) as file:
        return [prepare(image) for image in file["images"]], file["labels"]


def prepare(image: Array) -> Array:
    """A uint8 picture (height, width, RGB) as the model wants it: float32, normalised, channels first, batch of 1."""
    x = (image.astype(np.float32) / 255 - _MEAN) / _STD
    return np.ascontiguousarray(x.transpose(2, 0, 1)[None], np.float32)
